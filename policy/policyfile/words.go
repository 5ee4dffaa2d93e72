package policyfile

// Reasons are the reasons that a decision can have.
func Reasons() []string { return reasons() }

// DidYouMean returns `did you mean "x"?` for the name nearest to got, or "" when
// none is near.
func DidYouMean(got string, names []string) string { return didYouMean(got, names) }

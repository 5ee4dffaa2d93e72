package policy

// fit is the three-valued answer of a matcher: whether what is known of an
// attempt fits a rule. The zero value is no. At StageRequest everything is
// known, so nothing is maybe there.
type fit uint8

const (
	no    fit = iota // nothing that can still become known makes it fit
	maybe            // it depends on what is not known yet
	yes              // it fits whatever becomes known
)

// when turns a plain condition into a fit.
func when(ok bool) fit {
	if ok {
		return yes
	}
	return no
}

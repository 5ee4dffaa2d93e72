package policy

import (
	"cmp"
	"slices"
)

// Severity says whether a problem keeps a policy from being used. The zero
// value does.
type Severity uint8

const (
	Error Severity = iota
	Warning
)

// Problem is one fault of a policy.
type Problem struct {
	Pos      Pos
	Related  []Pos  // other places that take part: the first declaration, the nearest org rule
	Summary  string // one line, object first
	Detail   string // why, in a sentence or two; may be empty
	Hint     string // what to write instead; may be empty
	Severity Severity

	Attr, Value string // the attribute of the block at Pos, and the text in it, that it is about; may be empty
	Certain     bool   // no other fault of the block can be what it comes from
}

// HasErrors reports whether one of the problems keeps the policy from being
// used.
func HasErrors(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == Error })
}

func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return comparePos(a.Pos, b.Pos) })
}

func comparePos(a, b Pos) int {
	return cmp.Or(
		cmp.Compare(a.File, b.File),
		cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.Column, b.Column),
	)
}

// nearest returns the name that s was probably meant to be, or "".
func nearest(s string, names []string) string {
	best, bestDistance := "", len(s)/3+2
	for _, name := range names {
		if d := distance(s, name); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two names, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// didYouMean is the hint for a name that is not declared.
func didYouMean(s string, names []string) string {
	if near := nearest(s, names); near != "" {
		return `did you mean "` + near + `"?`
	}
	return ""
}

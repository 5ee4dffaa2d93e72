package policyfile

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// didYouMean returns `did you mean "x"?` for the name nearest to got, or ""
// when none is near.
func didYouMean(got string, names []string) string {
	if best := nearest(got, names); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return ""
}

// nearest returns the name with the smallest edit distance to got, if it is
// small enough to be a slip of the hand. Case and the choice between "_" and
// "-" cost nothing.
func nearest(got string, names []string) string {
	if len(got) > 64 {
		return ""
	}
	fold := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }
	best, least := "", 1+max(1, min(3, len(got)/3))
	for _, name := range names {
		if n := distance(fold(got), fold(name)); n < least {
			best, least = name, n
		}
	}
	return best
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours that make b of a (optimal string alignment).
func distance(a, b string) int {
	two, one, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		two, one, row = one, row, two
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// oneOf returns `"a", "b" or "c"`.
func oneOf(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// list returns the names in order with commas.
func list(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names)), ", ")
}

// quote returns s quoted and escaped, at most 60 runes of it, and nothing of
// a text of several lines: no message repeats more of a file than its snippet
// shows.
func quote(s string) string {
	switch {
	case strings.ContainsAny(s, "\r\n"):
		s = "…"
	case utf8.RuneCountInString(s) > 60:
		s = string([]rune(s)[:60]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// clip returns at most n bytes of s, cut between runes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// lowerFirst returns s with a small first letter, unless it begins with an
// abbreviation.
func lowerFirst(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if next, _ := utf8.DecodeRuneInString(s[n:]); unicode.IsUpper(next) {
		return s
	}
	return string(unicode.ToLower(r)) + s[n:]
}

package main

import (
	"fmt"
	"slices"
	"strings"
)

// unified returns the difference of two texts as a unified diff with three
// lines of context; "" when they are equal.
func unified(name, was, now string) string {
	if was == now {
		return ""
	}
	ops := lineOps(strings.SplitAfter(was, "\n"), strings.SplitAfter(now, "\n"))
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", name, name)
	for start := 0; start < len(ops); {
		first := start
		for first < len(ops) && ops[first].kind == ' ' {
			first++
		}
		if first == len(ops) {
			break
		}
		from, end := max(start, first-aroundLines), hunkEnd(ops, first)
		writeHunk(&b, ops, from, end)
		start = end
	}
	return b.String()
}

// aroundLines is how many lines that stay are shown round a change.
const aroundLines = 3

// lineOp is one line: ' ' stays, '-' goes, '+' comes.
type lineOp struct {
	kind byte
	text string
}

// hunkEnd returns where the hunk ends that begins with the change at first:
// at its context behind the last change that is not far from the one before.
func hunkEnd(ops []lineOp, first int) int {
	end, same := first, 0
	for i := first; i < len(ops) && same <= 2*aroundLines; i++ {
		if ops[i].kind == ' ' {
			same++
			continue
		}
		end, same = i+1, 0
	}
	return min(len(ops), end+aroundLines)
}

func writeHunk(b *strings.Builder, ops []lineOp, from, end int) {
	oldAt, newAt, oldN, newN := 1, 1, 0, 0
	for i, op := range ops[:end] {
		was, now := op.kind != '+', op.kind != '-'
		switch {
		case i < from && was && now:
			oldAt, newAt = oldAt+1, newAt+1
		case i < from && was:
			oldAt++
		case i < from:
			newAt++
		default:
			if was {
				oldN++
			}
			if now {
				newN++
			}
		}
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", oldAt, oldN, newAt, newN)
	for _, op := range ops[from:end] {
		b.WriteByte(op.kind)
		b.WriteString(op.text)
		if !strings.HasSuffix(op.text, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// lineOps compares two lists of lines. Formatting changes lines in place, so
// lines at the front and the back that are the same are taken off first; what
// is left is compared by the longest common subsequence, up to a size.
func lineOps(a, b []string) []lineOp {
	a, b = withoutEmptyEnd(a), withoutEmptyEnd(b)
	var front, back []lineOp
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		front = append(front, lineOp{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		back = append(back, lineOp{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	slices.Reverse(back)
	return slices.Concat(front, middleOps(a, b), back)
}

func withoutEmptyEnd(lines []string) []string {
	if n := len(lines); n > 0 && lines[n-1] == "" {
		return lines[:n-1]
	}
	return lines
}

// middleOps is the longest common subsequence; of very long texts, the one
// after the other.
func middleOps(a, b []string) []lineOp {
	if len(a)*len(b) > 16<<20 {
		a, b = []string{strings.Join(a, "")}, []string{strings.Join(b, "")}
	}
	common := make([][]int32, len(a)+1) // length of the subsequence of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []lineOp
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, lineOp{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, lineOp{'-', a[i]})
			i++
		default:
			out = append(out, lineOp{'+', b[j]})
			j++
		}
	}
	return out
}

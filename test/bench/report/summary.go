package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
)

// Line is a row of a summary.
type Line struct {
	Workload string
	Title    string
	Metric   Metric
}

// Summary writes one figure of each workload for each peer: the medians. A
// peer that no line has a figure of has no column.
func (s Samples) Summary(w io.Writer, lines []Line, peers []string) {
	peers = slices.DeleteFunc(slices.Clone(peers), func(p string) bool {
		return !slices.ContainsFunc(lines, func(l Line) bool { return !math.IsNaN(s.Median(l.Workload, p, l.Metric)) })
	})
	rows := [][]string{append([]string{"", "figure"}, peers...)}
	for _, l := range lines {
		row := []string{l.Title, string(l.Metric)}
		for _, p := range peers {
			row = append(row, number(s.Median(l.Workload, p, l.Metric)))
		}
		if slices.ContainsFunc(row[2:], func(c string) bool { return c != "" }) {
			rows = append(rows, row)
		}
	}
	writeRows(w, rows, 2)
}

// Marks between which a document holds a summary.
const (
	beginMark = "<!-- written by make bench: begin -->\n"
	endMark   = "<!-- written by make bench: end -->\n"
)

// Insert puts text between the marks of a document.
func Insert(document, text []byte) ([]byte, error) {
	head, rest, ok := bytes.Cut(document, []byte(beginMark))
	_, tail, ends := bytes.Cut(rest, []byte(endMark))
	if !ok || !ends {
		return nil, fmt.Errorf("the document has no place for the summary: no lines %q and %q", beginMark, endMark)
	}
	return slices.Concat(head, []byte(beginMark), text, []byte(endMark), tail), nil
}

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

// Column is a column of a summary: the first of its peers that was measured.
type Column struct {
	Name  string
	Peers []string
}

// value is the figure of a line in a column; NaN if there is none.
func (s Samples) value(l Line, c Column) float64 {
	for _, p := range c.Peers {
		if v := s.Median(l.Workload, p, l.Metric); !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

// Summary writes one figure of each workload for each column: the medians.
// What has no figure at all has no row and no column.
func (s Samples) Summary(w io.Writer, lines []Line, columns []Column) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column) bool {
		return !slices.ContainsFunc(lines, func(l Line) bool { return !math.IsNaN(s.value(l, c)) })
	})
	head := []string{"", "figure"}
	for _, c := range columns {
		head = append(head, c.Name)
	}
	rows := [][]string{head}
	for _, l := range lines {
		row := []string{l.Title, string(l.Metric)}
		for _, c := range columns {
			row = append(row, number(s.value(l, c)))
		}
		if slices.ContainsFunc(row[2:], func(cell string) bool { return cell != "" }) {
			rows = append(rows, row)
		}
	}
	if len(rows) > 1 {
		writeRows(w, rows, 2)
	}
}

// Insert puts text between the marks in a document that name who writes it.
func Insert(document []byte, who string, text []byte) ([]byte, error) {
	begin, end := "<!-- written by "+who+": begin -->\n", "<!-- written by "+who+": end -->\n"
	head, rest, ok := bytes.Cut(document, []byte(begin))
	_, tail, ends := bytes.Cut(rest, []byte(end))
	if !ok || !ends {
		return nil, fmt.Errorf("the document has no place for it: no lines %q and %q", begin, end)
	}
	return slices.Concat(head, []byte(begin), text, []byte(end), tail), nil
}

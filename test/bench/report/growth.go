package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
)

// Curve is how a figure goes with the size of something. The samples of a size
// have it as their peer.
type Curve struct {
	Workload string
	Of       string // what there is more and more of
	What     string // is measured
	Metric   Metric
	Sizes    []int
}

// Growth writes a line for each curve that was measured: its first figure, and
// what it is at the other sizes, with the ratio to the first.
func (s Samples) Growth(w io.Writer, curves []Curve) {
	var rows [][]string
	for _, c := range curves {
		first := s.Median(c.Workload, strconv.Itoa(c.Sizes[0]), c.Metric)
		if math.IsNaN(first) {
			continue
		}
		if rows == nil {
			rows = [][]string{{"more", "figure", "from", ""}}
			for i := range c.Sizes[1:] {
				rows[0] = append(rows[0], "× "+strconv.Itoa(int(math.Pow10(i+1))))
			}
		}
		row := []string{c.Of, c.What, strconv.Itoa(c.Sizes[0]), number(first) + unit(c.Metric)}
		for _, size := range c.Sizes[1:] {
			v := s.Median(c.Workload, strconv.Itoa(size), c.Metric)
			row = append(row, fmt.Sprintf("%s%s (%s)", number(v), unit(c.Metric), number(v/first)))
		}
		rows = append(rows, row)
	}
	if rows != nil {
		writeRows(w, rows, 2)
	}
}

// unit of a metric, as it stands behind a number.
func unit(m Metric) string {
	switch m {
	case CPU:
		return " µs"
	case Memory:
		return " MiB"
	case Wait:
		return " ms"
	}
	return ""
}

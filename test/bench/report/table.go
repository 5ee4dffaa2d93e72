package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Table writes a workload's medians as Markdown, which reads on a terminal
// too. The ratios are paired by round.
func (s Samples) Table(w io.Writer, workload, title string, metrics []Metric, ratio Metric, to []string) {
	peers := s.Peers(workload)
	to = slices.DeleteFunc(slices.Clone(to), func(p string) bool { return !slices.Contains(peers, p) })
	head := []string{"peer"}
	for _, m := range metrics {
		head = append(head, string(m))
	}
	for _, p := range to {
		head = append(head, "÷ "+p)
	}
	head = append(head, string(Errors), "others' CPUs, load")
	rows := [][]string{head}
	for _, p := range peers {
		row := []string{p}
		for _, m := range metrics {
			row = append(row, number(s.Median(workload, p, m)))
		}
		for _, q := range to {
			row = append(row, number(s.Ratio(workload, p, q, ratio)))
		}
		errs := number(s.Median(workload, p, Errors))
		if e := s.lastError(workload, p); e != "" {
			errs += " (" + strings.NewReplacer("|", "/", "\n", " ").Replace(e[:min(len(e), 120)]) + ")"
		}
		rows = append(rows, append(row, errs, number(s.Median(workload, p, Others))+", "+number(s.Median(workload, p, Loads))))
	}
	fmt.Fprintf(w, "\n### %s: %s\n\n", workload, title)
	if len(to) > 0 {
		fmt.Fprintf(w, "Ratios are of %s.\n\n", ratio)
	}
	writeRows(w, rows, 1)
}

// writeRows writes a Markdown table whose columns stand in line; the first so
// many are text.
func writeRows(w io.Writer, rows [][]string, text int) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)), 3)
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i >= text && !strings.Contains(cell, "(") {
				fmt.Fprintf(w, "| %s%s ", pad, cell)
				continue
			}
			fmt.Fprintf(w, "| %s%s ", cell, pad)
		}
		fmt.Fprint(w, "|\n")
		if n > 0 {
			continue
		}
		for i := range row {
			right := ":"
			if i < text {
				right = "-"
			}
			fmt.Fprintf(w, "|%s%s", strings.Repeat("-", width[i]+1), right)
		}
		fmt.Fprint(w, "|\n")
	}
}

func (s Samples) lastError(workload, peer string) (last string) {
	for _, x := range s {
		if x.Workload == workload && x.Peer == peer && x.Error != "" {
			last = x.Error
		}
	}
	return last
}

// Verdicts writes what is to be reached, what was measured with each capture,
// and whether all of them reach it. It returns how many promises are not kept.
func (s Samples) Verdicts(w io.Writer, targets []Target) (missed int) {
	rows := [][]string{{"workload", "", "target", "measured", "met"}}
	for _, t := range targets {
		var got []string
		met := true
		for _, peer := range s.Peers(t.Workload) {
			if v := t.value(s, peer); t.meant(peer) && !math.IsNaN(v) {
				got = append(got, short(peer)+" "+number(v))
				met = met && t.met(v)
			}
		}
		if len(got) == 0 {
			continue
		}
		kind, verdict := "aim", "yes"
		if t.Must {
			kind = "must"
		}
		if !met {
			verdict = "**no**"
			if t.Must {
				missed++
			}
		}
		rows = append(rows, []string{t.Workload, kind, t.String(), strings.Join(got, ", "), verdict})
	}
	if len(rows) > 1 {
		writeRows(w, rows, 5)
	}
	return missed
}

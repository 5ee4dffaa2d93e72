package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// Baseline is what ratios were: workload, peer of sallyport "/" other peer, to
// the paired ratio of the CPU time of a request. More is worse.
type Baseline map[string]map[string]float64

// kept are the ratios that a baseline holds.
func kept() map[string][2][]string { // workload: sallyport's peers, the others
	ours := []string{"sallyport-netns"}
	return map[string][2][]string{
		"W1": {ours, {"splice", "nginx"}},
		"W2": {ours, {"splice", "nginx"}},
		"W9": {{"sallyport-100k-netns"}, {"dnsmasq"}},
	}
}

// Baseline takes the ratios from samples.
func (s Samples) Baseline() Baseline {
	out := Baseline{}
	for workload, peers := range kept() {
		for _, ours := range peers[0] {
			for _, other := range peers[1] {
				v := s.Ratio(workload, ours, other, CPU)
				if math.IsNaN(v) {
					continue
				}
				if out[workload] == nil {
					out[workload] = map[string]float64{}
				}
				out[workload][ours+"/"+other] = math.Round(v*1000) / 1000
			}
		}
	}
	return out
}

// ReadBaseline reads a file of kept ratios.
func ReadBaseline(path string) (Baseline, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var b Baseline
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// Write writes it.
func (b Baseline) Write(path string) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Compare says, line by line, how ratios are to those that were kept, and
// which workloads are worse by more than a share. A ratio that was kept and
// could not be measured is worse.
func (b Baseline) Compare(now Baseline, share float64) (lines []string, worse []string) {
	for workload, ratios := range b {
		for name, was := range ratios {
			is, ok := now[workload][name]
			verdict := "as it was"
			switch {
			case !ok:
				verdict = "NOT MEASURED"
			case is > was*(1+share):
				verdict = fmt.Sprintf("WORSE by more than %.0f %%", share*100)
			case is < was/(1+share):
				verdict = "better"
			}
			if !ok || is > was*(1+share) {
				worse = append(worse, workload)
			}
			lines = append(lines, fmt.Sprintf("%s %s: %s, was %s: %s", workload, strings.Replace(name, "/", " ÷ ", 1), number(is), number(was), verdict))
		}
	}
	slices.Sort(lines)
	slices.Sort(worse)
	return lines, slices.Compact(worse)
}

// Package report turns samples into tables, a picture, and the verdict on what
// is to be reached.
package report

import (
	"fmt"
	"math"
	"slices"

	"sallyport/test/bench/measure"
)

// Metric is a figure of a sample.
type Metric string

// The metrics.
const (
	CPU    Metric = "CPU µs"       // of the peer's processes, for each request
	Rate   Metric = "per s"        // requests
	P50    Metric = "p50 µs"       // of a request
	P99    Metric = "p99 µs"       //
	Speed  Metric = "MiB/s"        // of one body
	Cost   Metric = "CPU s/GiB"    // of the peer's processes
	Memory Metric = "RSS MiB"      // after the round
	Each   Metric = "KiB each"     // memory that one connection or sandbox costs
	Again  Metric = "resumed %"    // handshakes
	Growth Metric = "RSS ratio"    // at the end to at the start
	Wait   Metric = "ms"           // from start to end
	Others Metric = "others' CPUs" // of the machine, that neither load, peer nor origin used
	Loads  Metric = "load"         // average of the machine
	Errors Metric = "errors"       //
)

// Sample is one measurement.
type Sample struct {
	Workload string
	Peer     string
	Round    int
	Values   map[Metric]float64
	Error    string
}

// Samples are all of a run.
type Samples []Sample

// Series are the values of a metric by round.
func (s Samples) Series(workload, peer string, m Metric) map[int]float64 {
	out := map[int]float64{}
	for _, x := range s {
		if v, ok := x.Values[m]; ok && x.Workload == workload && x.Peer == peer {
			out[x.Round] = v
		}
	}
	return out
}

// Median of a metric over the rounds; NaN where there is none.
func (s Samples) Median(workload, peer string, m Metric) float64 {
	var v []float64
	for _, x := range s.Series(workload, peer, m) {
		v = append(v, x)
	}
	return measure.Median(v)
}

// Ratio of a metric of one peer to another's, paired by round.
func (s Samples) Ratio(workload, peer, to string, m Metric) float64 {
	return measure.Ratio(s.Series(workload, peer, m), s.Series(workload, to, m))
}

// Peers of a workload, in the order of their first sample.
func (s Samples) Peers(workload string) []string {
	var out []string
	for _, x := range s {
		if x.Workload == workload && !slices.Contains(out, x.Peer) {
			out = append(out, x.Peer)
		}
	}
	return out
}

// Workloads in the order of their first sample.
func (s Samples) Workloads() []string {
	var out []string
	for _, x := range s {
		if !slices.Contains(out, x.Workload) {
			out = append(out, x.Workload)
		}
	}
	return out
}

// number writes a figure with three digits that matter.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return ""
	case v == math.Trunc(v) && a < 10:
		return fmt.Sprintf("%.0f", v)
	case a >= 99.5:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

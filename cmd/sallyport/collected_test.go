package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCollected: what is read when Prometheus asks has the kind, labels and
// values that it should, each time anew.
func TestCollected(t *testing.T) {
	m, asked := newMetrics(nil), 0.0
	m.labelled(prometheus.CounterValue, "test_total", "Test.", "result", func(send func(string, float64)) {
		asked++
		send("hit", asked)
		send("miss", 10)
	})
	m.summed("test_seconds", "Test.", func() (uint64, float64) { return 7, 1.5 })
	for want := 1.0; want <= 2; want++ {
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range families {
			for _, x := range f.Metric {
				switch f.GetName() {
				case "sallyport_test_total":
					got = append(got, fmt.Sprintf("%s %s=%s %v", f.GetType(), x.Label[0].GetName(), x.Label[0].GetValue(), x.GetCounter().GetValue()))
				case "sallyport_test_seconds":
					got = append(got, fmt.Sprintf("%s %d %v", f.GetType(), x.GetSummary().GetSampleCount(), x.GetSummary().GetSampleSum()))
				}
			}
		}
		if exp := []string{"SUMMARY 7 1.5", fmt.Sprintf("COUNTER result=hit %v", want), "COUNTER result=miss 10"}; !slices.Equal(got, exp) {
			t.Errorf("gathered %q, want %q", got, exp)
		}
	}
}

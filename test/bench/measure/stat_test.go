package measure

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []float64
		want float64
	}{
		{"one", []float64{3}, 3},
		{"odd", []float64{9, 1, 5}, 5},
		{"even", []float64{4, 1, 2, 9}, 3},
	} {
		if got := Median(c.in); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
	in := []float64{3, 1, 2}
	if Median(in); in[0] != 3 {
		t.Error("the values were put in order in place")
	}
}

// TestRatio: a machine that is twice as slow in one round changes nothing,
// and a round that one of the two lacks does not count.
func TestRatio(t *testing.T) {
	a := map[int]float64{0: 15, 1: 30, 2: 45, 3: 1000}
	b := map[int]float64{0: 10, 1: 20, 2: 30, 4: 1}
	if got := Ratio(a, b); got != 1.5 {
		t.Errorf("ratio %v, want 1.5", got)
	}
	if got := Ratio(map[int]float64{0: 1}, map[int]float64{1: 1}); !math.IsNaN(got) {
		t.Errorf("ratio of rounds that do not meet: %v", got)
	}
	if got := Ratio(map[int]float64{0: 1, 1: 4}, map[int]float64{0: 0, 1: 2}); got != 2 {
		t.Errorf("ratio to a round of nothing: %v, want 2", got)
	}
}

func TestPercentile(t *testing.T) {
	v := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[float64]int64{0: 1, .5: 5, .9: 9, .99: 10, 1: 10} {
		if got := Percentile(v, p); got != want {
			t.Errorf("percentile %v: %d, want %d", p, got, want)
		}
	}
	if Percentile(nil, .5) != 0 {
		t.Error("percentile of nothing")
	}
}

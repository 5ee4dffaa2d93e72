// Package measure holds the arithmetic of the benchmark: medians, paired
// ratios, percentiles, and what /proc says of processes.
package measure

import (
	"math"
	"slices"
)

// Median of the values; NaN of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Percentile p, from 0 to 1, of values that are sorted; 0 of none.
func Percentile(sorted []int64, p float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Pairs are the values of two series by round: what was measured in one round
// was measured at the same time of the machine's day.
func Pairs(a, b map[int]float64) []float64 {
	var out []float64
	for round, x := range a {
		if y, ok := b[round]; ok && y > 0 && !math.IsNaN(x) {
			out = append(out, x/y)
		}
	}
	return out
}

// Ratio is the median of the ratios of a to b, paired by round; NaN if no
// round has both.
func Ratio(a, b map[int]float64) float64 { return Median(Pairs(a, b)) }

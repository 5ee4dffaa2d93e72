package main

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// outcomes are counters by the values of their labels. Those that come first are
// found without the hash that the vector makes of the values: it is a hot path,
// and few of them occur.
type outcomes struct {
	vec    *prometheus.CounterVec
	labels int // three at the most

	known atomic.Pointer[[]countedValues]
	mu    sync.Mutex // held by who adds one
}

// countedValues is the counter of some values, "" of labels that there are not.
type countedValues struct {
	values  [3]string
	counter prometheus.Counter
}

// maxOutcomes bounds those that are looked through.
const maxOutcomes = 24

// of returns the counter of values.
func (o *outcomes) of(values [3]string) prometheus.Counter {
	known := o.known.Load()
	if known != nil {
		for i := range *known {
			if x := &(*known)[i]; x.values == values {
				return x.counter
			}
		}
	}
	counter := o.vec.WithLabelValues(values[:o.labels]...)
	if known != nil && len(*known) >= maxOutcomes {
		return counter
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var next []countedValues
	if known = o.known.Load(); known != nil {
		next = slices.Clone(*known) // others look through the one that is there
	}
	next = append(next, countedValues{values, counter})
	o.known.Store(&next)
	return counter
}

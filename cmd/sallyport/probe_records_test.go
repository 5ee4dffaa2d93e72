package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestProbeWaitsForRecords: an attempt whose record is written a moment later
// has one; one that has none is told, after a while.
func TestProbeWaitsForRecords(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		ok    bool
	}{"a moment later": {300 * time.Millisecond, true}, "never": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				all, err := awaitRecords(func() ([]probed, error) {
					return []probed{{probeResult: probeResult{Held: true}, OK: time.Since(began) >= test.after}}, nil
				})
				if err != nil || len(all) != 1 || all[0].OK != test.ok {
					t.Errorf("%+v %v", all, err)
				}
				if took := time.Since(began); took > 2*recordTime {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

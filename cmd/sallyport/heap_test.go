package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestHeapPace: the runtime is told after a collection how much may be
// allocated until the next, and again after that.
func TestHeapPace(t *testing.T) {
	t.Setenv("GOGC", "")
	had := debug.SetGCPercent(leastPercent)
	t.Cleanup(func() { debug.SetGCPercent(had) })
	set := func() int {
		now := debug.SetGCPercent(leastPercent)
		debug.SetGCPercent(now)
		return now
	}
	defer paceHeap(func() int { return 0 })()
	ballast := make([]byte, spareHeap/4)
	const wide = 450 // of what the test itself has in use
	reached := func(low, high int) bool {
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			runtime.GC()
			if n := set(); n >= low && n <= high {
				return true
			}
		}
		return false
	}
	if !reached(leastPercent+1, wide) {
		t.Errorf("%d %% with a quarter of what may be spare in use", set())
	}
	runtime.KeepAlive(ballast)
	ballast = make([]byte, 2*spareHeap)
	if !reached(leastPercent, leastPercent) {
		t.Errorf("%d %% with twice of what may be spare in use, want %d", set(), leastPercent)
	}
	runtime.KeepAlive(ballast)
}

// TestHeapPaceIsTheOperators: GOGC is left as it is.
func TestHeapPaceIsTheOperators(t *testing.T) {
	t.Setenv("GOGC", "50")
	had := debug.SetGCPercent(50)
	t.Cleanup(func() { debug.SetGCPercent(had) })
	defer paceHeap(func() int { return 0 })()
	for range 20 { // what follows a collection comes a moment after it
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	if n := debug.SetGCPercent(50); n != 50 {
		t.Errorf("GOGC=50 became %d", n)
	}
}

func TestSpareShare(t *testing.T) {
	for _, tc := range []struct {
		name      string
		live      uint64
		sandboxes int
		want      int
	}{
		{"nothing known", 0, 0, 100 * spareHeap >> 20},
		{"little", spareHeap / 4, 0, 400},
		{"as much", spareHeap, 0, 100},
		{"more", 10 * spareHeap, 0, 100},
		{"half as much, and sandboxes", (spareHeap + 512*spareSandbox) / 2, 512, 200},
		{"little, and more sandboxes than count", mostSpare / 4, 1 << 20, 400},
		{"more than they add", 2 * mostSpare, 1 << 20, 100},
	} {
		if got := spareShare(tc.live, tc.sandboxes); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

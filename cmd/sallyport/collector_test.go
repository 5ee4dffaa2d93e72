package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestCollectorIsPaced: a small heap may grow to a bound, and one that is
// larger by the runtime's default; what was set before is set again.
func TestCollectorIsPaced(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	stop := paceCollector()
	if g := growth(); g <= leastGrowth {
		t.Fatalf("a small heap may grow by %d %%", g)
	}
	large := make([]byte, 2*smallHeap)
	paced := func() bool { // as it is set; to ask is to set
		now := debug.SetGCPercent(1000)
		debug.SetGCPercent(now)
		return now == leastGrowth
	}
	for end := time.Now().Add(30 * time.Second); ; {
		runtime.GC()
		if paced() {
			break
		}
		if time.Now().After(end) {
			t.Fatal("not set anew after a collection")
		}
		time.Sleep(time.Millisecond)
	}
	runtime.KeepAlive(large)
	stop()
	if now := debug.SetGCPercent(77); now != 77 {
		t.Errorf("left at %d", now)
	}
}

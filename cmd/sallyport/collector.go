package main

import (
	"runtime"
	"runtime/debug"
	measured "runtime/metrics"
	"sync/atomic"
)

const (
	// smallHeap is how far the heap may grow, in bytes, before garbage is
	// collected, however little of it lives. A gateway lives on a few MiB, and
	// would else collect many times a second under load.
	smallHeap = 32 << 20
	// leastGrowth is how far a larger heap may grow over what lives, in percent:
	// the runtime's default.
	leastGrowth = 100
)

// paceCollector sets how far the heap may grow anew after each collection,
// until the returned function is called.
func paceCollector() (stop func()) {
	runtime.GC() // before the first one it is not known what lives
	var over atomic.Bool
	before := debug.SetGCPercent(growth())
	var again func(*atomic.Bool)
	again = func(over *atomic.Bool) {
		if over.Load() {
			return
		}
		debug.SetGCPercent(growth())
		runtime.AddCleanup(new([16]byte), again, over) // the next collection finds it
	}
	again(&over)
	return func() {
		over.Store(true)
		debug.SetGCPercent(before)
	}
}

// growth is how far the heap may grow over what lived at the last collection,
// in percent of that and of what the collector scans besides.
func growth() int {
	s := []measured.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	measured.Read(s)
	live := int64(s[0].Value.Uint64())
	scanned := max(live+int64(s[1].Value.Uint64())+int64(s[2].Value.Uint64()), 1<<20)
	return int(max((smallHeap-live)*100/scanned, leastGrowth))
}

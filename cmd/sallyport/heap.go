package main

import (
	"os"
	"runtime"
	"runtime/debug"
	measured "runtime/metrics"
	"sync"
)

// spareHeap is what may be allocated from one collection of garbage to the
// next, in bytes, where the runtime would allow no more than there is in use.
// That is little here: each connection leaves some 60 KiB behind, most of them of
// its handshake, and what is in use is a few MiB. Nor is it more: what is
// allocated anew lies where no cache of the processor has it, and the first time
// where the kernel has yet to put a page.
const spareHeap = 8 << 20

// What each sandbox adds to spareHeap, in bytes, and how much that may be with
// it. Each collection looks through the stacks of all goroutines, and a sandbox
// has some that wait: that is work which what is in use does not show.
const (
	spareSandbox = 88 << 10
	mostSpare    = 128 << 20
)

// leastPercent is the runtime's own setting, GOGC=100.
const leastPercent = 100

// paceHeap has garbage collected when spareHeap was allocated, and what the
// sandboxes add, or as much as is in use if that is more, until what it returns
// is called. An operator who sets GOGC decides it instead, and GOMEMLIMIT holds
// in any case.
func paceHeap(sandboxes func() int) (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	p := &heapPace{percent: leastPercent, sandboxes: sandboxes}
	p.afterCollection()
	return p.end
}

// heapPace follows collections.
type heapPace struct {
	sandboxes func() int

	mu      sync.Mutex
	percent int // what the runtime was told last
	ended   bool
}

// afterCollection has the next collection followed, and each after it.
func (p *heapPace) afterCollection() {
	mark := new([16]byte) // garbage at once, so that the next collection ends it
	runtime.AddCleanup(mark, func(p *heapPace) {
		if p.follow(inUse(), p.sandboxes()) {
			p.afterCollection()
		}
	}, p)
}

// follow tells the runtime how much more than live may be in use, and is false
// after the end. Telling stops all goroutines for a moment, so small
// differences are let be.
func (p *heapPace) follow(live uint64, sandboxes int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	percent := spareShare(live, sandboxes)
	if d := percent - p.percent; !p.ended && (8*d > p.percent || -8*d > p.percent) {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
	return !p.ended
}

// end leaves the runtime with its own setting.
func (p *heapPace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	debug.SetGCPercent(leastPercent)
}

// spareShare is what may be spare in hundredths of live.
func spareShare(live uint64, sandboxes int) int {
	spare := min(spareHeap+spareSandbox*uint64(sandboxes), mostSpare)
	return int(max(leastPercent, 100*spare/max(live, 1<<20)))
}

// inUse is how many bytes the last collection found in use.
func inUse() uint64 {
	s := []measured.Sample{{Name: "/gc/heap/live:bytes"}}
	measured.Read(s)
	if s[0].Value.Kind() != measured.KindUint64 {
		return spareHeap // not known: as the runtime has it
	}
	return s[0].Value.Uint64()
}

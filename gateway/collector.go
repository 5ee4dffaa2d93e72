package gateway

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// ownGrowth is how far the runtime lets the heap grow over what lives before
	// it collects, in percent, where nobody says otherwise.
	ownGrowth = 100
	// mostGrowth is how far it may under load.
	mostGrowth = 400
	// loadedHeap is how large the heap may so become, in bytes. A gateway lives
	// on a few MiB: it would else collect many times a second.
	loadedHeap = 48 << 20
	// loadStep is how many requests and questions are counted at a time, and
	// loadTime how long as many take at most under load.
	loadStep = 1 << 10
	loadTime = time.Second
	// loadShare is how many requests and questions there are for each connection,
	// at least. What many connections leave behind would lie between what they
	// keep, and its memory would not come back.
	loadShare = 8
)

// collector says when memory is collected. Under load it is later, for that
// costs a request 5 % of its time; when the gateway falls quiet it is at once,
// or what a burst leaves behind would weigh on every connection that is kept
// open meanwhile.
type collector struct {
	attempts    atomic.Uint64 // questions, connections and requests so far
	connections atomic.Uint64 // of them

	mu     sync.Mutex
	paced  bool // the growth is not the runtime's own
	counts struct {
		at                    time.Time
		attempts, connections uint64
	} // at the last step

	// Used by tick alone.
	last, collected uint64
}

// connected counts a connection.
func (c *collector) connected() {
	c.connections.Add(1)
	c.attempts.Add(1)
}

// asked counts a question or request.
func (c *collector) asked(now func() time.Time) {
	if c.attempts.Add(1)%loadStep == 0 {
		c.step(now())
	}
}

// step looks whether there is load, and lets the heap grow.
func (c *collector) step(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.counts
	c.counts.at, c.counts.attempts, c.counts.connections = now, c.attempts.Load(), c.connections.Load()
	attempts, connections := c.counts.attempts-before.attempts, c.counts.connections-before.connections
	if now.Sub(before.at) > loadTime || attempts < loadShare*connections || c.paced || gcPercent() != ownGrowth {
		return
	}
	c.paced = true
	debug.SetGCPercent(growth(liveBytes()))
}

// growth is how far a heap of which so many bytes live may grow, in percent.
func growth(live uint64) int {
	return int(min(max(loadedHeap*100/max(live, 1), ownGrowth), mostGrowth))
}

// tick collects once when nothing was attempted since the tick before, and
// ends what step began when the load has ended.
func (c *collector) tick() {
	now := c.attempts.Load()
	if now-c.last < loadStep {
		c.end()
	} else {
		c.renew()
	}
	if now == c.last && now != c.collected {
		debug.FreeOSMemory()
		c.collected = now
	}
	c.last = now
}

// renew follows what lives now.
func (c *collector) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := growth(liveBytes()); c.paced && g != gcPercent() {
		debug.SetGCPercent(g)
	}
}

// end leaves the heap to the runtime.
func (c *collector) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paced {
		debug.SetGCPercent(ownGrowth)
		c.paced = false
	}
}

func gcPercent() int { return int(metric("/gc/gogc:percent")) }

func liveBytes() uint64 { return metric("/gc/heap/live:bytes") }

func metric(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

package gateway

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// idleCollector gives memory back when the gateway falls quiet. What a burst
// of handshakes and requests leaves behind would otherwise stay until the next
// one, and weigh on every connection that is kept open meanwhile.
type idleCollector struct {
	attempts atomic.Uint64 // questions, connections and requests so far

	// Used by whoever calls tick alone.
	last, collected uint64
	rested          int // connections that have begun to rest since it last collected
}

// note counts an attempt.
func (c *idleCollector) note() { c.attempts.Add(1) }

// tick collects once when nothing was attempted since the tick before.
func (c *idleCollector) tick() {
	now := c.attempts.Load()
	if now == c.last && now != c.collected {
		if c.rested > 0 {
			runtime.GC() // what they gave back to pools stays there for one more
		}
		c.rested = 0
		debug.FreeOSMemory()
		c.collected = now
	}
	c.last = now
}

package gateway

import (
	"runtime"
	"testing"
)

// TestIdleCollector: memory is given back once after attempts have ceased.
func TestIdleCollector(t *testing.T) {
	cycles := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	var c idleCollector
	before := cycles()
	c.note()
	c.tick() // something was attempted since the last one
	if n := cycles() - before; n != 0 {
		t.Errorf("collected %d times while busy", n)
	}
	c.tick()
	c.tick()
	if n := cycles() - before; n != 1 {
		t.Errorf("collected %d times when quiet, want once", n)
	}
}

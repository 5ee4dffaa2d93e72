package gateway

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestMemoryIsGivenBackWhenQuiet once, after attempts have ceased.
func TestMemoryIsGivenBackWhenQuiet(t *testing.T) {
	cycles := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	var c collector
	before := cycles()
	c.asked(time.Now)
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

// TestCollectorWaitsUnderLoad: while many requests come on few connections the
// heap may grow further, and afterwards no more.
func TestCollectorWaitsUnderLoad(t *testing.T) {
	before := debug.SetGCPercent(ownGrowth)
	defer debug.SetGCPercent(before)
	runtime.GC() // what lives is known from a collection
	for _, load := range []struct {
		name        string
		every       time.Duration
		connections int // one for so many requests; 0: none
		own         int // percent, before
		want        bool
	}{
		{"requests", 100 * time.Microsecond, 0, ownGrowth, true},
		{"slow requests", 2 * time.Millisecond, 0, ownGrowth, false},
		{"connections", 100 * time.Microsecond, 2, ownGrowth, false},
		{"connections that are used", 100 * time.Microsecond, 100, ownGrowth, true},
		{"set by its user", 100 * time.Microsecond, 0, 150, false},
	} {
		t.Run(load.name, func(t *testing.T) {
			debug.SetGCPercent(load.own)
			var c collector
			at := time.Unix(1, 0)
			for i := range 3 * loadStep {
				if load.connections > 0 && i%load.connections == 0 {
					c.connected()
				}
				at = at.Add(load.every)
				c.asked(func() time.Time { return at })
			}
			if g := gcPercent(); (g != load.own) != load.want || g > mostGrowth {
				t.Errorf("the heap grows by %d %%", g)
			}
			c.tick()
			if g := gcPercent(); (g != load.own) != load.want {
				t.Errorf("by %d %% after a moment", g)
			}
			c.tick()
			if g := gcPercent(); g != load.own {
				t.Errorf("by %d %% after the load", g)
			}
		})
	}
	if small, large := growth(1<<20), growth(1<<30); small != mostGrowth || large != ownGrowth {
		t.Errorf("1 MiB grows by %d %%, 1 GiB by %d %%", small, large)
	}
}

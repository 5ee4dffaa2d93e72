package main

import (
	"runtime"
	"time"
)

// A load of a large policy takes seconds of a processor that traffic needs
// too. Where traffic flows it works for a while, and then rests as long.
const (
	workWhile  = 500 * time.Microsecond
	restAtMost = 5 * time.Millisecond
)

// unhurried is how far one load has come. Its yield sleeps, rather than
// stepping aside for the goroutines that can run: it is when nothing runs that
// the runtime looks which connections have something to read.
type unhurried struct{ since time.Time }

func (u *unhurried) yield() {
	now := time.Now()
	if u.since.IsZero() {
		u.since = now
	}
	if worked := now.Sub(u.since); worked >= workWhile {
		time.Sleep(min(worked, restAtMost))
		u.since = time.Now()
	}
}

// besides has f run beside the traffic, not in its place. The runtime lets a
// goroutine run for 10 ms before another of the same processor, and its garbage
// collector as well; a file takes longer than that to parse. With one processor
// more there is always one that neither has, and the kernel, whose turns are
// shorter, shares out the real ones.
func besides(f func()) {
	had := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(had + 1)
	defer func() {
		runtime.SetDefaultGOMAXPROCS() // it follows the limit of a container again
		if runtime.GOMAXPROCS(0) != had {
			runtime.GOMAXPROCS(had)
		}
	}()
	f()
}

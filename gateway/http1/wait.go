package http1

import (
	"errors"
	"time"
)

// errHalted ends reading after Halt.
var errHalted = errors.New("connection is no longer read")

// Halt ends reading inside a request, also one that waits. It may be called
// at any time.
func (g *Guard) Halt() {
	g.halt.Store(true)
	_ = g.Conn.SetReadDeadline(time.Unix(1, 0)) // an error says that the wait has ended
}

// Halted says whether Halt was called.
func (g *Guard) Halted() bool { return g.halt.Load() }

// SetReadDeadline sets the server's deadline. One that is long past is how it
// ends a read that it has begun ahead of need.
func (g *Guard) SetReadDeadline(t time.Time) error {
	g.called.Store(!t.IsZero() && t.Year() < 2000)
	return g.Conn.SetReadDeadline(t)
}

// Called says whether the server has called back the read that it has begun.
func (g *Guard) Called() bool { return g.called.Load() }

// bound sets the deadline of the next read: one for the whole of a head that
// has begun, one for each piece of a body. Before a head the server sets it.
func (g *Guard) bound() error {
	if g.halt.Load() {
		return errHalted
	}
	wait := g.limits.BodyTimeout
	if !g.body.inside() {
		if wait = g.limits.HeadTimeout; len(g.in) == 0 || g.timed {
			return nil
		}
	}
	g.timed = true
	if err := g.Conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if g.halt.Load() { // its deadline may have been the earlier
		return errHalted
	}
	return nil
}

// lift takes a deadline back when a head or a body has ended: how long the
// next is waited for is for the server to say.
func (g *Guard) lift() {
	g.unread.Store(g.body.inside())
	if g.timed {
		g.timed = false
		_ = g.Conn.SetReadDeadline(time.Time{}) // an error comes again from the next read
	}
}

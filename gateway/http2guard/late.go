package http2guard

import (
	"errors"
	"time"
)

// errLate ends a connection.
var errLate = errors.New("http2: a frame did not come whole in time")

// lateness watches how long frames take to come, and request heads that come
// in several. Bodies are not its concern.
type lateness struct {
	most  time.Duration // 0: they may take any time
	end   func()
	since time.Time   // when what is incomplete began; zero: nothing is
	timer *time.Timer // looks again; nil before there was something
	set   bool        // timer runs
	over  bool        // it was too late
}

// Bound is called before all else. What takes longer than most from its first
// byte to its last is reported, and end is called to end the connection.
func (g *Guard) Bound(most time.Duration, end func()) { g.late.most, g.late.end = most, end }

// watch takes note of whether something is incomplete. It is called with
// every piece, so it leaves the timer alone as long as that runs.
func (g *Guard) watch() {
	l := &g.late
	switch {
	case l.most <= 0:
	case g.open == 0 && (len(g.head) == 0 || len(g.head) == headSize && g.kind == frameData):
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = time.Now()
		switch {
		case l.set:
			return
		case l.timer == nil:
			l.timer = time.AfterFunc(l.most, g.look)
		default:
			l.timer.Reset(l.most)
		}
		l.set = true
	}
}

// look ends the connection if what is incomplete has had its time.
func (g *Guard) look() {
	g.mu.Lock()
	l := &g.late
	l.set = false
	late := !l.over && !l.since.IsZero()
	if left := l.most - time.Since(l.since); late && left > 0 {
		l.timer.Reset(left)
		l.set, late = true, false
	}
	if late {
		l.over = true
		g.tellLate()
	}
	g.mu.Unlock()
	if late {
		l.end()
	}
}

// tellLate reports what did not come. Of trailers the end of their request is
// told.
func (g *Guard) tellLate() {
	head := g.open != 0 || len(g.head) == headSize && g.piece()
	if g.open = 0; head && g.id <= g.last {
		return
	}
	f := Fault{Lost: true, Detail: "a frame did not come whole in time"}
	if head {
		f.Detail = "the request head did not come in time"
	}
	_ = g.report(f) // the connection ends in any case
}

// quiet stops the watch.
func (g *Guard) quiet() {
	if g.late.over = true; g.late.timer != nil {
		g.late.timer.Stop()
	}
}

package http1

import (
	"errors"
	"net"
	"time"
)

// rest is the wait for the next request. The server keeps its buffers and a
// grown stack for as long as it waits, so a long wait is taken from it: it reads
// an end, gives up what it has, and is given the connection again when more
// comes.
type rest struct {
	waits bool // the server has ended a request, and the next has not begun
	looks int  // how often it was found so
	asked bool // the server's read is to end
	over  bool // it has ended, and the connection has not
}

// Waits tells that the server has ended a request and waits for the next. It is
// for the server to call, while it does not read.
func (g *Guard) Waits() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rest = rest{waits: len(g.heads) == 0 && len(g.in) == 0} // else it has come already, or has begun to
}

// Rest ends the server's wait for the next request if it finds it waiting for
// the n-th time in a row, and says whether it does. Bytes that come meanwhile
// keep the wait from being ended. It may be called at any time.
func (g *Guard) Rest(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.rest.waits || g.ended {
		return false
	}
	if g.rest.looks++; g.rest.looks < n {
		return false
	}
	g.rest.asked = true
	_ = g.Conn.SetReadDeadline(time.Unix(1, 0)) // an error says that the wait has ended
	return true
}

// Rested says, once, that the end which the server has read was that of its wait:
// the connection stands, and nothing of it is held here.
func (g *Guard) Rested() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	over := g.rest.over
	g.rest.over = false
	return over
}

// rests says whether a read that brought nothing was ended by Rest.
func (g *Guard) rests(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ne net.Error
	if !g.rest.asked || len(g.in) > 0 || !errors.As(err, &ne) || !ne.Timeout() {
		return false
	}
	g.rest = rest{over: true}
	g.in, g.out, g.large = nil, nil, nil
	return true
}

// stir ends the wait: bytes have come. Rest has replaced the server's deadline,
// which the server does not set again before a head: the head has its own time
// from now on, though what has come may be none yet but an empty line.
func (g *Guard) stir() {
	g.mu.Lock()
	asked := g.rest.asked
	g.rest = rest{}
	g.mu.Unlock()
	if asked {
		g.timed = true
		_ = g.Conn.SetReadDeadline(time.Now().Add(g.limits.HeadTimeout)) // an error comes again from the next read
	}
}

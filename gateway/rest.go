package gateway

import (
	"sync"
	"syscall"
	"time"

	"sallyport/gateway/upstream"
)

// A connection of HTTP/1.1 on which no request has come for a few looks rests:
// the server gives up its buffers, and the goroutine whose stack has grown with
// requests, and gets the connection anew when something comes. Most connections
// that are open are idle, and this is most of what they weigh.
const (
	lookEvery = time.Second
	restLooks = 3
)

// rests are the connections of HTTP/1.1 that may rest, and those that do.
type rests struct {
	mu    sync.Mutex
	conns map[*frontConn]struct{}
	ended bool
	waits sync.WaitGroup // of those that rest
}

// add takes fc in until it is closed. What is no socket cannot be waited for
// without a read, and where an idle connection ends soon nothing is gained.
func (r *rests) add(fc *frontConn) {
	if fc.c.client.socket() == nil || fc.c.g.restTime() <= 0 {
		return
	}
	r.mu.Lock()
	if r.conns == nil {
		r.conns = map[*frontConn]struct{}{}
	}
	r.conns[fc] = struct{}{}
	r.mu.Unlock()
	fc.c.client.whenClosed(func() {
		r.mu.Lock()
		delete(r.conns, fc)
		r.mu.Unlock()
	})
}

// restTime is how long a connection rests at most: with the looks before, no
// longer than one may be idle.
func (g *Gateway) restTime() time.Duration { return g.Limits.IdleTimeout - restLooks*lookEvery }

// look lets those rest that have been idle for long enough, and returns how many
// they are.
func (f *front) look() (n int) {
	f.rests.mu.Lock()
	defer f.rests.mu.Unlock()
	for fc := range f.rests.conns {
		if !fc.asleep && fc.guard.Rest(restLooks) {
			n++
		}
	}
	return n
}

// sleep keeps what the server has given up until something comes. It is false
// when it is to be closed instead.
func (f *front) sleep(fc *frontConn) bool {
	f.rests.mu.Lock()
	defer f.rests.mu.Unlock()
	if f.rests.ended {
		return false
	}
	fc.asleep = true
	fc.c.leaving.back()
	_ = fc.c.client.SetReadDeadline(time.Now().Add(fc.c.g.restTime())) // an error comes again from the wait
	raw := fc.c.client.socket()
	f.rests.waits.Go(func() { f.await(fc, raw) })
	return true
}

// await waits for what comes on a connection that rests, and has it served. It
// closes one that was idle for too long, or that broke.
func (f *front) await(fc *frontConn, raw syscall.RawConn) {
	err := upstream.Arrived(raw)
	f.rests.mu.Lock()
	fc.asleep = false
	ended := f.rests.ended
	f.rests.mu.Unlock()
	if err == nil && !ended {
		select {
		case f.conns <- fc:
			return
		case <-f.done:
		}
	}
	_ = fc.Close() // whoever waits for it is told
}

// end wakes those that rest, which then close, and lets no other rest.
func (r *rests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for fc := range r.conns {
		if fc.asleep {
			_ = fc.c.client.SetReadDeadline(past()) // one that is closed has woken
		}
	}
}

package gateway

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"sallyport/gateway/capture"
	"sallyport/gateway/dns"
)

// restAfter is how long a socket of a way in is waited for by a goroutine of its
// own before it rests.
const restAfter = 2 * time.Second

// socketSet serves the sockets of one way in. Of most sandboxes there is nothing
// to accept at most times, and there may be thousands: a goroutine that waits
// for each socket is memory, and a stack that each collection of garbage looks
// through. So a socket rests from the beginning, and again whenever nothing has
// come for a while, and one goroutine waits for all that rest.
type socketSet struct {
	ctx    context.Context
	cancel context.CancelFunc // one socket without the others is half a capture
	ready  *capture.Readiness // of those that rest; nil: none may
	wait   sync.WaitGroup     // of all sockets, whether they rest or not

	mu      sync.Mutex
	sockets []*servedSocket
	ended   bool
	err     error // the first of a socket's
}

// servedSocket is one of them.
type servedSocket struct {
	raw   syscall.RawConn // nil: it never rests
	run   func() error    // serves it; dns.ErrRest: nothing comes
	known bool            // to ready
	rests bool            // held by the set's mu
}

func newSocketSet(ctx context.Context, cancel context.CancelFunc) *socketSet {
	s := &socketSet{ctx: ctx, cancel: cancel}
	s.ready, _ = capture.NewReadiness() // without it each socket has a goroutine
	return s
}

// serve has run serve a socket, again and again.
func (s *socketSet) serve(socket any, run func() error) {
	c := &servedSocket{run: run}
	if l, ok := socket.(syscall.Conn); ok {
		c.raw, _ = l.SyscallConn() // an error comes again from run
	}
	s.wait.Add(1)
	s.mu.Lock()
	s.sockets = append(s.sockets, c)
	s.mu.Unlock()
	if !s.rest(c) {
		go s.work(c)
	}
}

// work serves a socket until it may rest, or for good.
func (s *socketSet) work(c *servedSocket) {
	for {
		err := c.run()
		if errors.Is(err, dns.ErrRest) {
			if s.rest(c) {
				return
			}
			continue
		}
		s.fail(err)
		s.wait.Done()
		return
	}
}

// rest has a socket wait together with the others, if that can be. What has come
// meanwhile is noticed.
func (s *socketSet) rest(c *servedSocket) bool {
	if c.raw == nil || s.ready == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	i := 0
	for s.sockets[i] != c {
		i++
	}
	c.rests = s.ready.Await(c.raw, int32(i), c.known) == nil
	c.known = c.known || c.rests
	return c.rests
}

// watch wakes those on which something has come, until the context ends.
func (s *socketSet) watch() {
	if s.ready != nil {
		stop := context.AfterFunc(s.ctx, func() { _ = s.ready.Close() })
		defer stop()
		var keys []int32
		var err error
		for err == nil {
			keys, err = s.ready.Next(keys[:0])
			for _, i := range keys {
				s.wake(int(i))
			}
		}
		s.fail(err)
	}
	<-s.ctx.Done()
}

// fail ends all, for the first error before the end.
func (s *socketSet) fail(err error) {
	s.mu.Lock()
	if err != nil && s.ctx.Err() == nil && s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.cancel()
}

func (s *socketSet) wake(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.sockets[i]; c.rests {
		c.rests = false
		go s.work(c)
	}
}

// end has all sockets, which are closed, end, and waits for them.
func (s *socketSet) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	for i := range s.sockets {
		s.wake(i)
	}
	s.wait.Wait()
}

package gateway

import (
	"errors"
	"sync"
	"time"

	"sallyport/policy"
)

// opened is the connections of sandboxes, from the moment it is known whose
// they are until they are closed.
type opened struct {
	mu    sync.Mutex
	conns map[*conn]struct{}
	ended bool
	gone  sync.WaitGroup // of conns, when everything about their close is told

	// IDs of sandboxes whose life has ended: lately, and before that.
	forgotten, before map[string]bool
	turned            time.Time // since when forgotten has been the later
}

// errEnded is why no connection is taken in any more.
var errEnded = errors.New("the gateway has ended")

// errForgotten is why a connection is not taken in that was a sandbox's whose
// life ended in that moment.
var errForgotten = errors.New("the sandbox has ended")

// forgottenFor is how long an ID is kept at least: longer than it takes from
// whose a connection is to its being taken in. An ID is of one life, and does
// not come again.
const forgottenFor = 10 * time.Minute

// add takes c in, or says why it is too late for that.
func (o *opened) add(c *conn) error {
	o.mu.Lock()
	switch id := c.sandbox.ID; {
	case o.ended:
		o.mu.Unlock()
		return errEnded
	case o.forgotten[id] || o.before[id]:
		o.mu.Unlock()
		c.g.states.Delete(id) // which may have been made again
		return errForgotten
	case o.conns == nil:
		o.conns = map[*conn]struct{}{}
	}
	o.conns[c] = struct{}{}
	o.gone.Add(1)
	o.mu.Unlock()
	c.client.whenClosed(func() {
		o.mu.Lock()
		delete(o.conns, c)
		o.mu.Unlock()
		o.gone.Done()
	})
	return nil
}

// turnAway ends a connection that add did not take in. At the end of the
// gateway that is no attempt any more.
func (c *conn) turnAway(err error) {
	if errors.Is(err, errForgotten) {
		c.refuse(policy.Decision{Reason: policy.UnknownSandbox, Message: err.Error()})
		return
	}
	c.client.reset()
}

// revokeSandbox ends the connections of one life of a sandbox, also those that
// are only read or refused, and lets no more of it in.
func (o *opened) revokeSandbox(id string) {
	o.mu.Lock()
	if now := time.Now(); o.forgotten == nil || now.Sub(o.turned) > forgottenFor {
		o.before, o.forgotten, o.turned = o.forgotten, map[string]bool{}, now
	}
	o.forgotten[id] = true
	o.mu.Unlock()
	why := *deny(policy.Revoked, errForgotten.Error())
	for _, c := range o.where(func(c *conn) bool { return c.sandbox.ID == id }) {
		c.client.revoke(why)
	}
}

// resetRefused resets the connections that are kept to explain why they were
// refused, and whose host s allows. Their clients open others.
func (o *opened) resetRefused(s *Snapshot) {
	for _, c := range o.where(func(c *conn) bool { return c.refusal.Load() != nil }) {
		if s.decide(c.request(c.scheme)).Verdict == policy.Allow {
			c.client.reset()
		}
	}
}

// end resets all connections, lets no other in, and waits until their ends are
// recorded.
func (o *opened) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	for _, c := range o.where(func(*conn) bool { return true }) {
		c.client.reset()
	}
	o.gone.Wait()
}

// where returns the connections that match. They are closed outside the lock: a
// close takes one out.
func (o *opened) where(match func(*conn) bool) []*conn {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []*conn
	for c := range o.conns {
		if match(c) {
			list = append(list, c)
		}
	}
	return list
}

// tracker counts what is under way, so that the end can wait for it.
type tracker struct {
	mu    sync.Mutex
	count int
	ended bool
	idle  chan struct{} // closed when ended and nothing is under way
}

// enter counts one in, or says that the gateway has ended.
func (t *tracker) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	t.count++
	return true
}

// leave counts one out.
func (t *tracker) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count--
	if t.ended && t.count == 0 {
		close(t.idle)
	}
}

// end lets nothing in any more and waits for what is under way.
func (t *tracker) end() {
	t.mu.Lock()
	if !t.ended {
		t.ended, t.idle = true, make(chan struct{})
		if t.count == 0 {
			close(t.idle)
		}
	}
	t.mu.Unlock()
	<-t.idle
}

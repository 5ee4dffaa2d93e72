package gateway

import "sync"

// opened is the connections of sandboxes, from the moment it is known whose
// they are until they are closed.
type opened struct {
	mu    sync.Mutex
	conns map[*conn]struct{}
	ended bool
	gone  sync.WaitGroup // of conns, when everything about their close is told
}

// add takes c in, or says that the gateway has ended.
func (o *opened) add(c *conn) bool {
	o.mu.Lock()
	ended := o.ended
	if !ended {
		if o.conns == nil {
			o.conns = map[*conn]struct{}{}
		}
		o.conns[c] = struct{}{}
		o.gone.Add(1)
	}
	o.mu.Unlock()
	if ended {
		return false
	}
	c.client.whenClosed(func() {
		o.mu.Lock()
		delete(o.conns, c)
		o.mu.Unlock()
		o.gone.Done()
	})
	return true
}

// resetSandbox resets the connections of one life of a sandbox, also those
// that are only read or refused.
func (o *opened) resetSandbox(id string) {
	o.resetWhere(func(c *conn) bool { return c.sandbox.ID == id })
}

// end resets all connections, lets no other in, and waits until their ends are
// recorded.
func (o *opened) end() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.resetWhere(func(*conn) bool { return true })
	o.gone.Wait()
}

func (o *opened) resetWhere(match func(*conn) bool) {
	var list []*conn
	o.mu.Lock()
	for c := range o.conns {
		if match(c) {
			list = append(list, c)
		}
	}
	o.mu.Unlock()
	for _, c := range list { // outside the lock: a close takes c out
		c.client.reset()
	}
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

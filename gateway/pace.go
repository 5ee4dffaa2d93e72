package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A refusal costs the gateway as much as the sandbox that provokes it, and the
// processors are everybody's. A sandbox that is refused more requests than
// anybody makes on purpose gets its answers at this pace.
const (
	refusalRate  = 2000 // a second and sandbox
	refusalBurst = 500
	refusalWait  = 512 // requests that wait for their answers; of HTTP/2, no more are read meanwhile
)

// pace spreads the refusals of one sandbox over time.
type pace struct {
	waiting atomic.Int64

	mu   sync.Mutex
	even time.Time // when all that was reserved is due; up to a burst in the past
}

func newPace() *pace { return &pace{} }

// refusalEvery is what one refusal takes of a sandbox's time.
const refusalEvery = time.Second / refusalRate

// reserve takes the next turn and says how long it is until then.
func (p *pace) reserve(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if burst := now.Add(-refusalBurst * refusalEvery); p.even.Before(burst) {
		p.even = burst
	}
	p.even = p.even.Add(refusalEvery)
	return p.even.Sub(now)
}

// giveBack gives back a turn that was not taken. Those behind it keep theirs.
func (p *pace) giveBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.even = p.even.Add(-refusalEvery)
}

// refusals is the pace of the connection's sandbox.
func (c *conn) refusals() *pace {
	if c.state != nil {
		return c.state.refusal
	}
	return c.g.state("").refusal // of those that are nobody's
}

// wait returns when the next refusal is due, or ctx ends.
func (p *pace) wait(ctx context.Context) {
	d := p.reserve(time.Now())
	if d <= 0 {
		return
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		p.giveBack() // else the sandbox's others wait for nobody
	}
}

// pacedConn is a connection whose requests do not wait for one another. It is
// not read while too many of the sandbox's wait.
type pacedConn struct {
	net.Conn
	pace *pace
}

// pacedPause is how often a connection that is held back looks again.
const pacedPause = 5 * time.Millisecond

func (c *pacedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for err == nil && c.pace.waiting.Load() > refusalWait { // each wait has an end
		time.Sleep(pacedPause)
	}
	return n, err
}

// CloseWrite half-closes, if the connection can.
func (c *pacedConn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

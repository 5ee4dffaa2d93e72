package gateway

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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
	limiter *rate.Limiter
	waiting atomic.Int64
}

func newPace() *pace { return &pace{limiter: rate.NewLimiter(refusalRate, refusalBurst)} }

// refusals is the pace of the connection's sandbox.
func (c *conn) refusals() *pace {
	id := ""
	if c.sandbox != nil {
		id = c.sandbox.ID
	}
	return c.g.state(id).refusal
}

// wait returns when the next refusal is due, or ctx ends.
func (p *pace) wait(ctx context.Context) {
	d := p.limiter.Reserve().Delay()
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

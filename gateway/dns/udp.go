package dns

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
)

// PacketConn is a UDP socket of a sandbox. Its methods may be called by many
// goroutines at once. Close may be called twice, and ends a ReadFrom that
// waits with an error that is net.ErrClosed.
type PacketConn interface {
	// ReadFrom reads one datagram. dst is the address it was sent to, which
	// is the resolver the sandbox asked.
	ReadFrom(b []byte) (n int, peer, dst netip.AddrPort, err error)
	// WriteTo sends b from dst to peer.
	WriteTo(b []byte, dst, peer netip.AddrPort) (int, error)
	Close() error
}

// idleReaders is how many goroutines at most wait on a socket after it was
// busy. With fewer, one would be started and ended for each question.
const idleReaders = 4

// crew is the goroutines of one packet socket. Each reads, decides and
// answers by itself; the last one that reads starts another before it turns
// to its question. So a socket never used costs one goroutine and one buffer, and
// a busy one as many as there are questions waiting for a decision, up to max.
type crew struct {
	server *Server
	conn   PacketConn
	max    int

	mu          sync.Mutex
	total, idle int // goroutines; those of them that read
	failed      error
	goroutines  sync.WaitGroup
	spare       sync.Pool // of *buffers
}

// buffers of one goroutine.
type buffers struct{ in, out []byte }

// ServePackets answers the questions that arrive at conn until ctx ends or
// conn is closed, and closes conn. It returns nil when ctx ended it, after
// every question taken has been answered or given up.
func (s *Server) ServePackets(ctx context.Context, conn PacketConn) error {
	return (&crew{server: s, conn: conn, max: s.o.Workers}).run(ctx)
}

func (c *crew) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	c.total, c.idle = 1, 1
	c.goroutines.Go(func() { c.work(ctx) })
	c.goroutines.Wait()
	stop()
	c.conn.Close()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("dns: read packet: %w", c.failed)
}

// work is one goroutine of the crew.
func (c *crew) work(ctx context.Context) {
	b, ok := c.spare.Get().(*buffers)
	if !ok {
		b = &buffers{in: make([]byte, MaxQuestionBytes), out: make([]byte, 0, MaxUDPBytes)}
	}
	defer c.spare.Put(b)
	for failures := 0; ; {
		n, peer, dst, err := c.conn.ReadFrom(b.in)
		if err != nil {
			failures++
			if c.over(ctx, err, failures) {
				return
			}
			continue
		}
		failures = 0
		c.leaveReading(ctx)
		c.serve(ctx, b, n, peer, dst)
		if !c.returnToReading() {
			return
		}
	}
}

func (c *crew) serve(ctx context.Context, b *buffers, n int, peer, dst netip.AddrPort) {
	src := source{TransportUDP, peer, dst}
	if peer.Port() == 0 { // nothing listens there: a forged source
		c.server.reportFault(ctx, src, nil, query{}, fault{err: ErrSource, drop: true})
		return
	}
	out := c.server.respond(ctx, src, b.in[:n], b.out)
	if out == nil {
		return
	}
	b.out = out[:0]
	if _, err := c.conn.WriteTo(out, dst, peer); err != nil && ctx.Err() == nil && !closed(err) {
		c.server.o.Logger.Debug("dns answer not sent", "peer", peer.String(), "error", err)
	}
}

// leaveReading counts the caller out of those that read, and starts another
// reader if it was the last and there may be one more.
func (c *crew) leaveReading(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle--
	if c.idle == 0 && c.total < c.max {
		c.total++
		c.idle++
		c.goroutines.Go(func() { c.work(ctx) })
	}
}

// returnToReading counts the caller in again, or out of the crew where enough
// of it reads.
func (c *crew) returnToReading() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle >= idleReaders {
		c.total--
		return false
	}
	c.idle++
	return true
}

// over reports whether a failed read ends the goroutine. Errors that pass,
// such as a lack of memory, do not: a sandbox would have lost its names.
func (c *crew) over(ctx context.Context, err error, failures int) bool {
	if ctx.Err() == nil && !closed(err) {
		c.server.o.Logger.Warn("dns socket cannot be read", "error", err)
		if pause(ctx, failures) {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	c.idle--
	c.failed = err
	return true
}

package dns

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"runtime/debug"
	"sync"
)

// Datagram is one message of a PacketConn. It is no type of its own so that a
// PacketConn need not know this package.
type Datagram = struct {
	B        []byte         // room to read into, then the message
	Peer     netip.AddrPort // the sandbox's end
	Scope    uint32         // the number of Peer's zone, where the socket is; 0 of most
	Resolver netip.AddrPort // the end that was asked
}

// PacketConn is a UDP socket of a sandbox. Close may be called twice, and ends a
// ReadBatch that waits with an error that is net.ErrClosed; WriteBatch may be
// called by many goroutines at once.
type PacketConn interface {
	// ReadBatch waits for datagrams and reads those that are there, as many as
	// take has room for, and cuts each B to its message. It calls take before
	// each try, and leave after one that found nothing: a socket that waits
	// holds no memory.
	ReadBatch(take func() []Datagram, leave func()) (n int, err error)
	// WriteBatch sends each B from its Resolver to its Peer. One that cannot be
	// sent does not keep back the others; the error is that of the first such.
	WriteBatch(ds []Datagram) error
	Close() error
}

// Asked is one of the questions that came together, and what was decided.
type Asked struct {
	Question
	Answer  Answer
	Decided bool // false: the Handler is asked instead
}

// crew serves one packet socket. One goroutine reads what is there and answers
// all of it together, so that a busy socket costs few system calls and wakes
// nobody. What Options.Quick leaves undecided has a goroutine each, up to
// Options.Workers: a question that waits holds up no other.
type crew struct {
	server *Server
	conn   PacketConn
	held   *batch // while something is read or answered
	busy   bool   // the last read found more than one

	apart chan struct{} // a place for each question that is decided apart
	wait  sync.WaitGroup
}

// ServePackets answers the questions that arrive at conn until ctx ends or
// conn is closed, and closes conn. It returns nil when ctx ended it, after
// every question taken has been answered or given up. See Options.Rest.
func (s *Server) ServePackets(ctx context.Context, conn PacketConn) error {
	return (&crew{server: s, conn: conn, apart: make(chan struct{}, s.o.Workers)}).run(ctx)
}

func (c *crew) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	err := c.read(ctx)
	c.wait.Wait()
	stop()
	if err == ErrRest && ctx.Err() == nil {
		return err
	}
	c.conn.Close()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("dns: read packet: %w", err)
}

// read answers until the socket fails for good. Errors that pass, such as a
// lack of memory, do not end it: a sandbox would have lost its names.
func (c *crew) read(ctx context.Context) error {
	take, leave := c.take, c.leave
	c.server.mayRest(c.conn)
	for failures := 0; ; {
		c.apart <- struct{}{} // until there is a place for what is read next
		<-c.apart
		n, err := c.conn.ReadBatch(take, leave)
		if err == nil {
			failures = 0
			c.serve(ctx, n)
			continue
		}
		c.leave()
		if c.server.o.Rest > 0 && late(err) {
			if len(c.apart) == 0 { // nobody is to be answered any more
				return ErrRest
			}
			c.server.mayRest(c.conn)
			continue
		}
		if failures++; ctx.Err() != nil || closed(err) {
			return err
		}
		c.server.o.Logger.Warn("dns socket cannot be read", "error", err)
		if !pause(ctx, failures) {
			return err
		}
	}
}

// take implements PacketConn's. No more is read than could be decided apart.
func (c *crew) take() []Datagram {
	if c.held == nil {
		c.held = c.server.batch(c.busy)
	}
	return c.held.room(cap(c.apart) - len(c.apart))
}

// leave implements PacketConn's.
func (c *crew) leave() {
	if c.held != nil {
		c.server.free(c.held)
		c.held = nil
	}
}

// serve answers the first n datagrams of the batch that is held.
func (c *crew) serve(ctx context.Context, n int) {
	b, s := c.held, c.server
	asked, out := b.asked[:0], b.out[:0]
	for i := range n {
		d := &b.in[i]
		src := source{TransportUDP, d.Peer, d.Resolver}
		if d.Peer.Port() == 0 { // nothing listens there: a forged source
			s.reportFault(ctx, src, nil, query{}, fault{err: ErrSource, drop: true})
			continue
		}
		q, f := parse(d.B)
		if f.err == nil {
			b.parsed[len(asked)] = parsed{q, i}
			asked = append(asked, Asked{Question: newQuestion(src, d.B, q)})
			continue
		}
		if s.reportFault(ctx, src, d.B, q, f); !f.drop {
			out = b.answer(out, i, q, Answer{RCode: f.rcode})
		}
	}
	s.quick(ctx, asked)
	for k := range asked {
		if a := &asked[k]; a.Decided && !a.Answer.Drop {
			out = b.answer(out, b.parsed[k].datagram, b.parsed[k].query, a.Answer)
		}
	}
	c.send(ctx, out)
	for k := range asked {
		if !asked[k].Decided {
			c.serveApart(ctx, b.in[b.parsed[k].datagram])
		}
	}
	clear(asked)
	if busy := n >= fewDatagrams; busy != c.busy {
		c.busy = busy
		c.leave() // the next one is of the other size
	}
}

// quick calls Options.Quick. After a panic every question is decided apart,
// where the one that is the cause is alone.
func (s *Server) quick(ctx context.Context, asked []Asked) {
	defer func() {
		if r := recover(); r != nil {
			s.o.Logger.Error("dns questions panicked", "panic", r, "stack", string(debug.Stack()))
			for i := range asked {
				asked[i].Decided = false
			}
		}
	}()
	if s.o.Quick != nil && len(asked) > 0 {
		s.o.Quick(ctx, asked)
	}
}

// serveApart asks the Handler about one question. The datagram is copied.
func (c *crew) serveApart(ctx context.Context, d Datagram) {
	d.B = bytes.Clone(d.B)
	c.apart <- struct{}{}
	c.wait.Go(func() {
		defer func() { <-c.apart }()
		d.B = c.server.respond(ctx, source{TransportUDP, d.Peer, d.Resolver}, d.B, nil)
		if d.B != nil {
			c.send(ctx, []Datagram{d})
		}
	})
}

func (c *crew) send(ctx context.Context, out []Datagram) {
	if len(out) == 0 {
		return
	}
	if err := c.conn.WriteBatch(out); err != nil && ctx.Err() == nil && !closed(err) {
		c.server.o.Logger.Debug("dns answer not sent", "error", err)
	}
}

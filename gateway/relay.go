package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// outcome is how an admitted attempt went upstream.
type outcome struct {
	upstream *audit.Upstream
	failure  *audit.Error
	reason   policy.Reason // why the gateway ended it, "" if it did not
}

// relayTCP copies a connection that a tcp rule allows, from the first byte.
func (c *conn) relayTCP(ctx context.Context, d policy.Decision) {
	c.relay(ctx, d)
}

// relayPassthrough copies a TLS connection that is not opened. Its SNI was
// checked against the name that was looked up.
func (c *conn) relayPassthrough(ctx context.Context, d policy.Decision) {
	c.relay(ctx, d)
}

// relay checks the addresses, records, dials and copies, in this order.
func (c *conn) relay(ctx context.Context, d policy.Decision) {
	g := c.g
	meters := meters(g.allowances.of(c.snap.Policy, c.sandbox, d.Rule))
	for _, w := range meters {
		if over := w.request(0); over != nil {
			c.refuse(*over)
			return
		}
	}
	r, denied := g.route(ctx, c.target(d), func() *event { return c.event(audit.KindDNS, audit.PhaseEvent) })
	if denied != nil {
		denied.Rule, c.refused = d.Rule, r
		c.refuse(*denied)
		return
	}
	c.leads = r.Addrs
	if err := c.admitConn(d); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.client.whenClosed(cancel)
	var info upstream.Info
	up, err := g.Upstream.Dial(upstream.WithAttempt(ctx, &upstream.Attempt{Info: &info}), r)
	if err == nil && ctx.Err() != nil { // cut in the meantime: what was peeked must not leave
		err = ctx.Err()
		_ = up.Close() // nothing was said
	}
	c.outcome.Store(&outcome{upstream: c.upstreamOf(info)})
	if err != nil {
		c.relayFailed(err)
		c.client.reset()
		return
	}
	s := splice{client: c.client, up: up, meters: meters, idle: g.Limits.RelayIdle, failed: c.relayFailed}
	s.run()
	_ = c.client.Close() // both directions have ended
}

// relayFailed notes why a relay ends. The first reason stays.
func (c *conn) relayFailed(err error) {
	now := c.outcome.Load()
	if now.failure != nil || c.client.revoked.Load() != nil {
		return
	}
	next := &outcome{upstream: now.upstream, failure: failureOf(err)}
	if errors.Is(err, errBudget) {
		next.reason = policy.ByteBudget
	}
	c.outcome.CompareAndSwap(now, next)
}

// still says why a relay must not go on under a new decision: because the
// addresses of which it dialled one may no longer be dialled.
func (c *conn) still(d policy.Decision) *policy.Decision {
	return c.g.stillLeads(c.target(d), c.leads)
}

// revoke cuts the connection because policy took its allow back.
func (c *conn) revoke(why policy.Decision) { c.client.revoke(why) }

// mark notes why that is about to happen.
func (c *conn) mark(why policy.Decision) { c.client.mark(why) }

// stillLeads says why one of addrs may not be dialled for t, or nil.
func (g *Gateway) stillLeads(t upstream.Target, addrs []netip.Addr) *policy.Decision {
	if len(addrs) == 0 {
		return nil
	}
	if refused, ok := errors.AsType[*upstream.Refusal](g.Upstream.Check(t, addrs)); ok {
		return deny(policy.Reason(refused.Reason), refused.Message)
	}
	return nil
}

// target is what the connection's host and port stand for upstream.
func (c *conn) target(d policy.Decision) upstream.Target {
	return upstream.Target{Sandbox: c.sandbox.ID, Host: c.host, Port: c.dst.Port(), Addresses: d.Addresses, Metadata: d.Metadata}
}

// route resolves a target to addresses that may be dialled. A question that
// leaves for it is recorded before it does, as the event that about gives.
func (g *Gateway) route(ctx context.Context, t upstream.Target, about func() *event) (upstream.Route, *policy.Decision) {
	r, err := g.Upstream.Route(ctx, t, func() error {
		e := about()
		e.Message = "resolving " + t.Host
		return g.record(e)
	})
	if err == nil {
		return r, nil
	}
	if refused, ok := errors.AsType[*upstream.Refusal](err); ok {
		r.Addrs = nil
		if refused.Addr.IsValid() {
			r.Addrs = []netip.Addr{refused.Addr} // for the record; the sandbox is not told
		}
		return r, &policy.Decision{Reason: policy.Reason(refused.Reason), Message: refused.Message}
	}
	_, detail := upstream.ErrorClass(err)
	return r, &policy.Decision{Reason: policy.ResolveFailed, Message: t.Host + " could not be resolved: " + detail}
}

// upstreamOf is i for the record; nil is none.
func (c *conn) upstreamOf(i upstream.Info) *audit.Upstream {
	u := &audit.Upstream{}
	if !c.fill(u, i) {
		return nil
	}
	return u
}

// fill is upstreamOf in the place of u; it is false where there is none.
func (c *conn) fill(u *audit.Upstream, i upstream.Info) bool {
	if i.Addr == (netip.AddrPort{}) {
		return false
	}
	p := c.peer.Load()
	if p == nil || p.addr != i.Addr.Addr() {
		p = &peer{i.Addr.Addr(), i.Addr.Addr().String()}
		c.peer.Store(p)
	}
	*u = audit.Upstream{IP: p.text, Port: i.Addr.Port(), Reused: i.Reused,
		TLSVersion: i.TLSVersion, ALPN: i.ALPN, ConnectMS: milliseconds(i.Connect)}
	return true
}

// failureOf classes an error, in words that are safe to record and to show.
func failureOf(err error) *audit.Error {
	for own, class := range map[error]string{errUnaskedUpgrade: "protocol", errNoStatus: "protocol", errTooManyHints: "protocol", errClientGone: "reset", errRelayIdle: "timeout", errStalled: "timeout"} {
		if errors.Is(err, own) {
			return &audit.Error{Class: class, Detail: own.Error()}
		}
	}
	class, detail := upstream.ErrorClass(err)
	return &audit.Error{Class: class, Detail: detail}
}

var errRelayIdle = errors.New("relay idle")

// splice copies both ways until both have ended, passing each half-close on.
// Without a byte in either direction for idle, it ends.
type splice struct {
	client *meter
	up     net.Conn
	meters meters
	idle   time.Duration
	failed func(error) // is told why it ends, before either side is closed

	last atomic.Int64 // when a byte last passed, in Unix nanoseconds
}

// run copies until the end and closes up.
func (s *splice) run() {
	defer s.up.Close()
	s.last.Store(time.Now().UnixNano())
	var wg sync.WaitGroup
	wg.Go(func() { s.half(s.up, s.client, func(n int64) error { return s.meters.add(n, 0) }) })
	wg.Go(func() { s.half(s.client, s.up, func(n int64) error { return s.meters.add(0, n) }) })
	wg.Wait()
}

// half copies one direction and passes its end on. An error ends the other
// direction too.
func (s *splice) half(dst, src net.Conn, count func(int64) error) {
	err := s.copy(dst, src, count)
	if err == nil {
		if c, ok := dst.(interface{ CloseWrite() error }); ok {
			err = ignoreClosed(c.CloseWrite())
		} else {
			err = ignoreClosed(dst.Close())
		}
	}
	if err != nil {
		s.failed(err)
		s.client.reset()
		_ = s.up.Close()
	}
}

// copy copies until the end of src, for which it returns nil.
func (s *splice) copy(dst, src net.Conn, count func(int64) error) error {
	bp := buffers.copies.get()
	defer buffers.copies.put(bp)
	for {
		_ = src.SetReadDeadline(time.Now().Add(s.idle)) // an error comes again from Read
		n, err := src.Read(*bp)
		if n > 0 {
			s.last.Store(time.Now().UnixNano())
			if err := count(int64(n)); err != nil {
				return err
			}
			_ = dst.SetWriteDeadline(time.Now().Add(s.idle)) // likewise
			if _, err := dst.Write((*bp)[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case isTimeout(err):
			if time.Since(time.Unix(0, s.last.Load())) >= s.idle {
				return errRelayIdle
			}
		case err != nil:
			return err
		}
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// bufferPool lends copy buffers of one size.
type bufferPool struct {
	size int
	p    sync.Pool
}

// Sizes of copy buffers, in bytes. A relay holds one of the first while it
// waits.
const (
	bufferSize = 32 << 10
	bulkSize   = 64<<10 + maxRecord
)

func (b *bufferPool) get() *[]byte {
	if v, ok := b.p.Get().(*[]byte); ok {
		return v
	}
	s := make([]byte, b.size)
	return &s
}

func (b *bufferPool) put(v *[]byte) { b.p.Put(v) }

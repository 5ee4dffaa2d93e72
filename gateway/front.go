package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/gateway/http1"
	"sallyport/gateway/http2guard"
	"sallyport/gateway/upstream"
)

// front is the one HTTP server of a gateway. Connections reach it one by one
// after they were decided, each as plain text, HTTP/1.1 behind a guard and
// HTTP/2 by prior knowledge.
type front struct {
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once

	strangers strangers
	rests     rests
}

// maxStreams is how many requests of one HTTP/2 connection run at once, and
// uploadWindow how much of the body of each may come before the upstream takes
// it, in bytes.
const (
	maxStreams   = 250
	uploadWindow = 256 << 10
)

func newFront(g *Gateway) *front {
	f := &front{conns: make(chan net.Conn), done: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	f.server = &http.Server{
		Handler:           http.HandlerFunc(g.serveFront),
		Protocols:         &protocols,
		ReadHeaderTimeout: g.Limits.HeadTimeout,
		IdleTimeout:       g.Limits.IdleTimeout,
		// Each request reaches the handler, which records it.
		DisableGeneralOptionsHandler: true,
		MaxHeaderBytes:               2 * g.Limits.MaxHead, // what is over MaxHead is refused by the gateway, which records it
		HTTP2: &http.HTTP2Config{
			// No pings: a client that is busy answers none, and one that is
			// gone is known by its kernel.
			MaxConcurrentStreams: maxStreams,
			WriteByteTimeout:     g.Limits.StallTimeout,
			// An upload that is not taken stops no other.
			MaxReceiveBufferPerStream:     uploadWindow,
			MaxReceiveBufferPerConnection: maxStreams * uploadWindow,
		},
		ErrorLog: g.Logger.Named("front").StandardLogger(nil),
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			if fc, ok := nc.(*frontConn); ok {
				return context.WithValue(ctx, connKey{}, fc.c)
			}
			return ctx
		},
		ConnState: func(nc net.Conn, s http.ConnState) {
			if fc, ok := nc.(*frontConn); ok && s == http.StateIdle && fc.guard != nil {
				fc.guard.Waits()
			}
		},
	}
	return f
}

type connKey struct{}

// connOf returns the connection that a request came on.
func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

func (f *front) serve() error {
	err := f.server.Serve(f)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// closeTime is how long those that are to be closed together may hold each
// other up.
const closeTime = time.Second

// shutdown stops taking connections and closes those that are idle, until
// ctx ends; then it closes all. The server does that one after another, and
// under TLS each waits for a client that does not read. So shutdown does not
// wait for it without a bound: what it returns is closed when all are, at the
// latest when all have been reset.
func (f *front) shutdown(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.rests.end()
		if err := f.server.Shutdown(ctx); err != nil {
			_ = f.server.Close() // what does not end is cut
		}
		f.rests.waits.Wait()
	}()
	select {
	case <-done:
		return done
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(closeTime):
	}
	return done
}

// Accept, Close and Addr make front the listener of its own server.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (f *front) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// Addr is of no meaning: the connections come from elsewhere.
func (f *front) Addr() net.Addr { return &net.TCPAddr{} }

// plain serves HTTP/1.1 on a connection without TLS.
func (f *front) plain(c *conn) { f.hand(c, c.client) }

// tls serves HTTP on the clear side of t, by the protocol that was agreed.
func (f *front) tls(c *conn, t *tls.Conn, h *helloConn) {
	f.hand(c, &clearConn{Conn: t, c: c, below: h})
}

func (f *front) hand(c *conn, nc net.Conn) {
	fc := &frontConn{Conn: nc, c: c}
	// The server waits without a bound for the bytes by which it tells the
	// protocols apart; it lifts this deadline when it has them.
	_ = c.client.SetReadDeadline(time.Now().Add(c.g.Limits.HeadTimeout)) // an error comes again from the first read
	if t := c.tls.Load(); t != nil && t.ALPN == "h2" {
		nc = &pacedConn{Conn: nc, pace: c.refusals()}
		c.streams = http2guard.New(2*c.g.Limits.MaxHead+http2Slack, c.recordFault)
		c.streams.Bound(c.g.Limits.HeadTimeout, func() { _ = c.client.SetReadDeadline(past()) }) // the server closes; or has
		fc.Conn = &prefaceConn{Grouped: upstream.NewGrouped(nc, c.g.Limits.StallTimeout), guard: c.streams, report: c.recordFault}
	} else {
		l := c.g.Limits
		c.leaving = &leaving{}
		c.client.whenClosed(c.leaving.close)
		fc.guard = http1.NewGuard(nc, http1.Limits{Head: l.MaxHead, Fields: l.MaxFields, HeadTimeout: l.HeadTimeout, BodyTimeout: l.StallTimeout})
		fc.Conn = fc.guard
		c.client.stall = l.StallTimeout
		f.rests.add(fc)
	}
	c.guard = fc.guard
	select {
	case f.conns <- fc:
	case <-f.done:
		c.client.reset()
	}
}

// frontConn is what the server sees of a connection.
type frontConn struct {
	net.Conn
	c         *conn
	guard     *http1.Guard // nil for HTTP/2
	lingering atomic.Bool
	asleep    bool // nobody serves it; under the mu of rests
}

// RemoteAddr returns the client's address. It is what the server asks for first
// on the goroutine that serves the connection.
func (f *frontConn) RemoteAddr() net.Addr {
	upstream.GrowStack8K()
	return f.Conn.RemoteAddr()
}

// Close closes the clear side and then the sandbox's. A client that may still
// be sending gets time to read the answer; another Close ends that. A connection
// that rests stays open.
func (f *frontConn) Close() error {
	if f.guard != nil && f.guard.Rested() && f.c.g.front.sleep(f) {
		return nil
	}
	if f.guard != nil && (f.guard.Unread() || f.mayTell()) && f.lingering.CompareAndSwap(false, true) && f.linger() {
		return nil
	}
	err := f.Conn.Close()
	return errors.Join(err, ignoreClosed(f.c.client.Close()))
}

// mayTell says whether a client within TLS may still say that it closes its
// side, while its kernel has not taken what was answered.
func (f *frontConn) mayTell() bool {
	const atOnce = 64 << 10 // bytes, that the client's kernel takes whoever reads
	c := f.c.client
	return f.c.tls.Load() != nil && c.out.Load() > atOnce && !f.guard.HalfClosed() && !f.guard.Halted() && c.Untaken() > 0
}

// CloseWrite half-closes, if the connection can.
func (f *frontConn) CloseWrite() error {
	if c, ok := f.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// clearConn is the opened side of a TLS connection. Under TLS 1.3 a client
// says that it distrusts the certificate only when the server's handshake is
// done, so its first read may bring that.
type clearConn struct {
	*tls.Conn
	c     *conn
	below *helloConn
	read  bool

	writing sync.Mutex // held by a write, and by what tells the client that there is no other
}

// errWriting says that the end cannot be told: a write has not ended.
var errWriting = errors.New("the client takes nothing")

// Close closes the connection. A write that has not ended is broken off, as
// crypto/tls does with its own, which a gathered one is not while it is sent.
func (t *clearConn) Close() error {
	if !t.writing.TryLock() {
		return t.below.Close()
	}
	defer t.writing.Unlock()
	if t.below.records.Held() {
		return t.below.Close()
	}
	return t.Conn.Close()
}

// CloseWrite half-closes, unless a write has not ended.
func (t *clearConn) CloseWrite() error {
	if !t.writing.TryLock() {
		return errWriting
	}
	defer t.writing.Unlock()
	if t.below.records.Held() {
		return errWriting
	}
	return t.Conn.CloseWrite()
}

// Write encrypts p, and sends the records of a long one together.
func (t *clearConn) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.below.records.Write(t.Conn, t.below.meter, p)
}

// hold has what is written from now on sent together by release. One that holds
// and releases is the only one that writes much.
func (t *clearConn) hold() { t.below.records.Hold() }

// release sends what was held.
func (t *clearConn) release() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.below.records.Release(t.below.meter)
}

func (t *clearConn) Read(p []byte) (int, error) {
	n, err := t.below.ahead.Fill(t.Conn, p)
	if !t.read {
		t.read = n > 0
		if _, ok := distrust(err, nil); ok {
			t.read = true
			t.c.recordHandshakeFailure(err, nil)
		}
	}
	return n, err
}

// Waiting is how many bytes, of TLS, have at least arrived that were not read yet.
func (t *clearConn) Waiting() int { return t.below.Waiting() }

// prefaceConn lets HTTP/2 through and nothing else: a client that agreed on
// h2 must begin with its preface (RFC 9113, section 3.4).
type prefaceConn struct {
	*upstream.Grouped
	seen   int
	guard  *http2guard.Guard // of what follows; one reader at a time
	report func(http2guard.Fault) error
	other  bool // it is something else
}

// http2Slack is what the server adds to its bound of a head for HTTP/2, which
// counts more bytes for a field: ten fields of 32 bytes.
const http2Slack = 10 * 32

var errNoPreface = errors.New("no HTTP/2 preface after h2 was agreed")

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

func (p *prefaceConn) Read(b []byte) (int, error) {
	if p.other {
		return 0, errNoPreface
	}
	if p.seen == len(preface) {
		return p.guard.Read(p.Grouped, b)
	}
	n, err := p.Grouped.Read(b[:min(len(b), len(preface)-p.seen)])
	if !bytes.Equal(b[:n], []byte(preface[p.seen:p.seen+n])) {
		return 0, p.refuse()
	}
	p.seen += n
	return n, err
}

// refuse reports that something else was spoken than was agreed. No read
// succeeds after that.
func (p *prefaceConn) refuse() error {
	p.other = true
	return errors.Join(p.report(http2guard.Fault{Lost: true, Detail: errNoPreface.Error()}), errNoPreface)
}

func (p *prefaceConn) Write(b []byte) (int, error) {
	if err := p.guard.Sent(b); err != nil {
		return 0, err
	}
	return p.Grouped.Write(b)
}

// Close closes the connection.
func (p *prefaceConn) Close() error { return errors.Join(p.guard.End(), p.Grouped.Close()) }

// CloseWrite half-closes, if the connection can.
func (p *prefaceConn) CloseWrite() error {
	if c, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

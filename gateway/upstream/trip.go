package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"
)

// conn is a connection of a pool that counts what was written to it.
type conn struct {
	net.Conn
	pool    *Pool
	addr    netip.AddrPort             // of the peer
	version string                     // of TLS, as "1.3"; "" without it. Set, as alpn, before a trip has the connection
	alpn    string                     // as negotiated
	records Records                    // of TLS over it
	ahead   Ahead                      // likewise, if secured
	both    Both                       // likewise
	secured bool                       // TLS is spoken over it
	late    atomic.Pointer[time.Timer] // to send the last flight of its handshake; nil: none is kept
	raw     syscall.RawConn            // nil: it has none
	written atomic.Int64               // before its end
	ending  atomic.Bool
	barred  atomic.Bool // nothing more is to be sent
	unread  atomic.Bool // nobody reads it yet
	http2   *http2Conn  // over it, if it is one; does not change once a trip has it
	gone    func()      // to be called when it is closed; under the pool's mu
	over    bool        // it has been; likewise

	once   sync.Once
	ended  chan struct{} // closed when nothing more can be read
	shut   sync.Once
	closed chan struct{}
}

func newConn(nc net.Conn, p *Pool) *conn {
	c := &conn{Conn: nc, pool: p, ended: make(chan struct{}), closed: make(chan struct{})}
	if p != nil && p.u != nil {
		c.records.Buffers, c.ahead.Buffers = &p.u.records, &p.u.records
	}
	if s, ok := nc.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // of a closed one every use fails
	}
	return c
}

// agreed notes what a handshake has come to: to ask TLS for it costs, and each
// trip over the connection wants it.
func (c *conn) agreed(s tls.ConnectionState) {
	c.version = strings.TrimPrefix(tls.VersionName(s.Version), "TLS ")
	c.alpn = s.NegotiatedProtocol
}

// An upstream that has answered early and closed resets what is still sent to
// it (RFC 9112, section 9.6). net/http gives a connection up with the first
// write that fails, and the answer with it.
const (
	answerWait  = 2 * time.Second        // for the answer to have been read
	answerGrace = 100 * time.Millisecond // for it to have been delivered
)

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	kept, err := c.records.Keep(b)
	switch {
	case err != nil:
		return 0, err
	case kept:
		return len(b), nil
	}
	return (*sending)(c).Write(b)
}

// wait waits for event, or that the connection is closed, no longer than most.
func (c *conn) wait(event <-chan struct{}, most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-event:
	case <-c.closed:
	case <-t.C:
	}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (n int, err error) {
	if c.secured {
		n, err = c.ahead.Read((*arriving)(c), b)
	} else {
		n, err = c.Conn.Read(b)
	}
	if err != nil && err != errNone {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.conns, c)
	gone := c.gone
	c.over = true
	c.pool.mu.Unlock()
	c.wake()
	if gone != nil {
		gone()
	}
	return c.Conn.Close()
}

// wake ends what waits for the connection, and what was read of it ahead.
func (c *conn) wake() {
	c.ahead.Stop()
	c.shut.Do(func() { close(c.closed) })
}

// onClose has gone called when the connection is closed, or at once if it has
// been.
func (c *conn) onClose(gone func()) {
	c.pool.mu.Lock()
	c.gone = gone
	over := c.over
	c.pool.mu.Unlock()
	if over {
		gone()
	}
}

// SetWriteDeadline implements net.Conn. Over HTTP/1.1 only the end of TLS sets
// one (crypto/tls, Conn.Close): what it writes then is of no request.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.ending.Store(true)
	return c.Conn.SetWriteDeadline(t)
}

// trip is one request on its way, with all its attempts.
type trip struct {
	pool      *Pool
	transport *transport
	target    Target
	http1     bool // HTTP/1.1 alone is offered
	out       *http.Request
	body      *body // nil without one
	info      *Info // nil if nobody asked
	watch     Watcher
	start     time.Time
	wide      atomic.Bool   // it has a place among those of wide windows
	answer    io.ReadCloser // the response's body; nil: nothing is done with it

	mu       sync.Mutex
	conn     net.Conn   // as net/http has it: a *conn or a *tls.Conn around one
	http2    *http2Conn // on which it has a place
	reused   bool
	got      time.Time
	baseline int64 // written on conn before the attempt
	sent     bool  // a byte of it was written over HTTP/1.1, by an attempt that failed
	repeated bool  // and it was sent once more
}

// trace returns a context in which the trip learns of its connection, and
// whoever attempts it of informational answers.
func (t *trip) trace(ctx context.Context, a *Attempt) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: a.Interim, GotConn: t.gotConn})
}

// gotConn is called before each attempt. net/http makes one after the other
// over HTTP/1.1 as long as a kept connection turns out to be dead, whatever was
// written to it, if the method or an Idempotency-Key says that it may. What is
// not to be sent again is kept from the connection, and everything from one on
// which something came that nobody has asked for: it is no answer to what comes.
func (t *trip) gotConn(i httptrace.GotConnInfo) {
	t.leave()
	c := underlying(i.Conn)
	if t.takes(c, i) && c != nil && t.watch != nil && !t.watch.Reached(&c.addr) && c.alpn != http2.NextProtoTLS {
		c.barred.Store(true) // net/http writes before it looks at the context
	}
}

// takes reports whether an attempt is made over a connection; c is what is
// below it.
func (t *trip) takes(c *conn, i httptrace.GotConnInfo) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := i.Conn.(*clearConn); ok && a.behind.Load() {
		c.barred.Store(true)
		return false
	}
	if c != nil && c.alpn != http2.NextProtoTLS && !t.mayUse(i.Reused) {
		c.barred.Store(true)
		return false
	}
	t.conn, t.reused, t.got = i.Conn, i.Reused, time.Now()
	if c != nil {
		t.http2, t.baseline = c.http2, c.written.Load()
	}
	return true
}

// mayUse reports whether an attempt may be made over a connection of HTTP/1.1.
// Once a byte was sent there is one more at most, for a method that is safe
// and has no body, over a fresh connection, as the one before may have been
// dead before the request came (RFC 9110, section 9.2.2). Its caller holds mu.
func (t *trip) mayUse(reused bool) bool {
	if !t.wasSent() {
		return true
	}
	if reused || t.repeated || t.body != nil {
		return false
	}
	switch t.out.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		t.repeated = true
		return true
	}
	return false
}

// wasSent reports whether a byte of the request was written over HTTP/1.1 by
// the attempts before. Its caller holds mu.
func (t *trip) wasSent() bool {
	if c := underlying(t.conn); c != nil && c.written.Load() != t.baseline {
		t.sent = true
	}
	return t.sent
}

// rewind makes the trip ready for another attempt, if its body can be.
func (t *trip) rewind() bool {
	if t.body == nil {
		return true
	}
	b, err := t.body.attempt()
	if err != nil {
		return false
	}
	out := *t.out // the transport may still hold the one before
	out.Body = b
	t.out = &out
	return true
}

func underlying(nc net.Conn) *conn {
	if a, ok := nc.(*clearConn); ok {
		return a.under
	}
	if c, ok := nc.(*tls.Conn); ok {
		nc = c.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

// report fills in what the caller wants to know of the connection.
func (t *trip) report(resp *http.Response) {
	if t.info == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	*t.info = Info{}
	c := underlying(t.conn)
	if c == nil {
		return
	}
	t.info.Addr, t.info.Reused = c.addr, t.reused
	if !t.reused {
		t.info.Connect = t.got.Sub(t.start)
	}
	if resp != nil {
		t.info.TLSVersion, t.info.ALPN = c.version, c.alpn
	}
	if t.info.ALPN != http2.NextProtoTLS {
		t.info.conn = c
	}
}

// answered tells the connection what follows the head of a response.
func (t *trip) answered(resp *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a, ok := t.conn.(*clearConn); ok {
		a.body(resp)
	}
}

// errSent ends a trip whose body may have arrived.
var errSent = errors.New("upstream: connection lost after the request was sent")

// again is the request's GetBody: net/http calls it to try another connection
// of HTTP/1.1 after one turned out to be dead. It would also repeat what is
// called idempotent; a body is repeated only if not a byte of the request was
// written.
func (t *trip) again() (io.ReadCloser, error) {
	t.mu.Lock()
	sent := t.wasSent()
	t.mu.Unlock()
	if sent {
		return nil, errSent
	}
	return t.body.attempt()
}

// choose returns the transport of the trip.
func (t *trip) choose() (*transport, error) {
	o := wideHTTP2
	switch {
	case t.http1:
		o = onlyHTTP1
	case t.out.URL.Scheme == "https" && upgrades(t.out.Header):
		o = noOffer
	case t.out.URL.Scheme == "https" && t.out.Header["Upgrade"] == nil && !t.widen(): // it may be HTTP/2
		o = narrowHTTP2
	}
	transport, err := t.pool.transport(t.target, o)
	if err != nil {
		t.narrow()
	}
	return transport, err
}

// widen takes a place among the trips of wide windows, if there is one.
func (t *trip) widen() bool {
	if t.pool.wide.Add(1) > maxWide {
		t.pool.wide.Add(-1)
		return false
	}
	t.wide.Store(true)
	return true
}

// narrow gives the place back.
func (t *trip) narrow() {
	if t.wide.Swap(false) {
		t.pool.wide.Add(-1)
	}
}

// leave gives back the place of an attempt that is over.
func (t *trip) leave() {
	t.mu.Lock()
	h := t.http2
	t.http2 = nil
	t.mu.Unlock()
	if h != nil {
		h.leave()
	}
}

// end gives back what the trip has.
func (t *trip) end() {
	t.narrow()
	if t.body != nil {
		t.body.close()
	}
	t.leave()
}

// response is the body of a trip's response. It ends the trip with its own end.
type response trip

// Read implements io.Reader.
func (r *response) Read(b []byte) (int, error) { return r.answer.Read(b) }

// Close implements io.Closer.
func (r *response) Close() error {
	err := r.answer.Close()
	(*trip)(r).end()
	return err
}

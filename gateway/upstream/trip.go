package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is a connection of a pool that counts what was written to it.
type conn struct {
	net.Conn
	pool    *Pool
	raw     syscall.RawConn // nil: it has none
	written atomic.Int64

	once   sync.Once
	ended  chan struct{} // closed when nothing more can be read
	shut   sync.Once
	closed chan struct{}
}

func newConn(nc net.Conn, p *Pool) *conn {
	c := &conn{Conn: nc, pool: p, ended: make(chan struct{}), closed: make(chan struct{})}
	if s, ok := nc.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn() // of a closed one every use fails
	}
	return c
}

// An upstream that has answered early and closed resets what is still sent to
// it (RFC 9112, section 9.6). net/http gives a connection up with the first
// write that fails, and the answer with it.
const (
	answerWait  = 2 * time.Second        // for the answer to have been read
	answerGrace = 100 * time.Millisecond // for it to have been delivered
)

// Write implements net.Conn. The error of a reset is told when what the peer
// had sent before has been read.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		c.wait(c.ended, answerWait)
		c.wait(nil, answerGrace)
	}
	return n, err
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
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.conns, c)
	c.pool.mu.Unlock()
	c.shut.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// trip is one request on its way, with all attempts that net/http makes.
type trip struct {
	transport *http.Transport
	target    Target
	http1     bool // HTTP/1.1 alone is offered
	out       *http.Request
	body      *body // nil without one
	info      *Info // nil if nobody asked
	start     time.Time

	mu       sync.Mutex
	conn     net.Conn // as net/http has it: a *conn or a *tls.Conn around one
	reused   bool
	got      time.Time
	baseline int64     // written on conn before the attempt
	first    time.Time // when it had its first connection, of HTTP/2
	refused  bool      // it was given up

	giveUp context.CancelFunc
}

// repeatTime is how long a request over HTTP/2 is repeated. net/http does so
// for a minute, each time after a longer pause, when the peer resets it with
// PROTOCOL_ERROR, which means more often that it does not like the request than
// that the connection is bad. With this it is the third pause that is the last.
const repeatTime = 2 * time.Second

// repeated notes an attempt over HTTP/2. Its caller holds mu.
func (t *trip) repeated() {
	if t.first.IsZero() {
		t.first = t.got
	}
	if t.got.Sub(t.first) > repeatTime {
		t.refused = true
		t.giveUp()
	}
}

// wasRefused says whether the peer refused the request until it was given up.
func (t *trip) wasRefused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

// trace returns a context in which the trip learns of its connection, and
// whoever attempts it of informational answers.
func (t *trip) trace(ctx context.Context, a *Attempt) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: a.Interim, GotConn: func(i httptrace.GotConnInfo) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.conn, t.reused, t.got = i.Conn, i.Reused, time.Now()
		if c, ok := i.Conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
			t.repeated()
		}
		if c := underlying(i.Conn); c != nil {
			t.baseline = c.written.Load()
		}
	}})
}

func underlying(nc net.Conn) *conn {
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
	if t.conn == nil {
		return
	}
	t.info.Addr, t.info.Reused = remote(t.conn), t.reused
	if !t.reused {
		t.info.Connect = t.got.Sub(t.start)
	}
	if resp != nil && resp.TLS != nil {
		t.info.TLSVersion = strings.TrimPrefix(tls.VersionName(resp.TLS.Version), "TLS ")
		t.info.ALPN = resp.TLS.NegotiatedProtocol
	}
	if t.info.ALPN != "h2" {
		t.info.conn = underlying(t.conn)
	}
}

// errSent ends a trip whose body may have arrived.
var errSent = errors.New("upstream: connection lost after the request was sent")

// again is the request's GetBody: net/http calls it to try another connection
// after one turned out to be dead. Over HTTP/2 it does so only when the peer
// has said that it did not look at the request (RFC 9113, sections 5.4.1 and
// 6.8). Over HTTP/1.1 it would also repeat what is called idempotent; a body
// is repeated only if not a byte of the request was written.
func (t *trip) again() (io.ReadCloser, error) {
	t.mu.Lock()
	nc, baseline := t.conn, t.baseline
	t.mu.Unlock()
	if c, ok := nc.(*tls.Conn); !ok || c.ConnectionState().NegotiatedProtocol != "h2" {
		if c := underlying(nc); c == nil || c.written.Load() != baseline {
			return nil, errSent
		}
	}
	return t.body.attempt()
}

// response closes the request's body with its own.
type response struct {
	io.ReadCloser
	request *body
}

// Close implements io.Closer.
func (r *response) Close() error {
	err := r.ReadCloser.Close()
	r.request.close()
	return err
}

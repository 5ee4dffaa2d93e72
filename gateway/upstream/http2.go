package upstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// http2Conns are the HTTP/2 connections of one transport. They are kept here
// because what net/http keeps repeats a request that the peer has reset with
// PROTOCOL_ERROR, each time over a new connection and without a pause or an
// end. A connection of http2 attempts a request once and says why it failed.
type http2Conns struct {
	settings *http2.Transport //nolint:staticcheck // see above: no other attempts a request once

	mu   sync.Mutex
	open map[string][]*http2Conn // by host and port, those that may take a request
	many int                     // all of them
}

// newHTTP2Conns gives t, which has the limits, connections of HTTP/2.
func newHTTP2Conns(t *http.Transport) (*http2Conns, error) {
	// http2 reads the limits of a transport that is its own.
	settings, err := http2.ConfigureTransports(&http.Transport{ //nolint:staticcheck // likewise
		DisableCompression:     t.DisableCompression,
		IdleConnTimeout:        t.IdleConnTimeout,
		ResponseHeaderTimeout:  t.ResponseHeaderTimeout,
		ExpectContinueTimeout:  t.ExpectContinueTimeout,
		MaxResponseHeaderBytes: t.MaxResponseHeaderBytes,
		HTTP2:                  t.HTTP2,
	})
	if err != nil {
		return nil, err
	}
	h := &http2Conns{settings: settings, open: make(map[string][]*http2Conn)}
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{http2.NextProtoTLS: h.begin}
	t.RegisterProtocol("https", h)
	return h, nil
}

// http2Conn is a connection of HTTP/2.
type http2Conn struct {
	conns *http2Conns
	tls   *tls.Conn
	cc    *http2.ClientConn
	over  atomic.Bool // it has been closed

	mu      sync.Mutex
	used    bool      // a request has had a place on it
	trips   int       // that have one
	since   time.Time // when it had none for the first time since
	retired bool      // it takes none
}

// take takes a place for one request more, if there is one, and says whether
// there was a request before.
func (c *http2Conn) take() (taken, reused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reused = c.used
	if c.retired || reused && c.over.Load() { // of one that was never used, http2 tells why
		return false, true
	}
	taken = c.cc.ReserveNewRequest()
	if taken {
		c.used = true
		c.trips++
	}
	return taken, reused
}

// roomy reports whether there is a place.
func (c *http2Conn) roomy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.retired && !c.over.Load() && c.cc.CanTakeNewRequest()
}

// leave gives a place back.
func (c *http2Conn) leave() {
	c.mu.Lock()
	c.trips--
	c.since = time.Now()
	c.mu.Unlock()
	c.conns.trim()
}

// idle reports whether no trip has a place, and since when.
func (c *http2Conn) idle() (since time.Time, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.trips == 0
}

// retire closes the connection if no trip has a place on it.
func (c *http2Conn) retire() {
	c.mu.Lock()
	c.retired = c.retired || c.trips == 0
	retired := c.retired
	c.mu.Unlock()
	if retired {
		_ = c.cc.Close() // nobody waits for it
	}
}

// begin makes a connection of one that has agreed on HTTP/2. Of many that were
// dialled at the same time those that are not needed are closed.
func (h *http2Conns) begin(authority string, c *tls.Conn) http.RoundTripper {
	if o := h.roomy(authority, nil); o != nil {
		_ = c.Close() // nothing was sent
		return o
	}
	under := underlying(c)
	if under != nil {
		under.unread.Store(true) // until its preface is written
	}
	shared := &sharedConn{Grouped: NewGrouped(c, 0), tls: c}
	cc, err := h.settings.NewClientConn(shared)
	if err != nil {
		_ = c.Close() // it is of no use
		return notBegun{err}
	}
	shared.begun.Store(true)
	hc := &http2Conn{conns: h, tls: c, cc: cc, since: time.Now()}
	if under != nil {
		under.unread.Store(false)
		under.http2 = hc // before a trip finds it
	}
	if o := h.roomy(authority, hc); o != nil {
		_ = cc.Close() // likewise
		return o
	}
	if under != nil {
		under.onClose(func() {
			hc.over.Store(true)
			h.drop(authority, hc)
		})
	}
	h.trim()
	return hc
}

// roomy returns a connection that may take a request, or adds c, unless it is
// nil, and returns nil.
func (h *http2Conns) roomy(authority string, c *http2Conn) *http2Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.open[authority] {
		if o.roomy() {
			return o
		}
	}
	if c != nil {
		h.open[authority] = append(h.open[authority], c)
		h.many++
	}
	return nil
}

// notBegun tells net/http why a connection could not be made (net/http,
// erringRoundTripper).
type notBegun struct{ err error }

// RoundTripErr returns why.
func (n notBegun) RoundTripErr() error { return n.err }

// RoundTrip implements http.RoundTripper.
func (n notBegun) RoundTrip(*http.Request) (*http.Response, error) { return nil, n.err }

func (h *http2Conns) drop(authority string, c *http2Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := len(h.open[authority])
	left := slices.DeleteFunc(h.open[authority], func(o *http2Conn) bool { return o == c })
	h.many -= was - len(left)
	if len(left) == 0 {
		delete(h.open, authority)
		return
	}
	h.open[authority] = left
}

// RoundTrip implements http.RoundTripper for a request that finds a connection.
// For any other it has the transport dial one.
func (h *http2Conns) RoundTrip(req *http.Request) (*http.Response, error) {
	h.mu.Lock()
	conns := slices.Clone(h.open[hostPort(req)])
	h.mu.Unlock()
	for _, c := range conns {
		if taken, reused := c.take(); taken {
			return c.attempt(req, reused)
		}
	}
	return nil, http.ErrSkipAltProtocol
}

// hostPort returns a request's host and port as net/http writes them.
func hostPort(req *http.Request) string {
	port := req.URL.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(strings.ToLower(req.URL.Hostname()), port)
}

// closeIdle closes the connections that no request uses.
func (h *http2Conns) closeIdle() {
	for _, c := range h.idle() {
		c.retire()
	}
}

// trim closes those of the connections that no request uses that were used
// least recently, of more than maxIdle.
func (h *http2Conns) trim() {
	h.mu.Lock()
	few := h.many <= maxIdle
	h.mu.Unlock()
	if few {
		return
	}
	idle := h.idle()
	for _, c := range idle[:max(0, len(idle)-maxIdle)] {
		c.retire()
	}
}

// idle returns the connections that no request uses, first the one that was
// used least recently.
func (h *http2Conns) idle() []*http2Conn {
	type rested struct {
		*http2Conn
		since time.Time
	}
	h.mu.Lock()
	var list []rested
	for _, conns := range h.open {
		for _, c := range conns {
			if since, idle := c.idle(); idle {
				list = append(list, rested{c, since})
			}
		}
	}
	h.mu.Unlock()
	slices.SortFunc(list, func(a, b rested) int { return a.since.Compare(b.since) })
	out := make([]*http2Conn, len(list))
	for i, r := range list {
		out[i] = r.http2Conn
	}
	return out
}

// goneConn has net/http leave a connection that it remembers (net/http,
// http2isNoCachedConnError).
type goneConn struct{}

// Error implements error.
func (goneConn) Error() string { return "upstream: the HTTP/2 connection takes no more requests" }

// IsHTTP2NoCachedConnError marks it.
func (goneConn) IsHTTP2NoCachedConnError() {}

// RoundTrip implements http.RoundTripper for the transport that has dialled
// the connection or remembers it. One that refuses its first request is not
// followed by another.
func (c *http2Conn) RoundTrip(req *http.Request) (*http.Response, error) {
	taken, reused := c.take()
	switch {
	case taken:
		return c.attempt(req, reused)
	case reused:
		return nil, goneConn{}
	}
	return nil, &Error{Class: "protocol", Detail: "the server takes no request on a new HTTP/2 connection"}
}

// attempt sends a request that has a place, once.
func (c *http2Conn) attempt(req *http.Request, reused bool) (*http.Response, error) {
	if t := httptrace.ContextClientTrace(req.Context()); t != nil && t.GotConn != nil {
		t.GotConn(httptrace.GotConnInfo{Conn: c.tls, Reused: reused})
	}
	return c.cc.RoundTrip(req)
}

// unprocessed reports whether the peer has said that it did not look at a
// request over HTTP/2 (RFC 9113, sections 6.8 and 8.7), or took not a byte of
// it. A stream that it reset in any other way it may have acted on.
func unprocessed(err error) bool {
	if e, ok := errors.AsType[http2.StreamError](err); ok {
		return e.Code == http2.ErrCodeRefusedStream
	}
	switch err.Error() { // which http2 does not export
	case "http2: Transport received Server's graceful shutdown GOAWAY", "http2: client conn not usable":
		return true
	}
	return false
}

// refusesRequest reports whether the peer reset a stream over HTTP/2 because
// of the request.
func refusesRequest(err error) bool {
	e, ok := errors.AsType[http2.StreamError](err)
	return ok && e.Code == http2.ErrCodeProtocol && byPeer(e)
}

// byPeer reports whether the peer has reset a stream, and not http2 because of
// the peer's answer.
func byPeer(e http2.StreamError) bool {
	return e.Cause != nil && e.Cause.Error() == "received from peer" // which http2 does not export
}

// withCause returns an error that unwraps to why http2 has reset a stream, too.
func withCause(err error) error {
	if e, ok := errors.AsType[http2.StreamError](err); ok && e.Cause != nil && !byPeer(e) {
		return fmt.Errorf("%w: %w", e.Cause, err)
	}
	return err
}

// sharedConn is what http2 has of a connection.
type sharedConn struct {
	*Grouped
	tls   *tls.Conn
	begun atomic.Bool // the preface is written, by which http2 sees whether it can
}

// Write implements net.Conn.
func (c *sharedConn) Write(p []byte) (int, error) {
	if !c.begun.Load() {
		return c.tls.Write(p)
	}
	return c.Grouped.Write(p)
}

// ConnectionState is how http2 finds what was negotiated.
func (c *sharedConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// Close implements net.Conn. The end of TLS may take closeWait as well.
func (c *sharedConn) Close() error {
	t := time.AfterFunc(closeWait, func() { _ = c.tls.NetConn().Close() }) // likewise
	defer t.Stop()
	return c.tls.Close()
}

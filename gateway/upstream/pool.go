package upstream

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxResponseHeader bounds a response's header, in bytes.
	maxResponseHeader = 512 << 10
	// continueTimeout is how long an upstream is given to say 100 Continue
	// before the body is sent without it.
	continueTimeout = 2 * time.Second
	// maxIdle bounds the idle connections of a sandbox with one set of ranges.
	maxIdle = 512
	// pingAfter and pingTimeout find an HTTP/2 connection that is dead.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
	// maxTransports bounds the sets of ranges that a sandbox has connections for.
	maxTransports = 64
	// maxOfferBoth bounds the hosts of which a sandbox's pool remembers that
	// they did not agree on HTTP/1.1.
	maxOfferBoth = 1024
)

// errNoRoute and its like are mistakes of the caller. They refuse.
var (
	errNoRoute    = errors.New("upstream: request without a route")
	errWrongRoute = errors.New("upstream: request does not go where its route does")
)

// Pool is the round tripper of one life of a sandbox. It sends a request to
// the route in its context, and reuses a connection only for the same host,
// port and ranges. It never follows a redirect, never asks the environment
// for a proxy, and never sends a body twice once any of it may have arrived.
// What may be sent again is sent once more at most: over HTTP/2 what the peer
// says it did not look at, over HTTP/1.1 what is safe and met a kept connection
// that turned out to be dead.
type Pool struct {
	u       *Upstream
	sandbox string
	tickets tls.ClientSessionCache

	mu         sync.Mutex
	closed     bool
	transports map[transportKey]*transport
	conns      map[*conn]struct{}
	offerBoth  map[string]struct{} // hosts and ports that did not agree on HTTP/1.1

	wide atomic.Int32 // trips that have a wide window
}

// transportKey tells apart what must not share connections.
type transportKey struct {
	target string // ranges and client certificate, see key
	offer  offer
}

// offer is what an upstream is offered.
type offer uint8

// Offers.
const (
	wideHTTP2   offer = iota // HTTP/1.1 as well
	narrowHTTP2              // likewise
	onlyHTTP1
	noOffer // of an upgrade, which HTTP/1.1 alone has
)

func newPool(u *Upstream, sandboxID string) *Pool {
	return &Pool{
		u:          u,
		sandbox:    sandboxID,
		tickets:    tls.NewLRUClientSessionCache(0),
		transports: make(map[transportKey]*transport),
		conns:      make(map[*conn]struct{}),
		offerBoth:  make(map[string]struct{}),
	}
}

// RoundTrip implements http.RoundTripper. Over TLS the upstream's certificate
// has been verified for the route's host before a byte of the request is
// written; there is no way to turn that off. Errors are *Error or *Refusal.
//
// The upstream is offered the protocol that the sandbox speaks, so that nothing
// has to be put into another one's terms: HTTP/1.1 alone for a request of
// HTTP/1, both for one of HTTP/2. One that does not agree on HTTP/1.1 is asked
// again with both.
func (p *Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	t, err := p.prepare(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, wrap(err)
	}
	resp, err := t.transport.RoundTrip(t.out)
	if err != nil && t.http1 && refusesProtocol(err) {
		resp, err = p.withHTTP2(t, err)
	}
	if err != nil && unprocessed(err) && t.rewind() { // once
		resp, err = t.transport.RoundTrip(t.out)
	}
	t.report(resp)
	if err != nil {
		t.end()
		if refusesRequest(err) {
			err = &Error{Class: "protocol", Detail: "the upstream refuses the request", Err: err}
		}
		return nil, p.u.failed(t.target, wrap(withCause(err)))
	}
	t.answered(resp)
	withoutBody(resp)
	if t.body != nil {
		t.body.seal()
	}
	if resp.ProtoMajor != 2 {
		t.narrow()
	}
	if resp.StatusCode != http.StatusSwitchingProtocols && (t.body != nil || t.wide.Load() || resp.ProtoMajor == 2) {
		t.answer = resp.Body
		resp.Body = (*response)(t)
	}
	return resp, nil
}

// prepare makes the trip of a request, which it does not change.
func (p *Pool) prepare(req *http.Request) (*trip, error) {
	a := attemptOf(req.Context())
	if a == nil {
		return nil, errNoRoute
	}
	r := &a.Route
	if r.Sandbox != p.sandbox || !leadsTo(req.URL, r.Target) {
		return nil, errWrongRoute
	}
	t := &trip{pool: p, target: r.Target, info: a.Info, watch: a.Watch, start: time.Now(),
		http1: req.ProtoMajor == 1 && req.URL.Scheme == "https" && req.Header["Upgrade"] == nil && !p.refusedHTTP1(req.URL.Host)}
	t.out = req.WithContext(t.trace(req.Context(), a))
	var err error
	if t.transport, err = t.choose(); err != nil {
		return nil, err
	}
	if _, ok := req.Header["User-Agent"]; !ok { // an empty one keeps net/http from adding its own
		t.out.Header = req.Header.Clone()
		if t.out.Header == nil {
			t.out.Header = make(http.Header, 1)
		}
		t.out.Header["User-Agent"] = []string{""}
	}
	if req.Body != nil && req.Body != http.NoBody {
		t.body = &body{src: req.Body}
		t.out.Body, _ = t.body.attempt()
		t.out.GetBody = t.again
	}
	return t, nil
}

// protoHTTP1 is the name of HTTP/1.1 in ALPN (RFC 7301, section 6).
const protoHTTP1 = "http/1.1"

// errNoHTTP1 ends a handshake in which the peer did not confirm HTTP/1.1.
var errNoHTTP1 = errors.New("upstream: the peer did not agree on HTTP/1.1")

// confirmsHTTP1 is the last step of a handshake that offers HTTP/1.1 alone. Who
// passes the offer over may speak HTTP/1.1 or have nothing but HTTP/2.
func confirmsHTTP1(s tls.ConnectionState) error {
	if s.NegotiatedProtocol != protoHTTP1 {
		return errNoHTTP1
	}
	return nil
}

// refusesProtocol reports whether a handshake came to nothing because of the
// protocol that was offered (RFC 7301, section 3.2).
func refusesProtocol(err error) bool {
	if errors.Is(err, errNoHTTP1) {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" && op.Err.Error() == "tls: no application protocol"
}

func (p *Pool) refusedHTTP1(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.offerBoth[host]
	return ok
}

// withHTTP2 repeats a trip of which nothing was sent.
func (p *Pool) withHTTP2(t *trip, refusal error) (*http.Response, error) {
	t.http1 = false
	transport, err := t.choose()
	if err != nil {
		return nil, refusal
	}
	p.mu.Lock()
	if len(p.offerBoth) >= maxOfferBoth {
		clear(p.offerBoth) // they will refuse again
	}
	p.offerBoth[t.out.URL.Host] = struct{}{}
	p.mu.Unlock()
	t.transport = transport
	if !t.rewind() {
		return nil, refusal
	}
	return t.transport.RoundTrip(t.out)
}

// leadsTo reports whether a URL has the scheme, host and port of a target.
func leadsTo(u *url.URL, t Target) bool {
	if u == nil || u.Host == "" || u.User != nil || !strings.EqualFold(u.Hostname(), t.Host) {
		return false
	}
	// An opaque path is a request target as it was sent (net/url, RequestURI).
	// With two slashes, or none, it would name another authority.
	if u.Opaque != "" && (u.Opaque[0] != '/' || strings.HasPrefix(u.Opaque, "//")) {
		return false
	}
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return false
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	return port == strconv.Itoa(int(t.Port))
}

// transport returns the transport for a target's ranges, which offers HTTP/1.1
// alone or HTTP/2 as well.
func (p *Pool) transport(t Target, o offer) (*transport, error) {
	k := transportKey{key(t), o}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed
	}
	tr, ok := p.transports[k]
	var gone []*transport
	if !ok {
		if len(p.transports) >= maxTransports { // most are of policies that are gone
			gone = slices.Collect(maps.Values(p.transports))
			clear(p.transports)
		}
		var err error
		if tr, err = p.newTransport(t.Certificate, o); err != nil {
			p.mu.Unlock()
			closeIdle(gone)
			return nil, err
		}
		p.transports[k] = tr
	}
	p.mu.Unlock()
	closeIdle(gone)
	return tr, nil
}

// closeIdle must not be called with the pool locked: closing a connection
// takes it out of the pool.
func closeIdle(transports []*transport) {
	for _, t := range transports {
		t.CloseIdleConnections()
		if t.http2 != nil {
			t.http2.closeIdle()
		}
	}
}

// key tells sets of ranges, and client certificates, apart, whatever their
// order.
func key(t Target) string {
	if len(t.Addresses) == 0 && t.Certificate == nil {
		return "" // Metadata needs ranges
	}
	parts := make([]string, 0, len(t.Addresses)+1)
	for _, a := range t.Addresses {
		parts = append(parts, a.String())
	}
	slices.Sort(parts)
	if t.Metadata {
		parts = append(parts, "metadata")
	}
	if t.Certificate != nil {
		sum := sha256.New()
		for _, c := range t.Certificate.Certificate {
			sum.Write(c) // never fails
		}
		parts = append(parts, hex.EncodeToString(sum.Sum(nil)))
	}
	return strings.Join(slices.Compact(parts), " ")
}

// dial connects for dialClear and dialTLS. The request that asked for the connection
// may be gone when it stands; another of the same transport and host then
// uses it, whose route was checked against the same ranges.
func (p *Pool) dial(ctx context.Context, addr string) (*conn, error) {
	a := attemptOf(ctx)
	if a == nil {
		return nil, errNoRoute
	}
	r := a.Route
	if addr != net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port))) {
		return nil, errWrongRoute
	}
	nc, err := p.u.dial(ctx, r)
	if err != nil {
		return nil, err
	}
	c := newConn(nc, p)
	c.addr = remote(nc)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		nc.Close()
		return nil, errClosed
	}
	p.conns[c] = struct{}{}
	return c, nil
}

func (p *Pool) closeIdle() {
	p.mu.Lock()
	transports := slices.Collect(maps.Values(p.transports))
	p.mu.Unlock()
	closeIdle(transports)
}

func (p *Pool) close() {
	p.mu.Lock()
	p.closed = true
	transports, conns := slices.Collect(maps.Values(p.transports)), p.conns
	p.transports, p.conns = nil, nil
	p.mu.Unlock()
	for c := range conns {
		c.wake()
		c.Conn.Close()
	}
	closeIdle(transports)
}

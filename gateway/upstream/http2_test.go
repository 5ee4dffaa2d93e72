package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// firstData calls before once, when the first byte after a handshake of TLS 1.2
// is to be written.
type firstData struct {
	net.Conn
	once   sync.Once
	before func()
}

func (c *firstData) Write(b []byte) (int, error) {
	if b[0] == 23 { // application data (RFC 5246, section 6.2.1)
		c.once.Do(c.before)
	}
	return c.Conn.Write(b)
}

// TestConnectionThatEndsAsItBegins: a connection that has been closed before it
// is known as one of HTTP/2 is forgotten as any other.
func TestConnectionThatEndsAsItBegins(t *testing.T) {
	ca := newAuthority(t)
	o := newOrigin(t, true, nil)
	o.roots.AddCert(ca.cert)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: []string{"h2"}, MaxVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 1))
		c.Close()
	})
	o.port = netip.MustParseAddrPort(ln.Addr().String()).Port()
	u := newUpstream(t, Options{Roots: o.roots})
	p := u.Transport("s1")
	tr, err := p.transport(o.target(), wideHTTP2)
	if err != nil {
		t.Fatal(err)
	}
	dial := u.connect
	u.connect = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		nc, err := dial(ctx, to)
		if err != nil {
			return nil, err
		}
		return &firstData{Conn: nc, before: func() {
			p.mu.Lock()
			conns := slices.Collect(maps.Keys(p.conns))
			p.mu.Unlock()
			tr.http2.mu.Lock() // so that nobody is told before it has been closed
			wg.Go(func() {
				defer tr.http2.mu.Unlock()
				<-conns[0].closed
			})
		}}, nil
	}
	if resp, _, err := send(t, u, o.target(), "https", "GET", nil, speaksHTTP2); err == nil {
		resp.Body.Close()
		t.Error("a connection that was closed has answered")
	}
	tr.http2.mu.Lock()
	defer tr.http2.mu.Unlock()
	if n := len(tr.http2.open); n > 0 {
		t.Errorf("connections to %d hosts are kept, want none", n)
	}
}

// resetAtFirst is a connection whose peer resets it when the first byte after a
// handshake of TLS 1.3 is to be written, which is then told when it is closed.
type resetAtFirst struct {
	net.Conn
	reset  time.Time
	closed chan time.Duration // since then
}

func (c *resetAtFirst) Write(b []byte) (int, error) {
	if b[0] == 23 && len(b) > 64 { // application data, longer than a Finished message
		c.reset = time.Now()
		return 0, syscall.ECONNRESET
	}
	return c.Conn.Write(b)
}

func (c *resetAtFirst) Close() error {
	if !c.reset.IsZero() {
		c.closed <- time.Since(c.reset)
	}
	return c.Conn.Close()
}

// TestResetBeforeHTTP2: no answer is waited for on a connection that is reset
// before a request could be made over it.
func TestResetBeforeHTTP2(t *testing.T) {
	o := newOrigin(t, true, nil)
	u := newUpstream(t, Options{Roots: o.roots})
	closed := make(chan time.Duration, 9)
	dial := u.connect
	u.connect = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		nc, err := dial(ctx, to)
		return &resetAtFirst{Conn: nc, closed: closed}, err
	}
	if resp, _, err := send(t, u, o.target(), "https", "GET", nil, speaksHTTP2); err == nil {
		resp.Body.Close()
		t.Error("a connection that was reset has answered")
	}
	if waited := <-closed; waited >= answerWait {
		t.Errorf("closed after %v", waited)
	}
}

// TestCloseEndsAWait: nothing waits for an answer over a pool that is closed,
// whether or not net/http has the connection yet.
func TestCloseEndsAWait(t *testing.T) {
	u := newUpstream(t, Options{})
	p := u.Transport("s1")
	nc, peer := net.Pipe()
	defer peer.Close()
	c := newConn(nc, p)
	p.mu.Lock()
	p.conns[c] = struct{}{}
	p.mu.Unlock()
	u.Close()
	select {
	case <-c.closed:
	default:
		t.Error("what waits for the connection goes on")
	}
}

// manyHosts is an origin of HTTP/2 with n names, and an Upstream that knows them.
func manyHosts(t *testing.T, n int) (*origin, *Upstream, func(i int) Target) {
	t.Helper()
	ca := newAuthority(t)
	o := newOrigin(t, true, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") })
	o.roots.AddCert(ca.cert)
	name := func(i int) string { return fmt.Sprintf("h%d.test", i) }
	hosts := map[string][]netip.Addr{}
	for i := range n {
		hosts[name(i)] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	}
	cert := ca.issue(t, func(c *x509.Certificate) { c.DNSNames = slices.Collect(maps.Keys(hosts)) })
	o.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}, nil
	}
	return o, newUpstream(t, Options{Roots: o.roots, Hosts: hosts, IdleTimeout: time.Hour}), func(i int) Target {
		to := o.target()
		to.Host = name(i)
		return to
	}
}

// TestIdleHTTP2ConnectionsAreBounded: those that were used least recently are
// closed, none that is in use, and those that were in use when they no longer
// are.
func TestIdleHTTP2ConnectionsAreBounded(t *testing.T) {
	const busy, more = maxWide / 2, 40
	o, u, to := manyHosts(t, maxIdle+busy+more)
	var open []*http.Response
	for i := range busy {
		resp, _, err := send(t, u, to(i), "https", "GET", nil, speaksHTTP2)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp)
	}
	for i := busy; i < maxIdle+busy+more; i++ {
		mustSend(t, u, to(i), "https", "GET", nil, speaksHTTP2)
	}
	p := u.Transport("s1")
	kept := func(when string, want int) {
		t.Helper()
		p.mu.Lock()
		n := len(p.conns)
		h := p.transports[transportKey{key(o.target()), wideHTTP2}].http2
		p.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		if n != want || h.many != want {
			t.Errorf("%s %d connections are open, %d of them known; want %d", when, n, h.many, want)
		}
	}
	reused := func(i int) bool {
		_, info, _ := mustSend(t, u, to(i), "https", "GET", nil, speaksHTTP2)
		return info.Reused
	}
	kept("with some in use", busy+maxIdle)
	if !reused(0) || !reused(maxIdle+busy+more-1) || reused(busy) {
		t.Error("want those in use and the last ones kept, and the first of the others closed")
	}
	for _, resp := range open {
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	kept("with none in use", maxIdle)
}

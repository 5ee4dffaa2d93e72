package upstream

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
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

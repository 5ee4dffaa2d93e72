package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// counting counts the writes to a connection.
type counting struct {
	net.Conn
	writes *atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// countWrites has what u writes to its connections counted.
func countWrites(u *Upstream) *atomic.Int64 {
	writes := new(atomic.Int64)
	u.connect = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		c, err := dialOne(ctx, to)
		if err != nil {
			return nil, err
		}
		return &counting{c, writes}, nil
	}
	return writes
}

// TestLastFlightGoesWithTheRequest: of TLS 1.3, where it may. Over TLS 1.2 the
// server answers it, and HTTP/2 writes by itself.
func TestLastFlightGoesWithTheRequest(t *testing.T) {
	for _, tc := range []struct {
		name    string
		version uint16
		change  func(*http.Request)
		least   int64
		most    int64
	}{
		{"TLS 1.3", tls.VersionTLS13, nil, 2, 2},
		{"TLS 1.2", tls.VersionTLS12, nil, 3, 3},
		{"HTTP/2", tls.VersionTLS13, speaksHTTP2, 3, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOrigin(t, true, func(w http.ResponseWriter, _ *http.Request) {})
			o.TLS.MaxVersion = tc.version
			u := newUpstream(t, Options{Roots: o.roots})
			writes := countWrites(u)
			mustSend(t, u, o.target(), "https", "GET", nil, tc.change)
			if n := writes.Load(); n < tc.least || n > tc.most {
				t.Errorf("%d writes, want %d to %d", n, tc.least, tc.most)
			}
		})
	}
}

// TestLastFlightWithoutARequest: a connection that nothing is sent on, because
// another was there first or as it is closed, has a whole handshake.
func TestLastFlightWithoutARequest(t *testing.T) {
	root := newAuthority(t)
	for name, use := range map[string]func(net.Conn){"kept": func(net.Conn) {}, "closed": func(c net.Conn) { c.Close() }} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			shaken := make(chan error, 1)
			go func() {
				nc, err := ln.Accept()
				if err != nil {
					shaken <- err
					return
				}
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
				shaken <- tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{root.issue(t, nil)}, NextProtos: []string{protoHTTP1}}).Handshake()
			}()
			roots := x509.NewCertPool()
			roots.AddCert(root.cert)
			u := newUpstream(t, Options{Roots: roots})
			_, port, err := net.SplitHostPort(ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			to := Target{Sandbox: "s1", Host: "good.test", Port: netip.MustParseAddrPort(ln.Addr().String()).Port(), Addresses: loopback()}
			r, err := u.Route(t.Context(), to, nil)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := u.Transport("s1").transport(to, onlyHTTP1)
			if err != nil {
				t.Fatal(err)
			}
			c, err := tr.DialTLSContext(WithAttempt(t.Context(), &Attempt{Route: r}), "tcp", net.JoinHostPort(to.Host, port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			use(c)
			if err := <-shaken; err != nil {
				t.Errorf("the server's handshake: %v", err)
			}
		})
	}
}

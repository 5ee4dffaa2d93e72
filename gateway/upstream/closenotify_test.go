package upstream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// joined writes at once what is written to it between hold and send.
type joined struct {
	net.Conn
	held bool
	b    bytes.Buffer
}

func (j *joined) Write(b []byte) (int, error) {
	if j.held {
		return j.b.Write(b)
	}
	return j.Conn.Write(b)
}

// closingOrigin answers one request with records that arrive together with the
// close_notify behind them.
func closingOrigin(t *testing.T, version uint16, answers ...string) (Target, *x509.CertPool) {
	t.Helper()
	root := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	config := &tls.Config{Certificates: []tls.Certificate{root.issue(t, nil)}, MaxVersion: version, NextProtos: []string{protoHTTP1}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		ln.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		j := &joined{Conn: nc}
		c := tls.Server(j, config)
		if _, err := c.Read(make([]byte, 4096)); err != nil {
			t.Error(err)
			return
		}
		j.held = true
		for _, a := range answers {
			_, _ = io.WriteString(c, a)
		}
		_ = c.CloseWrite() // after which nothing can be written, it sets a deadline
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = nc.Write(j.b.Bytes())
		_, _ = io.Copy(io.Discard, nc) // until the client has read all
	}()
	return Target{Sandbox: "s1", Host: "good.test", Port: netip.MustParseAddrPort(ln.Addr().String()).Port(), Addresses: loopback()}, roots
}

// TestBodyBeforeCloseNotify: of TLS 1.2, crypto/tls tells of a close_notify with
// the bytes before it. What is kept of them behind a head is not lost.
func TestBodyBeforeCloseNotify(t *testing.T) {
	for name, answers := range map[string][]string{
		"length":      {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"},
		"until close": {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"},
		"HTTP/1.0":    {"HTTP/1.0 200 OK\r\n\r\nhello"},
		"chunked":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"},
		"two records": {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", "hello"},
		"hints":       {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(name+" "+tls.VersionName(version), func(t *testing.T) {
				to, roots := closingOrigin(t, version, answers...)
				resp, _, err := send(t, newUpstream(t, Options{Roots: roots}), to, "https", "GET", nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				if string(b) != "hello" || err != nil {
					t.Errorf("%q, %v", b, err)
				}
				resp.Body.Close()
			})
		}
	}
}

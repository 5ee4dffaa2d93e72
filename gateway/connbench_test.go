package gateway

import (
	"bytes"
	"crypto/tls"
	"testing"
)

// BenchmarkConnection is a new connection with one request on it, and what its
// client and the origin take.
func BenchmarkConnection(b *testing.B) {
	l := newLab(b)
	port := l.secured(b, answerEach)
	l.allow("api.test", port)
	l.load()
	config := &tls.Config{ServerName: "api.test", RootCAs: l.roots, NextProtos: []string{"http/1.1"}, CurvePreferences: []tls.CurveID{tls.X25519}}
	ask := []byte("GET /small HTTP/1.1\r\nHost: api.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	in := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		c := tls.Client(l.raw(b, "api.test", port), config)
		if _, err := c.Write(ask); err != nil {
			b.Fatal(err)
		}
		for got := 0; !bytes.HasSuffix(in[:got], []byte("\r\n\r\nok")); {
			k, err := c.Read(in[got:])
			if err != nil {
				b.Fatalf("%v after %q", err, in[:got])
			}
			got += k
		}
		_ = c.Close() // the gateway may have gone
	}
}

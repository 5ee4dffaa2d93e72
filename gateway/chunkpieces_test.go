package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// pieceSizes are of what comes of a chunk before its sender pauses, in bytes.
func pieceSizes() []int { return []int{1, 5, 4000, 16 << 10, 1, 20000, 70000, 3, 150000} }

// way is how a chunk goes through the gateway.
type way struct{ secure, h2, masked bool }

func ways() map[string]way {
	return map[string]way{
		"plain":                {},
		"TLS":                  {secure: true},
		"TLS, looked through":  {secure: true, masked: true},
		"HTTP/2 from a client": {secure: true, h2: true},
	}
}

// open returns where f serves connections of which it gets each behind the
// head of a request, and the client's address for it.
func (w way) open(t *testing.T, l *lab, f func(net.Conn)) (url string) {
	scheme, host, port := "http", "plain.test", uint16(0)
	if w.secure {
		scheme, host = "https", "other.test"
		if w.masked {
			host = "api.test" // to which a secret belongs
		}
		port = l.scriptTLS(t, f)
	} else {
		port = l.script(t, f)
	}
	l.allow(host, port)
	l.load()
	return fmt.Sprintf("%s://%s:%d/", scheme, host, port)
}

// TestChunkInPieces: what has come of a chunk of an answer passes, however long
// the origin pauses inside the chunk.
func TestChunkInPieces(t *testing.T) {
	for name, w := range ways() {
		t.Run(name, func(t *testing.T) {
			l, took := newLab(t), make(chan struct{})
			url := w.open(t, l, func(c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
				for range 2 { // chunks, the last of which is followed by trailers
					all := 0
					for _, n := range pieceSizes() {
						all += n
					}
					_, _ = fmt.Fprintf(c, "%X;name=value\r\n", all)
					for _, n := range pieceSizes() {
						_, _ = io.WriteString(c, strings.Repeat("~", n))
						select {
						case <-took:
						case <-time.After(pieceWait):
							return
						}
					}
					_, _ = io.WriteString(c, "\r\n")
				}
				_, _ = io.WriteString(c, "0\r\nX-End: here\r\n\r\n")
			})
			r, err := l.client(t, w.h2).Get(url)
			must(t, err)
			defer r.Body.Close()
			for range 2 {
				for i, n := range pieceSizes() {
					b := make([]byte, n)
					_, err := io.ReadFull(r.Body, b)
					if err != nil || string(b) != strings.Repeat("~", n) {
						t.Fatalf("piece %d of %d bytes: %v", i, n, err)
					}
					took <- struct{}{}
				}
			}
			if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 0 || r.Trailer.Get("X-End") != "here" {
				t.Errorf("%q, %v, trailers %v", rest, err, r.Trailer)
			}
		})
	}
}

// TestUploadedChunkInPieces: the same of a request.
func TestUploadedChunkInPieces(t *testing.T) {
	for name, w := range ways() {
		if w.h2 {
			continue // it has no chunks
		}
		t.Run(name, func(t *testing.T) {
			l, got := newLab(t), make(chan int, 1000)
			url := w.open(t, l, func(c net.Conn) {
				for b := make([]byte, 64<<10); ; {
					n, err := c.Read(b)
					if k := strings.Count(string(b[:n]), "~"); k > 0 {
						got <- k
					}
					if err != nil {
						return
					}
				}
			})
			u, err := http.NewRequest(http.MethodPost, url, nil)
			must(t, err)
			host, port := u.URL.Hostname(), uint16(0)
			_, err = fmt.Sscan(u.URL.Port(), &port)
			must(t, err)
			c := l.raw(t, host, port)
			if w.secure {
				c = l.rawTLS(t, host, port, "http/1.1")
			}
			_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n", u.URL.Host)
			must(t, err)
			for range 2 {
				all := 0
				for _, n := range pieceSizes() {
					all += n
				}
				_, err = fmt.Fprintf(c, "%X;name=value\r\n", all)
				must(t, err)
				for i, n := range pieceSizes() {
					_, err = io.WriteString(c, strings.Repeat("~", n))
					must(t, err)
					for left := n; left > 0; {
						select {
						case k := <-got:
							left -= k
						case <-time.After(pieceWait):
							t.Fatalf("of piece %d of %d bytes %d do not come", i, n, left)
						}
					}
				}
				_, err = io.WriteString(c, "\r\n")
				must(t, err)
			}
		})
	}
}

// scriptTLS is script inside TLS, of HTTP/1.1.
func (l *lab) scriptTLS(t *testing.T, f func(net.Conn)) uint16 {
	t.Helper()
	return scripted(tls.NewListener(listen(t), &tls.Config{NextProtos: []string{"http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }}), f)
}

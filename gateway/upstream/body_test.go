package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func TestBodyIsReadAgain(t *testing.T) {
	text := strings.Repeat("0123456789", 1000)
	for _, read := range []int{0, 1, 5000, len(text)} {
		b := &body{src: io.NopCloser(iotest.OneByteReader(strings.NewReader(text)))}
		first, _ := b.attempt()
		if _, err := io.ReadFull(first, make([]byte, read)); err != nil {
			t.Fatal(err)
		}
		second, err := b.attempt()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(second)
		if err != nil || string(got) != text {
			t.Errorf("after %d bytes: read %d, %v", read, len(got), err)
		}
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errSuperseded) {
			t.Errorf("the first attempt reads on: %v", err)
		}
	}
}

func TestBodyIsNotRememberedForEver(t *testing.T) {
	b := &body{src: io.NopCloser(io.LimitReader(endless{}, 3*maxReplay))}
	a, _ := b.attempt()
	n, err := io.Copy(io.Discard, a)
	if n != 3*maxReplay || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if b.buf != nil {
		t.Errorf("%d bytes are kept", len(b.buf))
	}
	if _, err := b.attempt(); err == nil {
		t.Error("a body that was not remembered is read again")
	}
}

func TestBodySealed(t *testing.T) {
	text := strings.Repeat("x", 1000)
	b := &body{src: io.NopCloser(strings.NewReader(text))}
	first, _ := b.attempt()
	io.ReadFull(first, make([]byte, 600))
	second, _ := b.attempt()
	io.ReadFull(second, make([]byte, 100))
	b.seal()
	rest, err := io.ReadAll(second)
	if len(rest) != 900 || err != nil || b.buf != nil {
		t.Errorf("%d bytes, %v, %d kept", len(rest), err, len(b.buf))
	}
}

func TestBodyReaderThatWaitsHandsOver(t *testing.T) {
	pr, pw := io.Pipe()
	b := &body{src: pr}
	first, _ := b.attempt()
	done := make(chan error, 1)
	go func() { _, err := first.Read(make([]byte, 10)); done <- err }()
	second, _ := b.attempt()
	go func() {
		pw.Write([]byte("hello"))
		pw.Close()
	}()
	// Whichever of the two is given the bytes, the second has them all.
	if got, err := io.ReadAll(second); string(got) != "hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-done; !errors.Is(err, errSuperseded) {
		t.Error(err)
	}
}

func TestBodyErrorIsTheSandboxs(t *testing.T) {
	b := &body{src: io.NopCloser(iotest.ErrReader(errors.New("gone")))}
	a, _ := b.attempt()
	_, err := a.Read(make([]byte, 1))
	if class, detail := ErrorClass(err); class != "reset" || detail != "the request's body ended early" {
		t.Errorf("%s: %s", class, detail)
	}
}

func TestBodyIsClosedOnce(t *testing.T) {
	var closed atomic.Int64
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	u := newUpstream(t, Options{Roots: o.roots})
	src := func() io.Reader { return &closer{strings.NewReader("data"), &closed} }
	mustSend(t, u, o.target(), "https", "POST", src(), nil)
	if closed.Load() != 1 {
		t.Errorf("closed %d times after a response", closed.Load())
	}
	bad := o.target()
	bad.Host = "127.0.0.1" // not on the certificate
	if _, _, err := send(t, u, bad, "https", "POST", src(), nil); err == nil {
		t.Error("sent")
	}
	if closed.Load() != 2 {
		t.Errorf("closed %d times after an error", closed.Load())
	}
}

type closer struct {
	io.Reader
	closed *atomic.Int64
}

func (c *closer) Close() error { c.closed.Add(1); return nil }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// staleOrigin answers one request on each connection and keeps it open; what
// it does when a second request comes is second's business. It speaks
// HTTP/1.1 over TLS.
func staleOrigin(t *testing.T, bodies chan<- string, second func(c net.Conn)) *origin {
	t.Helper()
	ca := newAuthority(t)
	o := newOrigin(t, true, nil)
	o.roots.AddCert(ca.cert)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}})
	if err != nil {
		t.Fatal(err)
	}
	o.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	done := make(chan struct{})
	t.Cleanup(func() { ln.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if b, err := readRequest(c); err == nil {
				bodies <- b
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				second(c)
			}
			c.Close()
		}
	}()
	return o
}

func readRequest(c net.Conn) (string, error) {
	buf := make([]byte, 64<<10)
	n, err := c.Read(buf)
	head, rest, _ := bytes.Cut(buf[:n], []byte("\r\n\r\n"))
	if bytes.Contains(head, []byte("Content-Length: 4")) && len(rest) == 0 {
		n, err = c.Read(buf)
		rest = buf[:n]
	}
	return string(rest), err
}

// dying is a connection that takes no byte any more once it is dead, and does
// not tell before it is written to.
type dying struct {
	net.Conn
	dead atomic.Bool
}

// Write implements net.Conn.
func (d *dying) Write(b []byte) (int, error) {
	if d.dead.CompareAndSwap(true, false) { // but the last alert of TLS
		return 0, syscall.EPIPE
	}
	return d.Conn.Write(b)
}

// TestConnectionThatDiedIdle sends a body over a pooled connection that is
// found dead: nothing can have arrived, so it goes over another one.
func TestConnectionThatDiedIdle(t *testing.T) {
	for _, tc := range []struct {
		scheme string
		size   int
	}{{"http", 4}, {"http", maxReplay / 2}, {"https", 4}} {
		bodies := make(chan string, 8)
		o := newOrigin(t, tc.scheme == "https", func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			bodies <- string(b)
		})
		u := newUpstream(t, Options{Roots: o.roots})
		var first *dying
		u.connect = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			c, err := dialOne(ctx, to)
			if err == nil && first == nil {
				first = &dying{Conn: c}
				return first, nil
			}
			return c, err
		}
		text := strings.Repeat("d", tc.size)
		mustSend(t, u, o.target(), tc.scheme, "POST", strings.NewReader(text), nil)
		<-bodies
		first.dead.Store(true)
		_, info, _ := mustSend(t, u, o.target(), tc.scheme, "POST", strings.NewReader(text), nil)
		if got := <-bodies; got != text || info.Reused {
			t.Errorf("the origin received %d bytes, %+v", len(got), info)
		}
		if len(bodies) != 0 {
			t.Error("a body was sent twice")
		}
	}
}

// TestBodyIsNeverSentTwice lets the origin read a request and hang up: whether
// it was acted on is not known, so it is not repeated, whatever the method
// and whatever header says that it could be.
func TestBodyIsNeverSentTwice(t *testing.T) {
	for _, tc := range []struct{ method, header string }{
		{"POST", ""}, {"PUT", ""}, {"GET", ""}, {"POST", "Idempotency-Key"}, {"POST", "X-Idempotency-Key"},
	} {
		t.Run(tc.method+tc.header, func(t *testing.T) {
			bodies := make(chan string, 8)
			o := staleOrigin(t, bodies, func(c net.Conn) {
				b, _ := readRequest(c)
				bodies <- b
			})
			u := newUpstream(t, Options{Roots: o.roots})
			change := func(r *http.Request) {
				r.ContentLength = 4
				if tc.header != "" {
					r.Header.Set(tc.header, "1")
				}
			}
			mustSend(t, u, o.target(), "https", tc.method, strings.NewReader("data"), change)
			<-bodies
			_, info, err := send(t, u, o.target(), "https", tc.method, strings.NewReader("data"), change)
			if class, _ := ErrorClass(err); class != "reset" {
				t.Errorf("%s: %v", class, err)
			}
			if got := <-bodies; got != "data" || !info.Reused {
				t.Errorf("the origin received %q, %+v", got, info)
			}
			if len(bodies) != 0 {
				t.Error("the body was sent twice")
			}
		})
	}
}

// TestGoAwayIsTriedAgain closes an HTTP/2 origin's connections gracefully
// between requests with bodies: every one is answered, none arrives twice.
func TestGoAwayIsTriedAgain(t *testing.T) {
	var arrived atomic.Int64
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err == nil && string(b) == "data" {
			arrived.Add(1)
		}
		w.Header().Set("Connection", "close") // GOAWAY in HTTP/2
	})
	u := newUpstream(t, Options{Roots: o.roots})
	const n = 50
	for range n {
		mustSend(t, u, o.target(), "https", "POST", strings.NewReader("data"), nil)
	}
	if arrived.Load() != n {
		t.Errorf("%d bodies arrived of %d", arrived.Load(), n)
	}
}

func TestUploadStreams(t *testing.T) {
	const size = 8 << 20
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	u := newUpstream(t, Options{Roots: o.roots})
	if _, _, got := mustSend(t, u, o.target(), "https", "PUT", io.LimitReader(endless{}, size), nil); got != fmt.Sprint(size) {
		t.Errorf("%s bytes arrived", got)
	}
}

// TestBothWaysAtOnce has the origin answer while the body is still being sent.
func TestBothWaysAtOnce(t *testing.T) {
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		io.Copy(flushing{w}, r.Body)
	})
	u := newUpstream(t, Options{Roots: o.roots})
	pr, pw := io.Pipe()
	resp, _, err := send(t, u, o.target(), "https", "POST", pr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, word := range []string{"one", "two", "six"} {
		io.WriteString(pw, word)
		got := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
	}
	pw.Close()
}

type flushing struct{ w http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	http.NewResponseController(f.w).Flush()
	return n, err
}

func TestRequestThatIsGivenUp(t *testing.T) {
	arrived := make(chan struct{})
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	u := newUpstream(t, Options{Roots: o.roots})
	_, _, err := send(t, u, o.target(), "https", "GET", nil, func(r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		*r = *r.WithContext(ctx)
		go func() { <-arrived; cancel() }()
	})
	if class, detail := ErrorClass(err); class != "reset" || !errors.Is(err, context.Canceled) {
		t.Errorf("%s: %s (%v)", class, detail, err)
	}
}

// TestH108EarlyAnswerArrives: an upstream that answers early and closes has
// its answer told, not the reset of what was still sent.
func TestH108EarlyAnswerArrives(t *testing.T) {
	o := newOrigin(t, false, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 10<<10)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 8\r\n\r\ntoo much")
		time.Sleep(20 * time.Millisecond) // so that it is read before the reset
		_ = c.Close()
	})
	u := newUpstream(t, Options{Roots: o.roots})
	for range 20 {
		resp, _, err := send(t, u, o.target(), "http", "POST", io.LimitReader(endless{}, 30<<20), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge || err != nil || string(b) != "too much" {
			t.Fatalf("%d %q %v", resp.StatusCode, b, err)
		}
	}
}

// TestH123RefusedRequestIsGivenUp: a request that the upstream does not
// like is sent once.
func TestH123RefusedRequestIsGivenUp(t *testing.T) {
	o := newOrigin(t, true, func(http.ResponseWriter, *http.Request) {})
	u := newUpstream(t, Options{Roots: o.roots})
	start := time.Now()
	_, _, err := send(t, u, o.target(), "https", "GET", nil, func(r *http.Request) {
		speaksHTTP2(r)
		r.URL.Opaque = "/x%zz"
	})
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class != "protocol" || time.Since(start) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	mustSend(t, u, o.target(), "https", "GET", nil, nil)
}

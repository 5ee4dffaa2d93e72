//go:build linux

package lab

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// Answer is what a client got.
type Answer struct {
	Status  int
	Proto   string
	Header  http.Header
	Trailer http.Header
	Body    string
}

// Reason is why the gateway refused, "" for an answer of an origin.
func (a Answer) Reason() string { return a.Header.Get("X-Sallyport-Reason") }

func answerOf(resp *http.Response) (Answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Proto: resp.Proto, Header: resp.Header, Trailer: resp.Trailer, Body: string(body)}, err
}

// NewRequest makes a request with header lines of "Name: value".
func NewRequest(t testing.TB, method, url, body string, lines ...string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	return req
}

// Do sends a request and reads the whole answer.
func Do(t testing.TB, c *http.Client, req *http.Request) Answer {
	t.Helper()
	a, err := Try(c, req)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Try is Do for what may fail.
func Try(c *http.Client, req *http.Request) (Answer, error) {
	resp, err := c.Do(req)
	if err != nil {
		return Answer{}, err
	}
	return answerOf(resp)
}

// Get sends a GET over HTTP/1.1 and reads the whole answer.
func (s *Sandbox) Get(t testing.TB, url string, lines ...string) Answer {
	t.Helper()
	return Do(t, s.Client(t, false), NewRequest(t, http.MethodGet, url, "", lines...))
}

// Wire is a connection from inside on which bytes are written by hand.
type Wire struct {
	net.Conn
	r *bufio.Reader
}

// answerTime bounds the wait for one answer.
const answerTime = 15 * time.Second

func newWire(t testing.TB, c net.Conn) *Wire {
	t.Cleanup(func() { _ = c.Close() })
	return &Wire{c, bufio.NewReader(c)}
}

// Plain dials without TLS.
func (s *Sandbox) Plain(t testing.TB, address string) *Wire {
	t.Helper()
	c, err := s.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return newWire(t, c)
}

// Secure dials with TLS, offering the protocols by ALPN.
func (s *Sandbox) Secure(t testing.TB, address string, protocols ...string) *Wire {
	t.Helper()
	c, err := s.TLS(address, &tls.Config{NextProtos: protocols})
	if err != nil {
		t.Fatal(err)
	}
	return newWire(t, c)
}

// Send writes bytes.
func (w *Wire) Send(t testing.TB, text string) {
	t.Helper()
	_ = w.SetWriteDeadline(time.Now().Add(answerTime))
	if _, err := io.WriteString(w.Conn, text); err != nil {
		t.Fatal(err)
	}
}

// Answer reads one answer to a request of method.
func (w *Wire) Answer(t testing.TB, method string) Answer {
	t.Helper()
	a, err := w.TryAnswer(method)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TryAnswer is Answer for what may fail.
func (w *Wire) TryAnswer(method string) (Answer, error) {
	_ = w.SetReadDeadline(time.Now().Add(answerTime))
	resp, err := http.ReadResponse(w.r, &http.Request{Method: method})
	if err != nil {
		return Answer{}, err
	}
	return answerOf(resp)
}

// Rest reads until the other side ends, which must be within wait. A reset
// ends too.
func (w *Wire) Rest(t testing.TB, wait time.Duration) string {
	t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(wait))
	b, err := io.ReadAll(w.r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is still open after %v; %q came", wait, b)
	}
	return string(b)
}

// OnConn writes by hand on a connection that is open.
func OnConn(t testing.TB, c net.Conn) *Wire { return newWire(t, c) }

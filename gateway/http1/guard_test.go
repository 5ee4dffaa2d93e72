package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// scripted is a connection that plays bytes.
type scripted struct {
	net.Conn
	r io.Reader
}

func (s *scripted) Read(p []byte) (int, error)      { return s.r.Read(p) }
func (s *scripted) SetReadDeadline(time.Time) error { return nil }

func guard(r io.Reader) *Guard { return NewGuard(&scripted{r: r}, Limits{}) }

// seen is one request as net/http's server would see it behind the guard.
type seen struct {
	Head
	Body string
	Err  string // how reading the body ended, "" for its end
}

// requests reads all requests that a guard delivers, in the way of net/http's
// server. It returns how reading ended, too.
func requests(g *Guard) ([]seen, error) {
	var out []seen
	br := bufio.NewReader(g)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return out, err
		}
		h, ok := g.Next()
		if !ok {
			return out, errors.New("a request without a head")
		}
		s := seen{Head: h}
		b, err := io.ReadAll(r.Body)
		s.Body = string(b)
		if err != nil {
			s.Err = err.Error()
		}
		out = append(out, s)
		if h.Violation != nil || h.Upgrade || err != nil {
			return out, err
		}
	}
}

// TestHeads: what passes, with what was seen of it.
func TestHeads(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     Head
	}{
		{"plain", "GET /a?b=c HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "GET", Target: "/a?b=c"}},
		{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", Head{Method: "GET", Target: "/"}},
		{"an empty line before", "\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "GET", Target: "/"}},
		{"absolute", "GET HTTP://A.test:80/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "GET", Target: "/x?y", Scheme: "http", Authority: "A.test:80"}},
		{"absolute without a path", "GET http://a.test?y HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "GET", Target: "/?y", Scheme: "http", Authority: "a.test"}},
		{"H1-25 CONNECT", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "CONNECT", Target: "/", Authority: "a.test:443"}},
		{"OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "OPTIONS", Target: "*"}},
		{"H1-23 stray percent", "GET /x%zz%2f%?%zz HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "GET", Target: "/x%zz%2f%?%zz"}},
		{"H1-19 underscore", "GET / HTTP/1.1\r\nHost: a.test\r\nX_Api_Key: k\r\n\r\n", Head{Method: "GET", Target: "/"}},
		{"lower-case method", "get / HTTP/1.1\r\nHost: a.test\r\n\r\n", Head{Method: "get", Target: "/"}},
		{"bytes over ASCII in a value", "GET / HTTP/1.1\r\nHost: a.test\r\nX: \xff\xc3\xa9\r\n\r\n", Head{Method: "GET", Target: "/"}},
		{"upgrade", "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n", Head{Method: "GET", Target: "/ws", Upgrade: true}},
		{"upgrade of another kind", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n", Head{Method: "GET", Target: "/"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := requests(guard(strings.NewReader(tt.in)))
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			if len(got) != 1 || got[0].Head != tt.want {
				t.Fatalf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestRefused: what does not pass. The request that is delivered in its place
// carries the violation, and nothing of what came behind it is read.
func TestRefused(t *testing.T) {
	type kind int
	const (
		framing kind = iota
		host
		large
		malformed
	)
	with := func(fields string) string { return "POST / HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n" }
	for _, tt := range []struct {
		name, in string
		kind     kind
	}{
		{"H1-01 both lengths", with("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"), framing},
		{"H1-01 both lengths, the other way", with("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), framing},
		{"H1-02 space before the colon", with("Transfer-Encoding : chunked\r\n"), framing},
		{"H1-02 another coding", with("Transfer-Encoding: xchunked\r\n"), framing},
		{"H1-02 two codings", with("Transfer-Encoding: chunked, identity\r\n"), framing},
		{"H1-02 gzip and chunked", with("Transfer-Encoding: gzip, chunked\r\n"), framing},
		{"H1-02 tab", with("Transfer-Encoding:\tchunked\r\n"), framing},
		{"H1-02 empty", with("Transfer-Encoding:\r\n"), framing},
		{"H1-02 twice", with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), framing},
		{"H1-02 HTTP/1.0", "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", framing},
		{"H1-02 folded line", with("X: 1\r\n Transfer-Encoding: chunked\r\n"), framing},
		{"folded first line", "POST / HTTP/1.1\r\n Host: a.test\r\n\r\n", framing},
		{"H1-04 two lengths", with("Content-Length: 4\r\nContent-Length: 5\r\n"), framing},
		{"H1-04 the same length twice", with("Content-Length: 4\r\nContent-Length: 4\r\n"), framing},
		{"H1-04 list", with("Content-Length: 4, 4\r\n"), framing},
		{"H1-04 sign", with("Content-Length: +4\r\n"), framing},
		{"H1-04 minus", with("Content-Length: -4\r\n"), framing},
		{"H1-04 space", with("Content-Length: 4 4\r\n"), framing},
		{"H1-04 leading zero", with("Content-Length:  04\r\n"), framing},
		{"H1-04 hex", with("Content-Length: 0x4\r\n"), framing},
		{"H1-04 empty", with("Content-Length:\r\n"), framing},
		{"H1-04 over 63 bits", with("Content-Length: 9223372036854775808\r\n"), framing},
		{"H1-04 two hosts", with("Host: b.test\r\n"), host},
		{"H1-04 no host", "GET / HTTP/1.1\r\n\r\n", host},
		{"host with a path", "GET / HTTP/1.1\r\nHost: a.test/x\r\n\r\n", host},
		{"host with userinfo", "GET / HTTP/1.1\r\nHost: u@a.test\r\n\r\n", host},
		{"H1-19 bare CR", with("X-A: 1\rX-B: 2\r\n"), framing},
		{"bare LF", "GET / HTTP/1.1\nHost: a.test\n\n", framing},
		{"bare LF between lines", with("X: 1\nY: 2\r\n"), framing},
		{"H1-19 NUL", with("X: a\x00b\r\n"), framing},
		{"DEL", with("X: a\x7fb\r\n"), framing},
		{"H1-19 space in a name", with("X A: 1\r\n"), framing},
		{"H1-19 empty name", with(": 1\r\n"), framing},
		{"H1-19 name over ASCII", with("X\xc3\xa9: 1\r\n"), framing},
		{"no colon", with("nothing\r\n"), framing},
		{"H1-18 long", with("X: " + strings.Repeat("a", DefaultMaxHead) + "\r\n"), large},
		{"H1-18 long and without an end", "GET /" + strings.Repeat("a", 2*DefaultMaxHead), large},
		{"H1-18 target that grows", "GET /" + strings.Repeat("%", DefaultMaxHead/2) + " HTTP/1.1\r\nHost: a.test\r\n\r\n", large},
		{"H1-18 fields", with(strings.Repeat("a: b\r\n", DefaultMaxFields)), large},
		{"other expectation", with("Expect: 200-ok\r\n"), malformed},
		{"framing in Trailer", with("Transfer-Encoding: chunked\r\nTrailer: X, Content-Length\r\n"), framing},
		{"no version", "GET /\r\nHost: a.test\r\n\r\n", framing},
		{"HTTP/0.9", "GET / HTTP/0.9\r\nHost: a.test\r\n\r\n", framing},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", framing},
		{"HTTP/1.10", "GET / HTTP/1.10\r\nHost: a.test\r\n\r\n", framing},
		{"two spaces", "GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n", framing},
		{"tab", "GET\t/ HTTP/1.1\r\nHost: a.test\r\n\r\n", framing},
		{"space in the target", "GET /a b HTTP/1.1\r\nHost: a.test\r\n\r\n", framing},
		{"fragment", "GET /a#b HTTP/1.1\r\nHost: a.test\r\n\r\n", framing},
		{"neither path nor URL", "GET a HTTP/1.1\r\nHost: a.test\r\n\r\n", framing},
		{"no authority", "GET http:///x HTTP/1.1\r\nHost: a.test\r\n\r\n", host},
		{"asterisk", "GET * HTTP/1.1\r\nHost: a.test\r\n\r\n", framing},
		{"two empty lines before", "\r\n\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", framing},
		{"handshake with a body", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx", framing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := requests(guard(strings.NewReader(tt.in + "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n")))
			if err != nil || len(got) != 1 || got[0].Violation == nil {
				t.Fatalf("%+v, %v", got, err)
			}
			v := got[0].Violation
			if v.Host != (tt.kind == host) || v.TooLarge != (tt.kind == large) || v.Malformed != (tt.kind == malformed) || v.Detail == "" {
				t.Fatalf("%+v", *v)
			}
		})
	}
}

// TestBodies: where a body ends, and what breaks it.
func TestBodies(t *testing.T) {
	const next = "GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n"
	chunks := func(s string) string {
		return "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n" + s
	}
	for _, tt := range []struct {
		name, in string
		body     string
		whole    bool
	}{
		{"length", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc", "abc", true},
		{"no length", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", "", true},
		{"chunks", chunks("3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"), "abcde", true},
		{"large and small hex", chunks("A\r\n0123456789\r\na;q\r\n0123456789\r\n0\r\n\r\n"), "01234567890123456789", true},
		{"trailers", chunks("1\r\na\r\n0\r\nX-T: v\r\n\r\n"), "a", true},
		{"no chunk", chunks("0\r\n\r\n"), "", true},
		{"chunk longer than its size", chunks("1\r\nab\r\n0\r\n\r\n"), "a", false},
		{"space after the size", chunks("1 ;x\r\na\r\n0\r\n\r\n"), "", false},
		{"size with a sign", chunks("+1\r\na\r\n0\r\n\r\n"), "", false},
		{"size with 0x", chunks("0x1\r\na\r\n0\r\n\r\n"), "", false},
		{"empty size", chunks("\r\na\r\n0\r\n\r\n"), "", false},
		{"size over 63 bits", chunks("ffffffffffffffff\r\na\r\n0\r\n\r\n"), "", false},
		{"size before a bare LF", chunks("1\na\r\n0\r\n\r\n"), "", false},
		{"extension with a bare LF", chunks("1;x\ny\r\na\r\n0\r\n\r\n"), "", false},
		{"long extension", chunks("1;" + strings.Repeat("x", 600) + "\r\na\r\n0\r\n\r\n"), "", false},
		{"framing in the trailers", chunks("1\r\na\r\n0\r\nContent-Length: 5\r\n\r\n"), "a", false},
		{"malformed trailer", chunks("1\r\na\r\n0\r\nX T: 5\r\n\r\n"), "a", false},
		{"endless trailers", chunks("0\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", 600) + "\r\n"), "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := requests(guard(strings.NewReader(tt.in + next)))
			if len(got) == 0 || got[0].Violation != nil || got[0].Body != tt.body && tt.whole || !strings.HasPrefix(tt.body, got[0].Body) {
				t.Fatalf("%+v", got)
			}
			if tt.whole != (got[0].Err == "" && len(got) == 2 && got[1].Target == "/next") {
				t.Fatalf("whole %v, got %+v", tt.whole, got)
			}
		})
	}
}

// TestTruncated: the end of the input inside a head is a violation, inside a
// body an error, and between two requests the end.
func TestTruncated(t *testing.T) {
	whole := "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc"
	body := len(whole) - 3
	for n := range len(whole) {
		g := guard(strings.NewReader(whole[:n]))
		_, err := io.Copy(io.Discard, g)
		h, some := g.Next()
		if n >= body != (err != nil) || n == 0 != g.HalfClosed() || n > 0 != some || (n > 0 && n < body) != (h.Violation != nil) {
			t.Errorf("after %d bytes: %v, half-closed %v, %+v", n, err, g.HalfClosed(), h)
		}
	}
}

// TestLateHead: a head that does not come in time is a violation; nothing at
// all is none.
func TestLateHead(t *testing.T) {
	for first, want := range map[string]int{"": 0, "GET / HT": 1, "GET / HTTP/1.1\r\nHost: a.test\r\n": 1} {
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			g := NewGuard(server, Limits{HeadTimeout: 50 * time.Millisecond})
			_ = server.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // as a server sets it
			go func() { _, _ = io.WriteString(client, first) }()               // it may have ended
			_, _ = io.Copy(io.Discard, g)                                      // ends by its deadline
			h, _ := g.Next()
			if g.Heads() != want || want == 1 && (h.Violation == nil || !strings.Contains(h.Violation.Detail, "in time")) {
				t.Errorf("%q: %d heads, %+v", first, g.Heads(), h)
			}
			_, _ = client.Close(), server.Close()
		})
	}
}

// TestReadCalledBack: a server that ends its own read has not been waited for
// in vain.
func TestReadCalledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		g := NewGuard(server, Limits{})
		go func() { _, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHo") }() // all of it is read
		time.AfterFunc(50*time.Millisecond, func() { _ = g.SetReadDeadline(time.Unix(1, 0)) })
		if n, err := g.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v", n, err)
		}
		_ = g.SetReadDeadline(time.Time{})
		go func() { _, _ = io.WriteString(client, "st: a.test\r\n\r\n") }() // likewise
		if r, err := http.ReadRequest(bufio.NewReader(g)); err != nil || r.Host != "a.test" {
			t.Fatalf("%v, %v", r, err)
		}
	})
}

// TestUpgradeIsOpen: what follows a handshake passes as it is.
func TestUpgradeIsOpen(t *testing.T) {
	after := "\x81\x85\x00\x00\x00\x00hello\n\n\r\nGET / HTTP/1.1\r\n\r\n"
	g := guard(iotest.OneByteReader(strings.NewReader("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + after)))
	br := bufio.NewReader(g)
	_, err := http.ReadRequest(br)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(br)
	if err != nil || string(b) != after {
		t.Fatalf("%q, %v", b, err)
	}
	if g.Heads() != 1 {
		t.Fatalf("%d heads", g.Heads())
	}
}

// TestBytewiseCost: a head that comes byte by byte is looked at once, not once
// for each byte.
func TestBytewiseCost(t *testing.T) {
	head := "GET / HTTP/1.1\r\nHost: a.test\r\nX: " + strings.Repeat("a", DefaultMaxHead-100) + "\r\n\r\n"
	began := time.Now()
	for range 4 {
		if got, _ := requests(guard(iotest.OneByteReader(strings.NewReader(head)))); len(got) != 1 || got[0].Violation != nil {
			t.Fatalf("%d requests", len(got))
		}
	}
	if took := time.Since(began); took > 20*time.Second { // looked at each time it would be minutes
		t.Fatalf("took %v", took)
	}
}

// deadlines notes the deadlines that are set on a connection.
type deadlines struct {
	scripted
	set bool
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.set = !t.IsZero(); return nil }

// TestDeadlines: each wait inside a request is bounded, and the wait for the
// next one is left to the server.
func TestDeadlines(t *testing.T) {
	for _, in := range []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
	} {
		c := &deadlines{}
		pos := 0
		c.r = readerFunc(func(p []byte) (int, error) {
			if inside := pos > 0 && pos < len(in); inside != c.set {
				t.Errorf("%q at %d: deadline %v", in[:12], pos, c.set)
			}
			if pos == len(in) {
				return 0, io.EOF
			}
			n := copy(p[:1], in[pos:])
			pos += n
			return n, nil
		})
		if got, err := requests(NewGuard(c, Limits{})); len(got) != 1 || err != io.EOF {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestPeekHost(t *testing.T) {
	for in, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n":     "a.test",
		"GET / HTTP/1.1\r\nX: y\r\nhOsT:\ta\r\n":     "a",
		"GET / HTTP/1.1\r\nHost: a.te":               "",
		"":                                           "",
		"GET / HTTP/1.1\r\n\r\nHost: b.test\r\n\r\n": "",
	} {
		if got := PeekHost([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// pieces delivers b in pieces whose sizes the bytes of cuts give.
type pieces struct{ b, cuts []byte }

func (p *pieces) Read(out []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := len(p.b)
	if len(p.cuts) > 0 {
		n = min(n, 1+int(p.cuts[0]))
		p.cuts = p.cuts[1:]
	}
	n = copy(out, p.b[:n])
	p.b = p.b[n:]
	return n, nil
}

// FuzzGuard: net/http reads from the guard what the guard says that it
// delivered; the way in which the input is cut makes no difference; and
// nothing is held beyond the bounds.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{
		"GET /a?b HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabcGET /x%zz HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\nabcdef",
		"GET http://a.test/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
		"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nrest",
		"\r\nGET / HTTP/1.1\r\nHost: a.test\r\nX: \xff\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(s), []byte{0, 3, 200})
	}
	f.Fuzz(func(t *testing.T, in, cuts []byte) {
		limits := Limits{Head: 4 << 10, Fields: 32}
		read := func(r io.Reader) ([]seen, *Guard) {
			g := NewGuard(&scripted{r: r}, limits)
			got, err := requests(g)
			if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, new(*Violation)) {
				return got, g
			}
			if n := len(got); n > 0 && got[n-1].Err != "" {
				return got, g // net/http is stricter about a body, which ends the connection
			}
			t.Fatalf("net/http refused what the guard delivered: %v", err)
			return nil, nil
		}
		whole, _ := read(bytes.NewReader(in))
		cut, g := read(&pieces{bytes.Clone(in), cuts})
		if len(whole) != len(cut) {
			t.Fatalf("%d requests, cut %d", len(whole), len(cut))
		}
		for i := range whole {
			a, b := whole[i], cut[i]
			va, vb := a.Violation, b.Violation
			a.Violation, b.Violation = nil, nil
			if (va == nil) != (vb == nil) || va != nil && *va != *vb || a != b {
				t.Fatalf("request %d: %+v %+v, cut %+v %+v", i, a, va, b, vb)
			}
			if va == nil && (a.Target != "*" && !strings.HasPrefix(a.Target, "/") || !token(a.Method)) {
				t.Fatalf("request %d: %+v", i, a)
			}
		}
		if c := cap(g.in); c > 4*limits.Head+2*readSize {
			t.Fatalf("%d bytes are held", c)
		}
	})
}

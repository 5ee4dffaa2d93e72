package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

func readResponse(t testing.TB, r io.Reader) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(r), nil)
	must(t, err)
	return resp
}

// recordHeads starts an origin in plain text that answers each request and
// hands out its head as it came.
func recordHeads(t *testing.T) (uint16, <-chan string) {
	t.Helper()
	ln := listen(t)
	heads := make(chan string, 64)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for {
					var head strings.Builder
					for !strings.HasSuffix(head.String(), "\r\n\r\n") {
						line, err := br.ReadString('\n')
						if err != nil {
							return
						}
						head.WriteString(line)
					}
					heads <- head.String()
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	return portOf(ln), heads
}

// TestH123Target: what the sandbox sends as a target is what the origin gets,
// byte for byte (case H1-23).
func TestH123Target(t *testing.T) {
	l := newLab(t)
	port, heads := recordHeads(t)
	l.allow("plain.test", port)
	l.load()
	for _, target := range []string{
		"/@scope%2fname", "/a%2Fb", "/a%20b%C3%A9", "/a//b", "/a/./b", "/a/../b", "/%7Euser", "//a/b", "/",
		"/?", "/x?", "/?a=b&&c", "/?a;b=c&d", "/?q=%zz", "/x?y?z", "/?a=\"<>|", "/x;v=1/y", "/~user/(1)'*", "/x?a=[1]",
	} {
		t.Run(target, func(t *testing.T) {
			c := l.raw(t, "plain.test", port)
			_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n", target)
			must(t, err)
			if r := readResponse(t, c); r.StatusCode != http.StatusOK {
				b, _ := io.ReadAll(r.Body)
				t.Fatalf("%d %s", r.StatusCode, b)
			}
			if line, _, _ := strings.Cut(<-heads, "\r\n"); line != "GET "+target+" HTTP/1.1" {
				t.Fatalf("origin got %q", line)
			}
		})
	}
}

// TestH123OddTarget: what net/url would write in another way is sent on as it
// is, or not at all (case H1-23).
func TestH123OddTarget(t *testing.T) {
	l := newLab(t)
	port, heads := recordHeads(t)
	l.allow("plain.test", port)
	l.load()
	for _, target := range []string{"/x%zz", "/100%", `/a"b`, "/{id}", "/a|b", `/a\b`, "/caf\xe9", "/x%zz?y", "//a%zz", "//{id}", "/a^b"} {
		t.Run(target, func(t *testing.T) {
			c := l.raw(t, "plain.test", port)
			_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n", target)
			must(t, err)
			code := readResponse(t, c).StatusCode
			select {
			case head := <-heads:
				if line, _, _ := strings.Cut(head, "\r\n"); line != "GET "+target+" HTTP/1.1" {
					t.Fatalf("origin got %q", line)
				}
			default:
				if code == http.StatusOK {
					t.Fatal("an answer of nobody")
				}
				if !strings.HasPrefix(target, "//") { // which could be read as an authority
					t.Fatalf("refused with %d", code)
				}
			}
		})
	}
}

// TestH127Head: fields are not added, merged or dropped (case H1-27).
func TestH127Head(t *testing.T) {
	l := newLab(t)
	port, heads := recordHeads(t)
	l.allow("plain.test", port)
	l.load()
	c := l.raw(t, "plain.test", port)
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: plain.test\r\nCookie: a=1\r\nCookie: b=2\r\nX-Two: 2\r\nX-Two: 1\r\nX_Under: u\r\n"+
		"Connection: X-Hop, keep-alive\r\nX-Hop: h\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nUpgrade: TLS/1.2\r\nTE: trailers, deflate\r\n\r\n")
	must(t, err)
	readResponse(t, c)
	want := "GET / HTTP/1.1\r\nHost: plain.test\r\nCookie: a=1\r\nCookie: b=2\r\nTe: trailers\r\nX-Two: 2\r\nX-Two: 1\r\nX_under: u\r\n\r\n"
	if got := <-heads; got != want {
		t.Fatalf("origin got\n%q, want\n%q", got, want)
	}
}

// TestRefusedHeads sends heads that must not pass, in plain text and in TLS,
// and looks at the answer, the record and the origin.
func TestRefusedHeads(t *testing.T) {
	l := newLab(t)
	o, plain := l.origin(t, "http/1.1"), l.origin(t)
	l.allow("api.test", o.port)
	l.allow("plain.test", plain.port)
	l.load()
	for _, tt := range []struct {
		name, request string
		reason        policy.Reason
		status        int
	}{
		{"H1-01 both lengths", "POST /up HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n", policy.Smuggling, 400},
		{"H1-02 chunked twice", "POST /up HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", policy.Smuggling, 400},
		{"H1-02 space before colon", "POST /up HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", policy.Smuggling, 400},
		{"H1-04 two lengths", "POST /up HTTP/1.1\r\nHost: HOST\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", policy.Smuggling, 400},
		{"H1-04 two hosts", "GET /hello HTTP/1.1\r\nHost: HOST\r\nHost: evil.test\r\n\r\n", policy.AuthorityAmbiguous, 400},
		{"H1-04 no host", "GET /hello HTTP/1.1\r\n\r\n", policy.AuthorityAmbiguous, 400},
		{"empty host", "GET /hello HTTP/1.1\r\nHost:\r\n\r\n", policy.AuthorityAmbiguous, 400},
		{"H1-19 bare CR", "GET /hello HTTP/1.1\r\nHost: HOST\r\nX-A: 1\rX-B: 2\r\n\r\n", policy.Smuggling, 400},
		{"bare LF", "GET /hello HTTP/1.1\nHost: HOST\n\n", policy.Smuggling, 400},
		{"H1-19 space in a name", "GET /hello HTTP/1.1\r\nHost: HOST\r\nX A: 1\r\n\r\n", policy.Smuggling, 400},
		{"H1-18 long field", "GET /hello HTTP/1.1\r\nHost: HOST\r\nX: " + strings.Repeat("a", 200<<10) + "\r\n\r\n", policy.HeaderTooLarge, 431},
		{"H1-18 many fields", "GET /hello HTTP/1.1\r\nHost: HOST\r\n" + strings.Repeat("a: b\r\n", 1000) + "\r\n", policy.HeaderTooLarge, 431},
		{"H1-18 target that grows", "GET /" + strings.Repeat("%", 100<<10) + " HTTP/1.1\r\nHost: HOST\r\n\r\n", policy.HeaderTooLarge, 431},
		{"another host", "GET /hello HTTP/1.1\r\nHost: evil.test\r\n\r\n", policy.AuthorityMismatch, 421},
		{"another port", "GET /hello HTTP/1.1\r\nHost: HOST:1\r\n\r\n", policy.AuthorityMismatch, 421},
		{"absolute target of another host", "GET SCHEME://evil.test/hello HTTP/1.1\r\nHost: HOST\r\n\r\n", policy.AuthorityAmbiguous, 400},
		{"absolute target of another scheme", "GET ftp://HOST/hello HTTP/1.1\r\nHost: HOST\r\n\r\n", policy.AuthorityMismatch, 421},
		{"userinfo", "GET SCHEME://u:p@HOST/hello HTTP/1.1\r\nHost: HOST\r\n\r\n", policy.AuthorityAmbiguous, 400},
		{"H1-25 CONNECT", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", policy.ConnectRefused, 405},
		{"TRACE", "TRACE / HTTP/1.1\r\nHost: HOST\r\n\r\n", policy.MethodNotAllowed, 403},
		{"h2c", "GET /hello HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", policy.UpgradeNotAllowed, 403},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", policy.Smuggling, 400},
		{"other expectation", "POST /up HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nExpect: foo\r\n\r\nx", policy.ProtocolError, 400},
		{"framing in Trailer", "POST /up HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n", policy.Smuggling, 400},
	} {
		for _, over := range []string{"plain", "tls"} {
			t.Run(tt.name+" "+over, func(t *testing.T) {
				before := len(l.events(nil))
				var c net.Conn
				host, scheme := "api.test", "https"
				if over == "plain" {
					host, scheme = "plain.test", "http"
					c = l.raw(t, host, plain.port)
				} else {
					c = l.rawTLS(t, host, o.port)
				}
				go func() { // the answer may come before all is written
					_, _ = io.WriteString(c, strings.NewReplacer("HOST", host, "SCHEME", scheme).Replace(tt.request))
				}()
				r := readResponse(t, c)
				if r.StatusCode != tt.status || r.Header.Get("X-Sallyport-Reason") != string(tt.reason) {
					t.Fatalf("%d %s", r.StatusCode, r.Header.Get("X-Sallyport-Reason"))
				}
				var found []*audit.Event
				for _, e := range l.events(nil)[before:] {
					if e.Kind == audit.KindHTTP {
						found = append(found, e)
					}
				}
				if len(found) != 1 || found[0].Reason != string(tt.reason) || found[0].Req != r.Header.Get("X-Sallyport-Request") {
					t.Fatalf("records: %s", reasons(found))
				}
			})
		}
	}
	if n := len(o.saw()) + len(plain.saw()); n != 0 {
		t.Fatalf("origins saw %d requests", n)
	}
}

// TestH106SecondRequest: each request of a connection is judged (case H1-06).
func TestH106SecondRequest(t *testing.T) {
	l := newLab(t)
	o := l.origin(t)
	l.allow("plain.test", o.port)
	l.load()
	c := l.raw(t, "plain.test", o.port)
	_, err := io.WriteString(c, "GET /hello HTTP/1.1\r\nHost: plain.test\r\n\r\nGET /hello HTTP/1.1\r\nHost: evil.test\r\n\r\nGET /hello HTTP/1.1\r\nHost: plain.test\r\n\r\n")
	must(t, err)
	br := bufio.NewReader(c)
	for _, want := range []int{200, 421} {
		r, err := http.ReadResponse(br, nil)
		must(t, err)
		_, _ = io.Copy(io.Discard, r.Body)
		if r.StatusCode != want {
			t.Fatalf("%d, want %d", r.StatusCode, want)
		}
	}
	ended(t, c, 10*time.Second)
	if n := len(o.saw()); n != 1 {
		t.Fatalf("origin saw %d requests", n)
	}
}

// TestH120Slow: a client that says nothing, or little, is not waited for
// without end, whatever it has said before, and what it began is on record
// (case H1-20).
func TestH120Slow(t *testing.T) {
	l := newLab(t, func(d *Deps, _ *upstream.Options) {
		// Long enough for a busy machine to get as far as each is to get.
		d.Limits = Limits{HelloTimeout: 1500 * time.Millisecond, HeadTimeout: 1500 * time.Millisecond, IdleTimeout: 2 * time.Second, StallTimeout: time.Second}
	})
	o, o2, plain := l.origin(t, "http/1.1"), l.origin(t, "h2"), l.origin(t)
	l.allow("api.test", o.port)
	l.allow("api.test", o2.port)
	l.allow("plain.test", plain.port)
	l.load()
	on := func(c *tls.Conn, s string) net.Conn { return say(t, c, s) }
	for _, tt := range []struct {
		name   string
		open   func(t *testing.T) net.Conn
		record string // kind, phase and reason of what must be on record
	}{
		{"nothing", func(t *testing.T) net.Conn { return l.raw(t, "api.test", o.port) }, "conn decision not_tls"},
		{"half a ClientHello", func(t *testing.T) net.Conn { return say(t, l.raw(t, "api.test", o.port), "\x16\x03\x01\x02\x00\x01") }, "conn decision protocol_error"},
		{"a ClientHello and no more", func(t *testing.T) net.Conn {
			return say(t, l.raw(t, "api.test", o.port), clientHello(t, "api.test"))
		}, "tls decision protocol_error"},
		{"nothing after the handshake", func(t *testing.T) net.Conn { return l.rawTLS(t, "api.test", o.port) }, "conn end "},
		{"h2 without a preface", func(t *testing.T) net.Conn { return l.rawTLS(t, "api.test", o.port, "h2") }, "conn end "},
		{"half a preface", func(t *testing.T) net.Conn { return on(l.rawTLS(t, "api.test", o.port, "h2"), "PRI * HT") }, "conn end "},
		{"nothing after the preface", func(t *testing.T) net.Conn {
			return on(l.rawTLS(t, "api.test", o.port, "h2"), http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}, "conn end "},
		{"half a head of h2", func(t *testing.T) net.Conn {
			s, _ := l.framer(t, "api.test", o.port)
			must(t, s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
			return s.Conn
		}, "http decision protocol_error"},
		{"half a head of h2 beside a request", func(t *testing.T) net.Conn {
			s, _ := l.framer(t, "api.test", o2.port)
			s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/hang", ":authority", "api.test")
			must(t, s.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}}))
			return s.Conn
		}, "http decision protocol_error"},
		{"a head of h2 by the byte", func(t *testing.T) net.Conn {
			s, _ := l.framer(t, "api.test", o2.port)
			s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/hang", ":authority", "api.test")
			_, err := io.WriteString(s.Conn, "\x00\x40\x00\x01\x05\x00\x00\x00\x03")
			for end := time.Now().Add(15 * time.Second); err == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				_, err = io.WriteString(s.Conn, "\x82")
			}
			if err == nil {
				t.Error("the head goes on")
			}
			return s.Conn
		}, "http decision protocol_error"},
		{"half a head", func(t *testing.T) net.Conn { return say(t, l.raw(t, "plain.test", plain.port), "GET / HTTP/1.1\r\nHo") }, "http decision protocol_error"},
		{"half a head in TLS", func(t *testing.T) net.Conn { return on(l.rawTLS(t, "api.test", o.port), "GET / HTTP/1.1\r\nHo") }, "http decision protocol_error"},
		{"half a second head", func(t *testing.T) net.Conn {
			c := say(t, l.raw(t, "plain.test", plain.port), "GET /204 HTTP/1.1\r\nHost: plain.test\r\n\r\n")
			readResponse(t, c)
			return say(t, c, "GET / HTTP/1.1\r\nHo")
		}, "http decision protocol_error"},
		{"half a body", func(t *testing.T) net.Conn {
			return say(t, l.raw(t, "plain.test", plain.port), "POST /up HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 10\r\n\r\n"+uploaded)
		}, "http end "},
		{"half a chunk", func(t *testing.T) net.Conn {
			return say(t, l.raw(t, "plain.test", plain.port), "POST /up HTTP/1.1\r\nHost: plain.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"+uploaded)
		}, "http end "},
		{"an answer that is not read", func(t *testing.T) net.Conn {
			c := say(t, l.raw(t, "plain.test", plain.port), "GET /forever HTTP/1.1\r\nHost: plain.test\r\n\r\n")
			l.await(t, "end of what is not read", func(e *audit.Event) bool {
				return e.Phase == audit.PhaseEnd && e.HTTP != nil && e.HTTP.Path == "/forever"
			})
			return c
		}, "http end "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := tt.open(t)
			ended(t, c, 18*time.Second)
			port := c.LocalAddr().(*net.TCPAddr).Port
			l.await(t, tt.record, func(e *audit.Event) bool {
				return e.Src != nil && int(e.Src.Port) == port && fmt.Sprintf("%s %s %s", e.Kind, e.Phase, e.Reason) == tt.record
			})
		})
	}
}

func say(t *testing.T, c net.Conn, s string) net.Conn {
	t.Helper()
	_, err := io.WriteString(c, s)
	must(t, err)
	return c
}

// TestH121HalfClose: a client that has said all and closes its side gets the
// whole answer (case H1-21).
func TestH121HalfClose(t *testing.T) {
	l := newLab(t)
	o, plain := l.origin(t, "http/1.1"), l.origin(t)
	l.allow("api.test", o.port)
	l.allow("plain.test", plain.port)
	l.load()
	request := "GET /down?n=1000000 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
	for name, open := range map[string]func(t *testing.T) net.Conn{
		"plain": func(t *testing.T) net.Conn {
			c := say(t, l.raw(t, "plain.test", plain.port), fmt.Sprintf(request, "plain.test"))
			must(t, c.(*net.TCPConn).CloseWrite())
			return c
		},
		"tls": func(t *testing.T) net.Conn {
			c := say(t, l.rawTLS(t, "api.test", o.port), fmt.Sprintf(request, "api.test"))
			must(t, c.(*tls.Conn).CloseWrite())
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, b, err := body(readResponse(t, open(t)), nil)
			if err != nil || len(b) != 1000000 {
				t.Fatalf("%d bytes, %v", len(b), err)
			}
		})
	}
}

// TestH122Reset: clients that reset in the middle of anything cost nothing
// and are recorded once (case H1-22).
func TestH122Reset(t *testing.T) {
	l := newLab(t)
	o, plain := l.origin(t, "h2", "http/1.1"), l.origin(t)
	l.allow("api.test", o.port)
	l.allow("plain.test", plain.port)
	l.load()
	for _, tt := range []struct {
		name string
		open func(t *testing.T) net.Conn
	}{
		{"at once", func(t *testing.T) net.Conn { return l.raw(t, "api.test", o.port) }},
		{"half a ClientHello", func(t *testing.T) net.Conn { return say(t, l.raw(t, "api.test", o.port), "\x16\x03\x01\x02\x00\x01") }},
		{"denied", func(t *testing.T) net.Conn { return say(t, l.raw(t, "evil.test", 443), "GET / HTTP/1.1\r\n") }},
		{"request", func(t *testing.T) net.Conn {
			return say(t, l.rawTLS(t, "api.test", o.port), "GET /drip HTTP/1.1\r\nHost: api.test\r\n\r\n")
		}},
		{"body", func(t *testing.T) net.Conn {
			return say(t, l.rawTLS(t, "api.test", o.port), "POST /up HTTP/1.1\r\nHost: api.test\r\nContent-Length: 10\r\n\r\nabc")
		}},
		{"upgrade", func(t *testing.T) net.Conn {
			return say(t, l.rawTLS(t, "api.test", o.port), fmt.Sprintf(upgradeRequest, "/ws"))
		}},
		{"h2", func(t *testing.T) net.Conn {
			s, _ := l.framer(t, "api.test", o.port)
			s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/drip", ":authority", "api.test")
			return s.Conn
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 10 {
				c := tt.open(t)
				tcp, ok := c.(*net.TCPConn)
				if !ok {
					tcp = c.(*tls.Conn).NetConn().(*net.TCPConn)
				}
				must(t, tcp.SetLinger(0))
				must(t, tcp.Close())
			}
		})
	}
	for end := time.Now().Add(10 * time.Second); l.g.Open() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := l.g.Open(); n != 0 {
		t.Fatalf("%d connections are still open", n)
	}
}

// TestTLSResumption: a client resumes its session with the same name, and
// with no other.
func TestTLSResumption(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.allow("other.test", o.port)
	l.load()
	cache := tls.NewLRUClientSessionCache(4)
	for i, tt := range []struct {
		host    string
		resumed bool
	}{{"api.test", false}, {"api.test", true}, {"other.test", false}} {
		c := tls.Client(l.raw(t, tt.host, o.port), &tls.Config{RootCAs: l.roots, ServerName: tt.host, ClientSessionCache: oneSession{cache}})
		_, err := fmt.Fprintf(c, "GET /hello HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", tt.host)
		must(t, err)
		_, err = io.Copy(io.Discard, c)
		must(t, err)
		if got := c.ConnectionState().DidResume; got != tt.resumed {
			t.Errorf("connection %d to %s: resumed %v", i, tt.host, got)
		}
	}
}

// oneSession offers the same session to every name.
type oneSession struct{ tls.ClientSessionCache }

func (o oneSession) Get(string) (*tls.ClientSessionState, bool) {
	return o.ClientSessionCache.Get("one")
}
func (o oneSession) Put(_ string, s *tls.ClientSessionState) { o.ClientSessionCache.Put("one", s) }

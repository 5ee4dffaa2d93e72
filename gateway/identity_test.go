package gateway

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"sallyport/audit"
	"sallyport/policy"
)

// TestP2OneIdentity holds every pair of names against each other: the one
// that was looked up, the SNI, the authority and the target.
func TestP2OneIdentity(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.allow("other.test", o.port)
	l.load()
	for _, tt := range []struct {
		name, lookedUp, sni, authority, target string
		status                                 int
		reason                                 policy.Reason // "": allowed
	}{
		{"all the same", "api.test", "api.test", "api.test", "/hello", 200, ""},
		{"case and dot", "api.test", "API.test", "Api.Test.", "/hello", 200, ""},
		{"with the port", "api.test", "api.test", fmt.Sprintf("api.test:%d", o.port), "/hello", 200, ""},
		{"TLS-02 authority of an allowed host", "api.test", "api.test", "other.test", "/hello", 421, policy.AuthorityMismatch},
		{"TLS-02 authority of a denied host", "api.test", "api.test", "evil.test", "/hello", 421, policy.AuthorityMismatch},
		{"SNI of an allowed host", "api.test", "other.test", "api.test", "/hello", 421, policy.AuthorityMismatch},
		{"SNI of a denied host", "api.test", "evil.test", "api.test", "/hello", 421, policy.AuthorityMismatch},
		{"SNI and authority of another", "api.test", "other.test", "other.test", "/hello", 421, policy.AuthorityMismatch},
		{"authority of another port", "api.test", "api.test", "api.test:1", "/hello", 421, policy.AuthorityMismatch},
		{"authority is an address", "api.test", "api.test", "127.0.0.1", "/hello", 421, policy.AuthorityMismatch},
		{"authority with userinfo", "api.test", "api.test", "api.test@evil.test", "/hello", 400, policy.AuthorityAmbiguous},
		{"authority is a list", "api.test", "api.test", "api.test,evil.test", "/hello", 400, policy.BadHostname},
		{"absolute target of another", "api.test", "api.test", "api.test", "https://other.test/hello", 400, policy.AuthorityAmbiguous},
	} {
		for _, protocol := range []string{"http/1.1", "h2"} {
			t.Run(tt.name+" "+protocol, func(t *testing.T) {
				seen := len(o.saw())
				c := tls.Client(l.raw(t, tt.lookedUp, o.port), &tls.Config{RootCAs: l.roots, ServerName: tt.sni, NextProtos: []string{protocol}})
				must(t, c.Handshake())
				ask := exchange1
				if protocol == "h2" {
					ask = exchange2
				}
				got, reason := ask(t, c, tt.authority, tt.target)
				switch {
				case protocol == "h2" && strings.ContainsAny(tt.authority, "@") && got == 0: // reset, see net/http
				case protocol == "h2" && tt.target[0] != '/':
					if got != 0 && got != http.StatusBadRequest {
						t.Fatalf("%d %s", got, reason)
					}
				case got != tt.status || reason != string(tt.reason):
					t.Fatalf("%d %s, want %d %s", got, reason, tt.status, tt.reason)
				}
				if n := len(o.saw()) - seen; (n == 1) != (tt.reason == "") {
					t.Fatalf("the origin saw %d requests", n)
				}
			})
		}
	}
}

// exchange1 makes one request and returns the status and the reason.
func exchange1(t *testing.T, c *tls.Conn, authority, target string) (int, string) {
	t.Helper()
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", target, authority)
	must(t, err)
	r := readResponse(t, c)
	return r.StatusCode, r.Header.Get("X-Sallyport-Reason")
}

// exchange2 is exchange1 over HTTP/2; 0 is a reset.
func exchange2(t *testing.T, c *tls.Conn, authority, target string) (int, string) {
	t.Helper()
	_, err := io.WriteString(c, http2.ClientPreface)
	must(t, err)
	s := newStream2(c)
	must(t, s.WriteSettings())
	s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", target, ":authority", authority)
	f, ok := s.next(t, 1, http2.FrameHeaders).(*http2.MetaHeadersFrame)
	if !ok {
		return 0, ""
	}
	code, err := strconv.Atoi(f.PseudoValue("status"))
	must(t, err)
	for _, h := range f.RegularFields() {
		if h.Name == "x-sallyport-reason" {
			return code, h.Value
		}
	}
	return code, ""
}

// TestH201Coalescing: streams for other hosts are refused one by one, and the
// others go on (case H2-01).
func TestH201Coalescing(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.allow("other.test", o.port)
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	for i, tt := range []struct{ authority, status string }{
		{"api.test", "200"}, {"other.test", "421"}, {"evil.test", "421"}, {"api.test", "200"},
	} {
		id := uint32(2*i + 1)
		s.head(t, id, true, ":method", "GET", ":scheme", "https", ":path", "/hello", ":authority", tt.authority)
		if got := s.status(t, id); got != tt.status {
			t.Errorf("stream %d for %s: %s, want %s", id, tt.authority, got, tt.status)
		}
	}
	cert := s.ConnectionState().PeerCertificates[0]
	if len(cert.DNSNames) != 1 || cert.DNSNames[0] != "api.test" {
		t.Errorf("the leaf covers %v", cert.DNSNames)
	}
}

// TestH2Heads: what HTTP/2 can carry and must not pass.
func TestH2Heads(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	base := []string{":method", "GET", ":scheme", "https", ":path", "/hello", ":authority", "api.test"}
	with := func(fields ...string) []string { return append(append([]string(nil), base...), fields...) }
	for _, tt := range []struct {
		name   string
		fields []string
		status string // "reset", or the status
	}{
		{"H2-03 line break in a value", with("x-a", "1\r\nauthorization: Bearer x"), "reset"},
		{"H2-03 colon in a name", with("x: y", "1"), "reset"},
		{"H2-03 upper case", with("X-A", "1"), "reset"},
		{"H2-03 transfer-encoding", with("transfer-encoding", "chunked"), "reset 400"},
		{"H2-03 connection", with("connection", "close"), "reset 400"},
		{"another host field", with("host", "evil.test"), "400"},
		{"no authority", []string{":method", "GET", ":scheme", "https", ":path", "/hello"}, "400"},
		{"H1-25 CONNECT", []string{":method", "CONNECT", ":authority", "evil.test:443"}, "405"},
		{"path without a slash", []string{":method", "GET", ":scheme", "https", ":path", "hello", ":authority", "api.test"}, "reset 400"},
		{"path with an authority", []string{":method", "GET", ":scheme", "https", ":path", "https://evil.test/", ":authority", "api.test"}, "reset 400"},
		{"path with a fragment", []string{":method", "GET", ":scheme", "https", ":path", "/a#b", ":authority", "api.test"}, "400"},
		{"large head", with("x", strings.Repeat("a", 60<<10), "y", strings.Repeat("a", 60<<10), "z", strings.Repeat("a", 60<<10)), "431"},
		{"TRACE", []string{":method", "TRACE", ":scheme", "https", ":path", "/", ":authority", "api.test"}, "403"},
		{"extended CONNECT of another kind", []string{":method", "CONNECT", ":protocol", "connect-udp", ":scheme", "https", ":path", "/hello", ":authority", "api.test"}, "405"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := l.framer(t, "api.test", o.port)
			s.AllowIllegalWrites = true
			s.bigHead(t, 1, tt.fields...)
			var got string
			f := s.next(t, 1, http2.FrameHeaders)
			if h, ok := f.(*http2.MetaHeadersFrame); ok {
				got = h.PseudoValue("status")
			} else {
				got = "reset"
			}
			if !strings.Contains(tt.status, got) {
				t.Fatalf("%s, want %s", got, tt.status)
			}
		})
	}
	if n := len(o.saw()); n != 0 {
		t.Fatalf("the origin saw %d requests", n)
	}
}

// bigHead is head for fields that need more than one frame.
func (s *stream2) bigHead(t *testing.T, id uint32, fields ...string) {
	t.Helper()
	s.enc.Reset()
	for i := 0; i < len(fields); i += 2 {
		must(t, s.hp.WriteField(http2Field(fields[i], fields[i+1])))
	}
	b := bytes.Clone(s.enc.Bytes())
	n := min(len(b), 16<<10)
	must(t, s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:n], EndHeaders: n == len(b), EndStream: true}))
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = min(len(b), 16<<10)
		must(t, s.WriteContinuation(id, n == len(b), b[:n]))
	}
}

// TestConnections: what a connection must be to be opened or relayed.
func TestConnections(t *testing.T) {
	l := newLab(t)
	o, plain := l.origin(t, "http/1.1"), l.origin(t)
	l.allow("api.test", o.port, func(r *policy.Rule) { r.Schemes = []policy.Scheme{policy.HTTPS} })
	l.allow("plain.test", plain.port, func(r *policy.Rule) { r.Schemes = []policy.Scheme{policy.HTTP} })
	l.load()
	addr := func(s string) func(*testing.T) net.Conn {
		return func(t *testing.T) net.Conn {
			c, err := l.dialAddr(t.Context(), netip.MustParseAddrPort(s))
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
	}
	host := func(host string, port uint16) func(*testing.T) net.Conn {
		return func(t *testing.T) net.Conn { return l.raw(t, host, port) }
	}
	get := "GET / HTTP/1.1\r\nHost: %s\r\n\r\n"
	const stale = "198.18.200.200:443"
	for _, tt := range []struct {
		name   string
		open   func(*testing.T) net.Conn
		say    string
		reason policy.Reason
	}{
		{"TLS-20 TLS where only HTTP may be", host("plain.test", plain.port), clientHello(t, "plain.test"), policy.SchemeNotAllowed},
		{"TLS-20 HTTP where only TLS may be", host("api.test", o.port), fmt.Sprintf(get, "api.test"), policy.SchemeNotAllowed},
		{"SSH where TLS is expected", host("api.test", o.port), "SSH-2.0-OpenSSH_9.9\r\n", policy.NotTLS},
		{"binary where HTTP is expected", host("plain.test", plain.port), "\x00\x01\x02", policy.NotHTTP},
		{"TLS-01 no SNI", host("api.test", o.port), clientHello(t, ""), policy.NoSNI},
		{"SNI with a space", host("api.test", o.port), strings.Replace(clientHello(t, "api-test"), "api-test", "api test", 1), policy.BadHostname},
		{"SNI with NUL", host("api.test", o.port), strings.Replace(clientHello(t, "apixtest"), "apixtest", "api.tes\x00", 1), policy.BadHostname},
		{"SNI of another", host("api.test", o.port), clientHello(t, "evil.test"), policy.AuthorityMismatch},
		{"denied host", host("evil.test", 443), clientHello(t, "evil.test"), policy.HostNotAllowed},
		{"denied port", host("api.test", o.port+1), clientHello(t, "api.test"), policy.PortNotAllowed},
		{"DNS over TLS", host("api.test", 853), clientHello(t, "api.test"), policy.DoTBlocked},
		{"address", addr("192.0.2.7:443"), clientHello(t, "api.test"), policy.IPLiteral},
		{"address of a name nobody asked for", addr(stale), clientHello(t, "api.test"), policy.StaleAddress},
		{"denied address over TLS", addr(l.g.Pool.Denied(false).String() + ":443"), clientHello(t, "evil.test"), policy.HostNotAllowed},
		{"denied address over HTTP", addr(l.g.Pool.Denied(false).String() + ":80"), fmt.Sprintf(get, "evil.test"), policy.HostNotAllowed},
		{"denied address and an allowed name", addr(fmt.Sprintf("%s:%d", l.g.Pool.Denied(false), plain.port)), fmt.Sprintf(get, "plain.test"), policy.StaleAddress},
		{"denied address and other bytes", addr(l.g.Pool.Denied(false).String() + ":22"), "SSH-2.0-x\r\n", policy.HostNotAllowed},
		{"the gateway's own name on another port", addr(l.g.Pool.Gateway(false).String() + ":22"), "SSH-2.0-x\r\n", policy.PortNotAllowed},
		{"broken hello", host("api.test", o.port), "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", policy.ProtocolError},
		{"endless hello", host("api.test", o.port), strings.Repeat("\x16\x03\x01\x40\x00\x01\xff\xff\xff"+strings.Repeat("x", 16<<10-4), 6), policy.ProtocolError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(l.events(nil))
			c := tt.open(t)
			go func() { _, _ = io.WriteString(c, tt.say) }()
			e := l.await(t, string(tt.reason), func(e *audit.Event) bool {
				return e.Kind == audit.KindConn && e.Seq > uint64(before) && e.Phase == audit.PhaseDecision
			})
			if e.Reason != string(tt.reason) || e.Verdict != "deny" {
				t.Fatalf("%s %s: %s", e.Verdict, e.Reason, e.Message)
			}
			_ = c.Close()
		})
	}
	if n := len(o.saw()) + len(plain.saw()); n != 0 {
		t.Fatalf("origins saw %d requests", n)
	}
}

// clientHello is the first message of a client that asks for a name.
func clientHello(t testing.TB, name string) string {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		_ = client.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	must(t, err)
	return string(b[:n])
}

// TestTLS21SplitHello: a hello that comes in pieces, in many records or with a
// lot of padding is judged like any other (case TLS-21).
func TestTLS21SplitHello(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	for _, size := range []int{1, 7, 100, 4000} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			c := tls.Client(&choppedConn{l.raw(t, "api.test", o.port), size}, &tls.Config{RootCAs: l.roots, ServerName: "api.test"})
			if code, reason := exchange1(t, c, "api.test", "/hello"); code != http.StatusOK {
				t.Fatalf("%d %s", code, reason)
			}
		})
	}
}

// choppedConn writes in pieces.
type choppedConn struct {
	net.Conn
	size int
}

func (c *choppedConn) Write(p []byte) (int, error) {
	for i := 0; i < len(p); i += c.size {
		if _, err := c.Conn.Write(p[i:min(len(p), i+c.size)]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// TestConnectionLimit: a sandbox holds so many connections, and again as many
// when they are closed.
func TestConnectionLimit(t *testing.T) {
	l := newLab(t)
	port := l.echoOrigin(t, false)
	l.limits.Connections = 3
	l.allow("raw.test", port, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	for range 2 {
		var open []net.Conn
		for range 3 {
			c := say(t, l.raw(t, "raw.test", port), "x")
			_, err := io.ReadFull(c, make([]byte, 1))
			must(t, err)
			open = append(open, c)
		}
		ended(t, l.raw(t, "raw.test", port), 5*time.Second)
		for _, c := range open {
			must(t, c.Close())
		}
		for end := time.Now().Add(5 * time.Second); l.g.Open() > 0 && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	l.denied(t, audit.KindConn, policy.ConnectionLimit)
}

// TestP5NoRecordNoEgress: while the log cannot be written nothing reaches an
// origin, and once it can, everything goes on.
func TestP5NoRecordNoEgress(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	tcp := l.echoOrigin(t, false)
	l.allow("api.test", o.port)
	l.allow("raw.test", tcp, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	url := "https://api.test:" + strconv.Itoa(int(o.port)) + "/hello"
	kept := l.client(t, true)
	_, _, err := body(kept.Get(url))
	must(t, err)
	l.recorder.failWhen(func(e *audit.Event) error {
		if e.Phase == audit.PhaseDecision {
			return audit.ErrUnavailable
		}
		return nil
	})
	r, _, err := body(kept.Get(url))
	must(t, err)
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("X-Sallyport-Reason") != string(policy.AuditUnavailable) {
		t.Fatalf("%d %s", r.StatusCode, r.Header.Get("X-Sallyport-Reason"))
	}
	if _, _, err := body(l.client(t, true).Get(url)); err == nil {
		t.Fatal("a new connection was opened")
	}
	c := l.raw(t, "raw.test", tcp)
	_, _ = io.WriteString(c, "x") // it may have been reset already
	ended(t, c, 5*time.Second)
	if n := len(o.saw()); n != 1 {
		t.Fatalf("the origin saw %d requests", n)
	}
	l.recorder.failWhen(nil)
	r, _, err = body(l.client(t, true).Get(url))
	must(t, err)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("afterwards: %d", r.StatusCode)
	}
}

package gateway

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport/audit"
	"sallyport/certs"
	"sallyport/gateway/identity"
	"sallyport/gateway/upstream"
	"sallyport/policy"
	"sallyport/test/virtual"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestP6RefusalsExplain: what the sandbox is told, whole, in every form in
// which it is told it. The operator finds the same id with the rule's place.
func TestP6RefusalsExplain(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) {
		r.Methods, r.Paths, r.Inject = []string{"GET"}, []string{"/hello", "/none/**"}, []policy.Ref{{Name: secretName}}
	})
	l.allow("other.test", o.port)
	l.rules = append(l.rules, policy.Rule{Pos: policy.Pos{File: "ci.hcl", Line: 30}, Action: policy.ActionDeny, Host: "evil.test",
		Reason: "Ask the platform team for an exception."})
	l.load()
	leak := "Authorization: Bearer $" + secretName + "\r\n"
	for _, tt := range []struct{ name, host, request, fields string }{
		{"method", "api.test", "DELETE /hello", ""},
		{"path", "api.test", "GET /admin?token=do-not-show", ""},
		{"path as json", "api.test", "GET /admin", "Accept: application/json\r\n"},
		{"path for a browser", "api.test", "GET /admin", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n"},
		{"path for grpc", "api.test", "GET /admin", "Content-Type: application/grpc\r\n"},
		{"head", "api.test", "HEAD /admin", ""},
		{"denied host with a reason", "evil.test", "GET /", ""},
		{"unknown host", "nowhere.test", "GET /", ""},
		{"placeholder at another host", "other.test", "GET /hello", leak},
		{"authority", "api.test", "GET /hello", "X: y\r\n"},
		{"unreachable", "other.test", "GET /", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port, authority := o.port, tt.host
			switch tt.name {
			case "authority":
				authority = "evil.test"
			case "unreachable":
				closed := listen(t)
				port = portOf(closed)
				must(t, closed.Close())
				l.allow("other.test", port)
				l.load()
			}
			c := say(t, l.rawTLS(t, tt.host, port), fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n", tt.request, authority, tt.fields))
			method, _, _ := strings.Cut(tt.request, " ")
			r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
			must(t, err)
			id := r.Header.Get("X-Sallyport-Request")
			dump, err := httputil.DumpResponse(r, true)
			must(t, err)
			got := strings.NewReplacer(id, "REQUEST", strconv.Itoa(int(port)), "PORT", "\r\n", "\n").Replace(string(dump))
			got = regexp.MustCompile(`(?m)^Date: .*$`).ReplaceAllString(got, "Date: DATE")
			golden(t, tt.name, got)
			if strings.Contains(got, secretValue) || strings.Contains(got, "do-not-show") || strings.Contains(got, "ci.hcl") {
				t.Error("the refusal says what it should not")
			}
			e := l.await(t, "the record of "+id, func(e *audit.Event) bool { return e.Req == id && e.Phase == audit.PhaseDecision })
			if e.Rule != nil && (e.Rule.File != "ci.hcl" || e.Rule.Line == 0) {
				t.Errorf("rule %+v", *e.Rule)
			}
		})
	}
}

// TestRefusedBody: a refusal does not wait for the rest of a body.
func TestRefusedBody(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.Paths = []string{"/hello"} })
	l.load()
	for _, h2 := range []bool{false, true} {
		pr, pw := io.Pipe()
		late := time.AfterFunc(20*time.Second, func() { _ = pw.CloseWithError(io.ErrUnexpectedEOF) })
		go func() { _, _ = io.WriteString(pw, "the beginning") }()
		r, _, err := body(l.client(t, h2).Post("https://api.test:"+strconv.Itoa(int(o.port))+"/up", "text/plain", pr))
		must(t, err)
		if r.StatusCode != http.StatusForbidden || !late.Stop() {
			t.Fatalf("h2 %v: %d, late", h2, r.StatusCode)
		}
		_ = pw.Close()
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "refusals", strings.ReplaceAll(name, " ", "_")+".txt")
	if *update {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("refusal (-want +got):\n%s", d)
	}
}

// TestTLS05 reaches no origin whose certificate is not good for the name, and
// says why (case TLS-05).
func TestTLS05(t *testing.T) {
	l := newLab(t)
	stranger, _ := virtual.Authority(t)
	leaves := certs.NewLeaves(stranger, certs.LeavesOptions{})
	for _, tt := range []struct {
		name string
		leaf func() (*certs.Leaves, string)
	}{
		{"another authority", func() (*certs.Leaves, string) { return leaves, "api.test" }},
		{"another name", func() (*certs.Leaves, string) { return l.origins, "other.test" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, name := tt.leaf()
			cert, err := from.Leaf(name)
			must(t, err)
			o := l.originWith(t, *cert)
			l.allow("api.test", o.port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
			l.load()
			q, err := http.NewRequest(http.MethodGet, "https://api.test:"+strconv.Itoa(int(o.port))+"/hello", nil)
			must(t, err)
			q.Header.Set("Authorization", "Bearer $"+secretName)
			r, b, err := body(l.client(t, false).Do(q))
			must(t, err)
			if r.StatusCode != http.StatusBadGateway || r.Header.Get("X-Sallyport-Reason") != "upstream_tls" {
				t.Fatalf("%d %s %s", r.StatusCode, r.Header.Get("X-Sallyport-Reason"), b)
			}
			e := l.await(t, "failure", func(e *audit.Event) bool {
				return e.Phase == audit.PhaseEnd && e.Req == r.Header.Get("X-Sallyport-Request")
			})
			if e.Error == nil || e.Error.Class != "upstream_tls" || len(o.saw()) != 0 {
				t.Fatalf("%+v, %d requests", e.Error, len(o.saw()))
			}
		})
	}
}

// TestP4Secret: the value goes where it may, in the place of its placeholder,
// and nowhere else.
func TestP4Secret(t *testing.T) {
	l := newLab(t)
	o, plain := l.origin(t, "h2", "http/1.1"), l.origin(t)
	inject := func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} }
	l.allow("api.test", o.port, inject)
	l.allow("api.test", plain.port, func(r *policy.Rule) { r.Schemes = []policy.Scheme{policy.HTTP} })
	l.load()
	for _, tt := range []struct {
		scheme string
		o      *origin
		status int
	}{{"https", o, 200}, {"http", plain, 403}} {
		q, err := http.NewRequest(http.MethodGet, tt.scheme+"://api.test:"+strconv.Itoa(int(tt.o.port))+"/hello", nil)
		must(t, err)
		q.Header.Set("Authorization", "Bearer $"+secretName)
		r, _, err := body(l.client(t, false).Do(q))
		must(t, err)
		if r.StatusCode != tt.status {
			t.Fatalf("%s: %d %s", tt.scheme, r.StatusCode, r.Header.Get("X-Sallyport-Reason"))
		}
	}
	if saw := o.saw(); len(saw) != 1 || saw[0].Header.Get("Authorization") != "Bearer "+secretValue || len(plain.saw()) != 0 {
		t.Fatalf("origins saw %d and %d requests", len(saw), len(plain.saw()))
	}
	for _, e := range l.events(nil) {
		if strings.Contains(fmt.Sprintf("%+v %+v", e, e.HTTP), secretValue) {
			t.Fatal("the value is in the log")
		}
	}
}

// TestAddresses: an address that the rule does not name is not dialled, and
// the sandbox does not learn it.
func TestAddresses(t *testing.T) {
	l := newLab(t, func(_ *Deps, o *upstream.Options) {
		o.Hosts["api.test"] = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
		o.Hosts["other.test"] = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	})
	for host, want := range map[string]policy.Reason{"api.test": policy.ResolvesPrivate, "other.test": policy.ResolvesMetadata} {
		l.allow(host, 443, func(r *policy.Rule) { r.Addresses = nil })
		l.load()
		r, b, err := body(l.client(t, false).Get("https://" + host + "/"))
		must(t, err)
		if r.Header.Get("X-Sallyport-Reason") != string(want) || strings.Contains(b, "10.1.2.3") || strings.Contains(b, "169.254") {
			t.Errorf("%s: %d %s %s", host, r.StatusCode, r.Header.Get("X-Sallyport-Reason"), b)
		}
	}
}

// TestRelays: bytes of relays pass in both directions, the end of one
// direction leaves the other open (case H1-21), and what passed is recorded.
func TestRelays(t *testing.T) {
	l := newLab(t)
	port := l.echoOrigin(t, false)
	l.allow("raw.test", port, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	c := l.raw(t, "raw.test", port)
	go func() {
		_, _ = io.CopyN(c, &pattern{}, 1<<20)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	n, err := io.Copy(&patternCheck{}, c)
	if err != nil || n != 1<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	e := l.await(t, "end", func(e *audit.Event) bool { return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd })
	if e.Bytes.Sent != 1<<20 || e.Bytes.Received != 1<<20 || e.Upstream == nil || e.Upstream.Port != port {
		t.Fatalf("%+v %+v", e.Bytes, e.Upstream)
	}
}

// TestServerFirst: a protocol in which the server speaks first needs a tcp
// rule, and with one it does not wait for the client.
func TestServerFirst(t *testing.T) {
	l := newLab(t)
	ln := listen(t)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 hello\r\n")
			_ = c.Close()
		}
	}()
	l.allow("raw.test", portOf(ln), func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	b, err := io.ReadAll(l.raw(t, "raw.test", portOf(ln)))
	if err != nil || string(b) != "220 hello\r\n" {
		t.Fatalf("%q, %v", b, err)
	}
}

// TestDrain: at its end the gateway lets a request finish, cuts what does not,
// and has recorded every end when Run returns; see whole.
func TestDrain(t *testing.T) {
	l := newLab(t)
	o, tcp := l.origin(t, "h2", "http/1.1"), l.echoOrigin(t, false)
	l.allow("api.test", o.port)
	l.allow("raw.test", tcp, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	say(t, l.raw(t, "raw.test", tcp), "x")
	l.raw(t, "api.test", o.port) // says nothing
	l.rawTLS(t, "api.test", o.port)
	l.rawTLS(t, "api.test", o.port, "h2")
	l.dialWebSocket(t, o, "/ws")
	l.openWebSocket2(t, o, "/ws")
	readResponse(t, say(t, l.rawTLS(t, "api.test", o.port), "GET /drip HTTP/1.1\r\nHost: api.test\r\n\r\n"))
	s, _ := l.framer(t, "api.test", o.port)
	s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/forever", ":authority", "api.test")
	s.status(t, 1)
	began := time.Now()
	l.stop()
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the end took %v", took)
	}
	if n := l.g.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// TestForget cuts everything of a sandbox whose life has ended.
func TestForget(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	conns := []net.Conn{l.raw(t, "api.test", o.port), l.rawTLS(t, "api.test", o.port), l.rawTLS(t, "api.test", o.port, "h2"),
		say(t, l.rawTLS(t, "api.test", o.port), "GET /drip HTTP/1.1\r\nHost: api.test\r\n\r\n")}
	for end := time.Now().Add(10 * time.Second); l.g.opened.count() < len(conns); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are open, of %d", l.g.opened.count(), len(conns))
		}
	}
	l.await(t, "the request", func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseDecision })
	l.g.Forget(l.sandbox.ID)
	for _, c := range conns {
		ended(t, c, cutWithin)
	}
}

// TestForgottenMeanwhile: a connection is not served whose sandbox ends between
// the moment that it is known whose it is and that it is taken in.
func TestForgottenMeanwhile(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	other, left := net.Pipe()
	defer other.Close()
	in := &Inbound{Identify: func(netip.Addr) (*identity.Sandbox, bool) {
		l.g.Forget(l.sandbox.ID)
		return l.sandbox, true
	}}
	must(t, other.SetReadDeadline(time.Now().Add(20*time.Second)))
	go l.g.serveConn(t.Context(), left, in)
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("it is not ended: %v", err)
	}
	l.await(t, "its refusal", func(e *audit.Event) bool {
		return e.Kind == audit.KindConn && e.Verdict == "deny" && e.Reason == string(policy.UnknownSandbox)
	})
	if n := l.g.Open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

// count returns how many connections are known to be a sandbox's.
func (o *opened) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.conns)
}

// TestDeniedNameIsReadToTheHost: which denied name was meant is known also
// where Host comes late: behind a long target, or in a later segment.
func TestDeniedNameIsReadToTheHost(t *testing.T) {
	l := newLab(t)
	l.load()
	for name, pieces := range map[string][]string{
		"long target": {"GET /" + strings.Repeat("7", 3000) + " HTTP/1.1\r\nHost: long.evil.test\r\n\r\n"},
		"two pieces":  {"GET / HTTP/1.1\r\nX-Pad: " + strings.Repeat("a", 100) + "\r\n", "Host: late.evil.test\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := l.dialAddr(t.Context(), netip.AddrPortFrom(l.g.Pool.Denied(false), 80))
			must(t, err)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			for i, p := range pieces {
				if i > 0 {
					time.Sleep(50 * time.Millisecond) // another segment
				}
				_, err := io.WriteString(c, p)
				must(t, err)
			}
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			must(t, err)
			r.Body.Close()
			if r.StatusCode != http.StatusForbidden {
				t.Errorf("answered with %d", r.StatusCode)
			}
			l.await(t, "the denied name", func(e *audit.Event) bool {
				return e.Kind == audit.KindConn && e.Verdict == "deny" && strings.HasSuffix(e.Host, ".evil.test")
			})
		})
	}
}

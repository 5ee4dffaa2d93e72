package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/gateway/identity"
	"sallyport/policy"
)

const proxyPassword = "pw-8d1f"

// proxy starts an explicit proxy of the lab's gateway and returns its address.
func (l *lab) proxy(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	in := &Inbound{Name: "proxy", TCP: []net.Listener{ln}, Owner: func(user, password string) (*identity.Sandbox, bool) {
		return l.sandbox, user == "ci" && password == proxyPassword
	}}
	go func() { done <- l.g.Serve(ctx, in) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("proxy: %v", err)
		}
	})
	return ln.Addr().String()
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// viaProxy returns a client that uses the proxy, by CONNECT for HTTPS.
func (l *lab) viaProxy(t testing.TB, addr string, h2 bool) *http.Client {
	tr := l.transport(h2)
	tr.DialContext = nil
	tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: addr, User: url.UserPassword("ci", proxyPassword)})
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// speak opens a connection to the proxy and writes.
func speak(t testing.TB, addr, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(c, text)
	must(t, err)
	return c, bufio.NewReader(c)
}

func connect(target string, more ...string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nProxy-Authorization: " + basic("ci", proxyPassword) + "\r\n" + strings.Join(more, "") + "\r\n"
}

// answered reads the answer to a CONNECT.
func answered(t testing.TB, r *bufio.Reader) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	must(t, err)
	return resp
}

func TestProxyConnectSwapsTheSecret(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			l := newLab(t)
			o := l.origin(t, "h2", "http/1.1")
			l.allow("api.test", o.port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
			l.load()
			c := l.viaProxy(t, l.proxy(t), h2)
			req, err := http.NewRequest("GET", fmt.Sprintf("https://api.test:%d/hello", o.port), nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer $"+secretName)
			resp, _, err := body(c.Do(req))
			must(t, err)
			if resp.StatusCode != 200 || resp.ProtoMajor != map[bool]int{false: 1, true: 2}[h2] {
				t.Fatalf("%s %s", resp.Proto, resp.Status)
			}
			if got := o.saw()[0].Header.Get("Authorization"); got != "Bearer "+secretValue {
				t.Errorf("the origin received %q", got)
			}
			e := l.await(t, "decision", func(e *audit.Event) bool { return e.Kind == audit.KindConn && e.Phase == audit.PhaseDecision })
			if e.Verdict != "allow" || e.Host != "api.test" || e.Dst != nil || e.Sandbox == nil || e.Sandbox.Name != "ci" {
				t.Errorf("decision %+v", e)
			}
		})
	}
}

// TestProxyKeepsAnEarlyClientHello: a ClientHello in the same write as the
// CONNECT is not lost.
func TestProxyKeepsAnEarlyClientHello(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	raw, err := net.Dial("tcp", l.proxy(t))
	must(t, err)
	defer raw.Close()
	must(t, raw.SetDeadline(time.Now().Add(20*time.Second)))
	early := &earlyConn{Conn: raw, before: connect(fmt.Sprintf("api.test:%d", o.port))}
	c := tls.Client(early, &tls.Config{RootCAs: l.roots, ServerName: "api.test"})
	_, err = fmt.Fprintf(c, "GET /hello HTTP/1.1\r\nHost: api.test:%d\r\nConnection: close\r\n\r\n", o.port)
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	must(t, err)
	if resp.StatusCode != 200 {
		t.Errorf("status %s", resp.Status)
	}
}

// earlyConn sends before together with the first bytes, and drops the answer
// to it.
type earlyConn struct {
	net.Conn
	before string
	r      *bufio.Reader
}

func (e *earlyConn) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(append([]byte(e.before), b...))
	n -= len(e.before)
	e.before = ""
	return n, err
}

func (e *earlyConn) Read(b []byte) (int, error) {
	if e.r == nil {
		e.r = bufio.NewReader(e.Conn)
		resp, err := http.ReadResponse(e.r, &http.Request{Method: http.MethodConnect})
		if err != nil {
			return 0, err
		}
		if resp.StatusCode != 200 {
			return 0, fmt.Errorf("CONNECT: %s", resp.Status)
		}
	}
	return e.r.Read(b)
}

func TestProxyAsksForACredential(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	addr := l.proxy(t)
	target := fmt.Sprintf("api.test:%d", o.port)
	bare := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
	for name, first := range map[string]string{
		"none":         bare,
		"wrong":        strings.Replace(connect(target), basic("ci", proxyPassword), basic("ci", "x"), 1),
		"not Basic":    strings.Replace(connect(target), "Basic ", "Bearer ", 1),
		"two":          connect(target, "Proxy-Authorization: "+basic("ci", proxyPassword)+"\r\n"),
		"of an origin": strings.Replace(connect(target), "Proxy-Authorization", "Authorization", 1),
		"plain":        "GET http://" + target + "/ HTTP/1.1\r\nHost: " + target + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, r := speak(t, addr, first)
			resp, err := http.ReadResponse(r, nil)
			must(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			must(t, err)
			if resp.StatusCode != 407 || !strings.HasPrefix(resp.Header.Get("Proxy-Authenticate"), "Basic ") || resp.Header.Get("X-Sallyport-Reason") != "unknown_sandbox" {
				t.Fatalf("%s %v", resp.Status, resp.Header)
			}
			if name == "plain" {
				_, err = fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\n\r\n", target, target, basic("ci", proxyPassword))
				must(t, err)
				resp, err = http.ReadResponse(r, nil)
			} else {
				_, err = io.WriteString(c, connect(target))
				must(t, err)
				resp = answered(t, r) // on the same connection
			}
			must(t, err)
			if name != "plain" && resp.StatusCode != 200 {
				t.Errorf("with the credential: %s", resp.Status)
			}
			if name == "plain" && resp.StatusCode == 407 {
				t.Error("asked again")
			}
		})
	}
	t.Run("again and again", func(t *testing.T) {
		c, _ := speak(t, addr, strings.Repeat(bare, 10))
		b, _ := io.ReadAll(c) // reset or closed
		if n := strings.Count(string(b), " 407 "); n != maxCredentials {
			t.Errorf("%d answers, not %d", n, maxCredentials)
		}
	})
}

// TestProxyRefusesConnect: what policy or the form of the request forbids gets
// a status, a reason and one record. POL-08, POL-17.
func TestProxyRefusesConnect(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	addr := l.proxy(t)
	port := fmt.Sprint(o.port)
	for _, c := range []struct {
		name, text, reason string
		status             int
	}{
		{"host", connect("evil.test:443"), "host_not_allowed", 403},
		{"POL-17 port of SSH", connect("api.test:22"), "port_not_allowed", 403},
		{"DNS over TLS", connect("api.test:853"), "dot_blocked", 403},
		{"address", connect("192.0.2.1:443"), "ip_literal", 403},
		{"address of IPv6", connect("[2001:db8::1]:443"), "ip_literal", 403},
		{"metadata", connect("169.254.169.254:80"), "ip_literal", 403},
		{"the proxy itself", connect(addr), "ip_literal", 403},
		{"POL-08 brackets", connect("[api.test]:" + port), "authority_ambiguous", 400},
		{"POL-08 two brackets", strings.Replace(connect("api.test:"+port), "CONNECT api.test", "CONNECT [[evil.test]]", 1), "bad_hostname", 400},
		{"POL-08 open bracket", strings.Replace(connect("api.test:"+port), "CONNECT api.test", "CONNECT [::1", 1), "bad_hostname", 400},
		{"POL-08 two ports", strings.Replace(connect("api.test:"+port), "CONNECT api.test:", "CONNECT api.test:443:", 1), "bad_hostname", 400},
		{"no port", "CONNECT api.test HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: " + basic("ci", proxyPassword) + "\r\n\r\n", "bad_hostname", 400},
		{"Host of another", strings.Replace(connect("api.test:"+port), "Host: api.test", "Host: evil.test", 1), "authority_ambiguous", 400},
		{"userinfo", connect("x@api.test:" + port), "authority_ambiguous", 400},
		{"body", connect("api.test:"+port, "Content-Length: 4\r\n"), "smuggling", 400},
		{"chunked body", connect("api.test:"+port, "Transfer-Encoding: chunked\r\n"), "smuggling", 400},
		{"bare LF", strings.Replace(connect("api.test:"+port), "\r\nHost", "\nHost", 1), "smuggling", 400},
		{"gateway's own on another port", connect(Name + ":22"), "port_not_allowed", 403},
		{"too long", connect("api.test:"+port, "X: "+strings.Repeat("a", 200<<10)+"\r\n"), "header_too_large", 431},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(l.events(nil))
			conn, r := speak(t, addr, "")
			go func() { _, _ = io.WriteString(conn, c.text) }() // the answer may come before all is written
			resp := answered(t, r)
			if resp.StatusCode != c.status || resp.Header.Get("X-Sallyport-Reason") != c.reason && c.reason != "authority_ambiguous" {
				t.Fatalf("%s %v", resp.Status, resp.Header)
			}
			if reason := resp.Header.Get("X-Sallyport-Reason"); !strings.Contains(resp.Status, reason) {
				t.Errorf("the status line %q does not say why", resp.Status)
			}
			id := resp.Header.Get("X-Sallyport-Request")
			events := l.events(nil)[before:]
			if len(events) != 1 || events[0].Verdict != "deny" || events[0].Reason != resp.Header.Get("X-Sallyport-Reason") || events[0].Conn != id {
				t.Errorf("records: %+v, id %s", events, id)
			}
		})
	}
	if n := len(o.saw()); n > 0 {
		t.Errorf("the origin received %d requests", n)
	}
}

// TestP2ProxyNames: the name of the CONNECT, the server name and Host are one.
func TestP2ProxyNames(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.allow("other.test", o.port)
	l.load()
	addr := l.proxy(t)
	target := fmt.Sprintf("api.test:%d", o.port)
	for _, c := range []struct{ name, sni, request, reason string }{
		{"server name", "other.test", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "authority_mismatch"},
		{"Host", "api.test", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "authority_mismatch"},
		{"absolute target", "api.test", "GET https://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", "authority_mismatch"},
		{"H1-25 CONNECT inside", "api.test", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "connect_refused"},
		{"proxy credential inside", "api.test", "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nProxy-Authorization: " + basic("ci", proxyPassword) + "\r\n\r\n", "connect_refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, r := speak(t, addr, connect(target))
			if resp := answered(t, r); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
			tc := tls.Client(raw, &tls.Config{RootCAs: l.roots, ServerName: c.sni, NextProtos: []string{"http/1.1"}})
			_, err := io.WriteString(tc, c.request)
			must(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(tc), nil)
			must(t, err)
			if got := resp.Header.Get("X-Sallyport-Reason"); got != c.reason {
				t.Errorf("%s %s, not %s", resp.Status, got, c.reason)
			}
		})
	}
	if n := len(o.saw()); n > 0 {
		t.Errorf("the origin received %d requests", n)
	}
}

// TestProxyJudgesEachPlainRequest: several hosts on one connection, each
// judged by itself.
func TestProxyJudgesEachPlainRequest(t *testing.T) {
	l := newLab(t)
	one, two := l.origin(t), l.origin(t)
	l.allow("plain.test", one.port)
	l.allow("other.test", two.port)
	l.load()
	auth := "Proxy-Authorization: " + basic("ci", proxyPassword) + "\r\nProxy-Connection: keep-alive\r\n"
	c, r := speak(t, l.proxy(t), "")
	for _, step := range []struct {
		target, host, reason string
		status               int
	}{
		{fmt.Sprintf("http://plain.test:%d/hello?a", one.port), fmt.Sprintf("plain.test:%d", one.port), "", 200},
		{fmt.Sprintf("http://other.test:%d/hello?c=d", two.port), fmt.Sprintf("other.test:%d", two.port), "", 200},
		{"http://evil.test/", "evil.test", "host_not_allowed", 403},
		{fmt.Sprintf("http://plain.test:%d/hello?e", one.port), fmt.Sprintf("plain.test:%d", one.port), "", 200},
		{"http://192.0.2.1/", "192.0.2.1", "ip_literal", 403},
		{fmt.Sprintf("https://plain.test:%d/", one.port), fmt.Sprintf("plain.test:%d", one.port), "scheme_not_allowed", 403},
		{fmt.Sprintf("http://plain.test:%d/f", one.port), "evil.test", "authority_ambiguous", 400},
	} {
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", step.target, step.host, auth)
		must(t, err)
		resp, text, err := body(http.ReadResponse(r, nil))
		must(t, err)
		if resp.StatusCode != step.status || resp.Header.Get("X-Sallyport-Reason") != step.reason {
			t.Fatalf("%s: %s %v %s", step.target, resp.Status, resp.Header, text)
		}
	}
	if a, b := one.saw(), two.saw(); len(a) != 2 || len(b) != 1 || a[0].RequestURI != "/hello?a" || a[1].RequestURI != "/hello?e" || b[0].RequestURI != "/hello?c=d" {
		t.Errorf("the origins received %+v and %+v", a, b)
	}
	for _, got := range append(one.saw(), two.saw()...) {
		for name := range got.Header {
			if strings.HasPrefix(name, "Proxy-") {
				t.Errorf("%s reached the origin", name)
			}
		}
	}
	for _, e := range l.events(func(e *audit.Event) bool { return e.Phase == audit.PhaseDecision }) {
		if e.Kind != audit.KindHTTP || e.Sandbox == nil || e.Sandbox.ID != l.sandbox.ID {
			t.Errorf("decision %s %s of %+v", e.Kind, e.Reason, e.Sandbox)
		}
	}
}

func TestProxyPlainForms(t *testing.T) {
	l := newLab(t)
	o := l.origin(t)
	l.allow("plain.test", o.port)
	l.load()
	addr := l.proxy(t)
	auth := "Proxy-Authorization: " + basic("ci", proxyPassword) + "\r\n"
	target := fmt.Sprintf("plain.test:%d", o.port)
	for _, c := range []struct {
		name, text, reason string
		status             int
	}{
		{"path alone", "GET / HTTP/1.1\r\nHost: " + addr + "\r\n" + auth + "\r\n", "protocol_error", 400},
		{"brackets", "GET http://[plain.test]/ HTTP/1.1\r\nHost: [plain.test]\r\n" + auth + "\r\n", "bad_hostname", 400},
		{"two lengths", "POST http://" + target + "/ HTTP/1.1\r\nHost: " + target + "\r\n" + auth + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "smuggling", 400},
		{"HTTP/2 in clear text", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "smuggling", 400},
		{"no path", "GET http://" + target + "?x HTTP/1.1\r\nHost: " + target + "\r\n" + auth + "\r\n", "", 404},
		{"gateway's own", "GET http://" + Name + "/none HTTP/1.1\r\nHost: " + Name + "\r\n" + auth + "\r\n", "", 404},
		{"gateway's own on another port", "GET http://" + Name + ":443/ HTTP/1.1\r\nHost: " + Name + ":443\r\n" + auth + "\r\n", "port_not_allowed", 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, r := speak(t, addr, c.text)
			resp, err := http.ReadResponse(r, nil)
			must(t, err)
			if resp.StatusCode != c.status || resp.Header.Get("X-Sallyport-Reason") != c.reason {
				t.Errorf("%s %s", resp.Status, resp.Header.Get("X-Sallyport-Reason"))
			}
		})
	}
	t.Run("CONNECT after a request", func(t *testing.T) {
		c, r := speak(t, addr, "GET http://"+target+"/ HTTP/1.1\r\nHost: "+target+"\r\n"+auth+"\r\n")
		_, _, err := body(http.ReadResponse(r, nil))
		must(t, err)
		_, err = io.WriteString(c, connect("evil.test:443"))
		must(t, err)
		resp, err := http.ReadResponse(r, nil)
		must(t, err)
		if resp.StatusCode != 405 || !resp.Close {
			t.Errorf("%s, close %v", resp.Status, resp.Close)
		}
	})
}

// TestProxyRawTunnel: a server that speaks first, and one that is not there.
func TestProxyRawTunnel(t *testing.T) {
	l := newLab(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 hello\r\n")
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	l.allow("raw.test", port, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionTCP, nil })
	l.load()
	addr := l.proxy(t)
	target := fmt.Sprintf("raw.test:%d", port)
	c, r := speak(t, addr, connect(target)+"early")
	if resp := answered(t, r); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	want := "220 hello\r\nearly"
	b := make([]byte, len(want))
	_, err = io.ReadFull(r, b)
	must(t, err)
	if string(b) != want {
		t.Errorf("read %q", b)
	}
	l.g.Swap(&Snapshot{Policy: policy.Empty(9)})
	ended(t, c, 5*time.Second) // revoked
	l.load()
	must(t, ln.Close())
	_, r = speak(t, addr, connect(target))
	if resp := answered(t, r); resp.StatusCode != 502 || !strings.HasPrefix(resp.Header.Get("X-Sallyport-Reason"), "upstream_") {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
}

// TestProxyForgetsASandbox: the end of a sandbox closes its connections to the
// proxy, also those between two requests.
func TestProxyForgetsASandbox(t *testing.T) {
	l := newLab(t)
	o := l.origin(t)
	l.allow("plain.test", o.port)
	l.load()
	target := fmt.Sprintf("plain.test:%d", o.port)
	c, r := speak(t, l.proxy(t), "GET http://"+target+"/ HTTP/1.1\r\nHost: "+target+"\r\nProxy-Authorization: "+basic("ci", proxyPassword)+"\r\n\r\n")
	_, _, err := body(http.ReadResponse(r, nil))
	must(t, err)
	l.g.Forget(l.sandbox.ID)
	ended(t, c, 5*time.Second)
}

// TestProxyCountsStrangers: a connection that asks for nothing but a
// credential counts as a stranger's until one is shown, in whichever form it
// asks.
func TestProxyCountsStrangers(t *testing.T) {
	l := newLab(t)
	o := l.origin(t)
	l.allow("plain.test", o.port)
	l.load()
	addr, target := l.proxy(t), fmt.Sprintf("plain.test:%d", o.port)
	ask := func(c net.Conn, r *bufio.Reader, auth string) int {
		_, err := fmt.Fprintf(c, "GET http://%s/hello HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, auth)
		must(t, err)
		resp, _, err := body(http.ReadResponse(r, nil))
		must(t, err)
		return resp.StatusCode
	}
	strangers := &l.g.front.strangers
	awaitStrangers := func(want int) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); strangers.count() != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d strangers, want %d", strangers.count(), want)
			}
		}
	}
	gaveWay := make(chan int, maxStrangers)
	for i := range maxStrangers - 2 { // of as many places
		a := netip.AddrFrom4([4]byte{192, 0, 2 + byte(i>>8), byte(i)})
		defer strangers.leave(strangers.enter(a, func() { gaveWay <- i }))
	}
	one, r1 := speak(t, addr, "")
	if got := ask(one, r1, ""); got != http.StatusProxyAuthRequired {
		t.Fatalf("without a credential: %d", got)
	}
	two, _ := speak(t, addr, "G") // now that the other is known, which is to be the oldest
	awaitStrangers(maxStrangers)
	three, r3 := speak(t, addr, "") // of the place that has the most: the oldest there gives way
	if got := ask(three, r3, "Proxy-Authorization: "+basic("ci", proxyPassword)+"\r\n"); got != http.StatusOK {
		t.Fatalf("with a credential, where there is no room: %d", got)
	}
	ended(t, one, 5*time.Second)
	l.denied(t, audit.KindConn, policy.ConnectionLimit)
	must(t, two.Close())
	awaitStrangers(maxStrangers - 2)
	must(t, three.Close())
	if len(gaveWay) > 0 {
		t.Errorf("number %d of a place with one gave way", <-gaveWay)
	}
	one, r1 = speak(t, addr, "")
	if got := ask(one, r1, ""); got != http.StatusProxyAuthRequired {
		t.Fatalf("without a credential: %d", got)
	}
	awaitStrangers(maxStrangers - 1)
	if got := ask(one, r1, "Proxy-Authorization: "+basic("ci", proxyPassword)+"\r\n"); got != http.StatusOK {
		t.Fatalf("with a credential: %d", got)
	}
	awaitStrangers(maxStrangers - 2)
	must(t, one.Close())
	time.Sleep(20 * time.Millisecond)
	awaitStrangers(maxStrangers - 2)
}

// TestProxyCountsStrangersOfOnePlace: one place's strangers leave room for
// those of others, and the oldest of a place for its latest.
func TestProxyCountsStrangersOfOnePlace(t *testing.T) {
	var s strangers
	var all []*stranger
	gave := map[string]int{}
	enter := func(a string) {
		t.Helper()
		n := len(all)
		all = append(all, s.enter(netip.MustParseAddr(a), func() { gave[place(netip.MustParseAddr(a)).String()] = n }))
	}
	for i := range maxFromOne {
		enter("192.0.2.1")
		enter(fmt.Sprintf("2001:db8::%x", i))
	}
	enter("192.0.2.2")
	enter("2001:db8:0:1::1")
	if len(gave) != 0 {
		t.Fatalf("there was room: %v", gave)
	}
	enter("::ffff:192.0.2.1")
	enter("2001:db8::ffff:1")
	enter("192.0.2.1")
	if want := map[string]int{"192.0.2.1": 2, "2001:db8::": 1}; !maps.Equal(gave, want) {
		t.Errorf("%v gave way, want %v", gave, want)
	}
	for i := range maxStrangers { // of as many places, until those are the most crowded that had the most
		enter(fmt.Sprintf("198.51.%d.%d", 100+i>>8, i&255))
	}
	if s.count() != maxStrangers || len(s.from[netip.MustParseAddr("192.0.2.1")]) > 1 {
		t.Errorf("%d strangers", s.count())
	}
	for _, x := range all {
		s.leave(x)
	}
	if s.count() != 0 || len(s.from) != 0 {
		t.Errorf("%d strangers and %d places are left", s.count(), len(s.from))
	}
}

// TestProxyTurnsAwayTheOldest: of connections beyond what one place may have
// without a credential, those that were there first are refused, and recorded.
func TestProxyTurnsAwayTheOldest(t *testing.T) {
	l := newLab(t)
	l.load()
	addr := l.proxy(t)
	first, _ := speak(t, addr, "G")
	for end := time.Now().Add(10 * time.Second); l.g.front.strangers.count() < 1 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	for range maxFromOne {
		speak(t, addr, "G")
	}
	ended(t, first, 10*time.Second)
	l.denied(t, audit.KindConn, policy.ConnectionLimit)
}

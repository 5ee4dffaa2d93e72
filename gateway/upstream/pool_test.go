package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// loopback is what a rule must name for the tests' origins.
func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// newUpstream returns an Upstream that knows good.test as 127.0.0.1 unless o
// says otherwise, and is closed with the test.
func newUpstream(t testing.TB, o Options) *Upstream {
	t.Helper()
	if o.Hosts == nil {
		o.Hosts = map[string][]netip.Addr{"good.test": {netip.MustParseAddr("127.0.0.1")}}
	}
	if o.Roots == nil {
		o.Roots = x509.NewCertPool()
	}
	if o.Lookup == nil {
		o.Lookup = func(context.Context, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}
	}
	u, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// origin is a TLS or plain server for good.test on loopback.
type origin struct {
	*httptest.Server
	roots *x509.CertPool
	port  uint16
	conns atomic.Int64

	onlyHTTP2 atomic.Bool // from now on
}

func newOrigin(t testing.TB, secure bool, h http.HandlerFunc) *origin {
	t.Helper()
	o := &origin{Server: httptest.NewUnstartedServer(h), roots: x509.NewCertPool()}
	o.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			o.conns.Add(1)
		}
	}
	o.Config.ErrorLog = quiet()
	if secure {
		ca := newAuthority(t)
		o.roots.AddCert(ca.cert)
		o.EnableHTTP2 = true
		o.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}}
		// crypto/tls lets a client of HTTP/1.1 in where only HTTP/2 is served;
		// others refuse it, as this does.
		refusal := &tls.Config{Certificates: o.TLS.Certificates, NextProtos: []string{"none"}}
		o.TLS.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if o.onlyHTTP2.Load() && !slices.Contains(h.SupportedProtos, "h2") {
				return refusal, nil
			}
			return nil, nil
		}
		o.TLS.NextProtos = []string{"h2", "http/1.1"}
		o.StartTLS()
	} else {
		o.Start()
	}
	t.Cleanup(o.Close)
	o.port = netip.MustParseAddrPort(o.Listener.Addr().String()).Port()
	return o
}

func (o *origin) target() Target {
	return Target{Sandbox: "s1", Host: "good.test", Port: o.port, Addresses: loopback()}
}

// send routes a request to a target and sends it.
func send(t testing.TB, u *Upstream, to Target, scheme, method string, body io.Reader, change func(*http.Request)) (*http.Response, Info, error) {
	t.Helper()
	r, err := u.Route(t.Context(), to, nil)
	if err != nil {
		return nil, Info{}, err
	}
	var info Info
	ctx := WithAttempt(t.Context(), &Attempt{Route: r, Info: &info})
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s://%s:%d/", scheme, to.Host, to.Port), body)
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil // as a server's request
	if change != nil {
		change(req)
	}
	resp, err := u.Transport(to.Sandbox).RoundTrip(req)
	return resp, info, err
}

// mustSend is send for requests that succeed; it reads the response.
func mustSend(t testing.TB, u *Upstream, to Target, scheme, method string, body io.Reader, change func(*http.Request)) (*http.Response, Info, string) {
	t.Helper()
	resp, info, err := send(t, u, to, scheme, method, body, change)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp, info, string(b)
}

// speaksHTTP2 makes a request one of a sandbox that speaks HTTP/2.
func speaksHTTP2(r *http.Request) { r.ProtoMajor, r.ProtoMinor = 2, 0 }

// TestUpstreamSpeaksAsTheSandbox: HTTP/1 goes on as HTTP/1.1, unless the
// upstream has only HTTP/2, which is noticed before anything is sent.
func TestUpstreamSpeaksAsTheSandbox(t *testing.T) {
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what broke off is shown as far as it came
		fmt.Fprintf(w, "%s %s", r.Proto, b)
	})
	u := newUpstream(t, Options{Roots: o.roots})
	if _, info, body := mustSend(t, u, o.target(), "https", "POST", strings.NewReader("a body"), nil); body != "HTTP/1.1 a body" || info.ALPN != "http/1.1" {
		t.Errorf("of both: %s, %+v", body, info)
	}
	o.onlyHTTP2.Store(true)
	to := o.target()
	to.Sandbox = "s2"
	for i := range 3 {
		if _, info, body := mustSend(t, u, to, "https", "POST", strings.NewReader("a body"), nil); body != "HTTP/2.0 a body" || info.ALPN != "h2" || info.Reused != (i > 0) {
			t.Errorf("of HTTP/2 alone: %s, %+v", body, info)
		}
	}
}

func TestRoundTripHTTP2(t *testing.T) {
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	u := newUpstream(t, Options{Roots: o.roots})
	for i := range 3 {
		resp, info, body := mustSend(t, u, o.target(), "https", "GET", nil, speaksHTTP2)
		if body != "HTTP/2.0" || resp.ProtoMajor != 2 {
			t.Errorf("spoke %s", body)
		}
		if info.Reused != (i > 0) || info.TLSVersion != "1.3" || info.ALPN != "h2" || info.Addr.Port() != o.port {
			t.Errorf("request %d: %+v", i, info)
		}
		if (info.Connect > 0) != (i == 0) {
			t.Errorf("request %d: connected in %v", i, info.Connect)
		}
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestRoundTripLeavesTheRequestAlone(t *testing.T) {
	var got http.Header
	var host string
	o := newOrigin(t, false, func(w http.ResponseWriter, r *http.Request) {
		got, host = r.Header, r.Host
		if r.ProtoMajor != 1 {
			t.Error(r.Proto)
		}
	})
	u := newUpstream(t, Options{})
	mustSend(t, u, o.target(), "http", "GET", nil, func(r *http.Request) {
		r.Host = "good.test"
		r.Header["X-One"] = []string{"1"}
	})
	if len(got) != 1 || got.Get("X-One") != "1" || host != "good.test" {
		t.Errorf("origin received %v for %q", got, host)
	}
	mustSend(t, u, o.target(), "http", "GET", nil, func(r *http.Request) { r.Header.Set("User-Agent", "curl/8") })
	if got.Get("User-Agent") != "curl/8" {
		t.Errorf("origin received %v", got)
	}
}

func TestRoundTripRefusesWithoutItsRoute(t *testing.T) {
	o := newOrigin(t, false, func(http.ResponseWriter, *http.Request) { t.Error("request arrived") })
	u := newUpstream(t, Options{})
	r, err := u.Route(t.Context(), o.target(), nil)
	if err != nil {
		t.Fatal(err)
	}
	other := r
	other.Sandbox = "s2"
	url := fmt.Sprintf("http://good.test:%d/", o.port)
	for _, tc := range []struct {
		name, url string
		ctx       context.Context
	}{
		{"no route", url, t.Context()},
		{"another sandbox's route", url, WithAttempt(t.Context(), &Attempt{Route: other})},
		{"another host", strings.Replace(url, "good", "evil", 1), WithAttempt(t.Context(), &Attempt{Route: r})},
		{"another port", "http://good.test/", WithAttempt(t.Context(), &Attempt{Route: r})},
		{"another scheme", strings.Replace(url, "http", "ftp", 1), WithAttempt(t.Context(), &Attempt{Route: r})},
		{"user in the target", strings.Replace(url, "good", "a:b@good", 1), WithAttempt(t.Context(), &Attempt{Route: r})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(tc.ctx, "GET", tc.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := u.Transport("s1").RoundTrip(req); err == nil {
				t.Errorf("answered %s", resp.Status)
			}
		})
	}
}

func TestPoolsAreApart(t *testing.T) {
	o := newOrigin(t, true, func(http.ResponseWriter, *http.Request) {})
	u := newUpstream(t, Options{Roots: o.roots})
	one := o.target()
	two := one
	two.Sandbox = "s2"
	wide := one
	wide.Addresses = append(loopback(), netip.MustParsePrefix("10.0.0.0/8"))
	metadata := one
	metadata.Metadata = true
	for i, to := range []Target{one, two, wide, metadata} {
		if _, info, _ := mustSend(t, u, to, "https", "GET", nil, nil); info.Reused {
			t.Errorf("target %d uses another's connection", i)
		}
		if _, info, _ := mustSend(t, u, to, "https", "GET", nil, nil); !info.Reused {
			t.Errorf("target %d does not use its own connection again", i)
		}
	}
	swapped := wide
	swapped.Addresses = []netip.Prefix{wide.Addresses[2], wide.Addresses[0], wide.Addresses[1]}
	if _, info, _ := mustSend(t, u, swapped, "https", "GET", nil, nil); !info.Reused {
		t.Error("the order of the ranges matters")
	}
}

func TestWebSocketGoesOverHTTP1(t *testing.T) {
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		if r.ProtoMajor != 1 {
			t.Error(r.Proto)
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(c, "echo "+line)
	})
	u := newUpstream(t, Options{Roots: o.roots})
	mustSend(t, u, o.target(), "https", "GET", nil, nil) // an h2 connection to reuse wrongly
	resp, info, err := send(t, u, o.target(), "https", "GET", nil, func(r *http.Request) {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 101 || info.ALPN == "h2" || info.Reused {
		t.Fatalf("%s, %+v", resp.Status, info)
	}
	rw, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("body is a %T", resp.Body)
	}
	fmt.Fprint(rw, "hello\n")
	if line, _ := bufio.NewReader(rw).ReadString('\n'); line != "echo hello\n" {
		t.Errorf("read %q", line)
	}
}

func TestCloseSandboxCutsItsConnections(t *testing.T) {
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	u := newUpstream(t, Options{Roots: o.roots})
	resp, _, err := send(t, u, o.target(), "https", "GET", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	pool := u.Transport("s1")
	u.CloseSandbox("s1")
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("response of a sandbox that ended: %v", err)
	}
	if u.Transport("s1") == pool {
		t.Error("the next life has the pool of the last")
	}
	if _, err := pool.transport(o.target(), wideHTTP2); !errors.Is(err, errClosed) {
		t.Errorf("closed pool: %v", err)
	}
	if _, _, err := send(t, u, o.target(), "https", "GET", nil, nil); !errors.Is(err, errClosed) {
		t.Errorf("a request of a sandbox that ended: %v", err)
	}
	if n := len(u.pools); n != 0 {
		t.Errorf("%d pools are kept", n)
	}
	for i := range 2 * rememberEnded {
		u.CloseSandbox(fmt.Sprint("gone", i))
	}
	if n := len(u.ended); n != rememberEnded {
		t.Errorf("%d sandboxes that ended are remembered", n)
	}
}

func TestCloseIdle(t *testing.T) {
	o := newOrigin(t, true, func(http.ResponseWriter, *http.Request) {})
	u := newUpstream(t, Options{Roots: o.roots})
	mustSend(t, u, o.target(), "https", "GET", nil, nil)
	u.CloseIdle()
	if _, info, _ := mustSend(t, u, o.target(), "https", "GET", nil, nil); info.Reused {
		t.Error("an idle connection was kept")
	}
}

func TestNET04ProxyVariablesAreIgnored(t *testing.T) {
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(v, "http://127.0.0.1:1")
	}
	for _, secure := range []bool{false, true} {
		o := newOrigin(t, secure, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "direct") })
		u := newUpstream(t, Options{Roots: o.roots})
		scheme := map[bool]string{false: "http", true: "https"}[secure]
		if _, _, body := mustSend(t, u, o.target(), scheme, "GET", nil, nil); body != "direct" {
			t.Errorf("%s: %q", scheme, body)
		}
	}
}

func TestUpstreamThatDoesNotAnswerTheHandshake(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	})
	u := newUpstream(t, Options{TLSTimeout: 50 * time.Millisecond})
	to := Target{Sandbox: "s1", Host: "good.test", Port: netip.MustParseAddrPort(ln.Addr().String()).Port(), Addresses: loopback()}
	_, _, err = send(t, u, to, "https", "GET", nil, nil)
	if class, detail := ErrorClass(err); class != "timeout" {
		t.Errorf("%s: %s (%v)", class, detail, err)
	}
}

func TestResponseHeaderIsBounded(t *testing.T) {
	o := newOrigin(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Big", strings.Repeat("a", maxResponseHeader+1))
	})
	u := newUpstream(t, Options{})
	_, _, err := send(t, u, o.target(), "http", "GET", nil, nil)
	if class, detail := ErrorClass(err); class != "protocol" || detail != "response header too large" {
		t.Errorf("%s: %s (%v)", class, detail, err)
	}
}

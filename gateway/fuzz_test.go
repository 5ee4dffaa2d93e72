package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/gateway/http1"
	"sallyport/policy"
)

// noted is a Recorder that keeps events.
type noted struct {
	mu     sync.Mutex
	events []*audit.Event
}

func (n *noted) Write(e *audit.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := *e // the gateway uses it again, and what it points to
	if kept.HTTP != nil {
		of := *kept.HTTP
		kept.HTTP = &of
	}
	n.events = append(n.events, &kept)
	return nil
}

func (n *noted) WriteAll(es []*audit.Event) []error {
	for _, e := range es {
		n.Write(e)
	}
	return nil
}

// played is the sandbox's side of a connection that says what it is to say
// and then ends.
type played struct {
	r        io.Reader
	src, dst netip.AddrPort
	wrote    bytes.Buffer
}

func (p *played) Read(b []byte) (int, error)       { return p.r.Read(b) }
func (p *played) Write(b []byte) (int, error)      { return p.wrote.Write(b) }
func (p *played) Close() error                     { return nil }
func (p *played) LocalAddr() net.Addr              { return net.TCPAddrFromAddrPort(p.dst) }
func (p *played) RemoteAddr() net.Addr             { return net.TCPAddrFromAddrPort(p.src) }
func (p *played) SetDeadline(time.Time) error      { return nil }
func (p *played) SetReadDeadline(time.Time) error  { return nil }
func (p *played) SetWriteDeadline(time.Time) error { return nil }

// cutReader delivers in pieces whose sizes the bytes of cuts give.
type cutReader struct{ b, cuts []byte }

func (c *cutReader) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := len(c.b)
	if len(c.cuts) > 0 {
		n = min(n, 1+int(c.cuts[0]))
		c.cuts = c.cuts[1:]
	}
	n = copy(p, c.b[:n])
	c.b = c.b[n:]
	return n, nil
}

// FuzzHello: whatever a connection begins with, it gets one decision; only the
// name that was looked up is admitted; bytes that are relayed are the bytes
// that came; and how they were cut makes no difference.
func FuzzHello(f *testing.F) {
	l := newLab(f)
	l.allow("api.test", 443)
	l.allow("raw.test", 443, func(r *policy.Rule) { r.Action, r.Schemes = policy.ActionPassthrough, nil })
	l.load()
	for _, name := range []string{"api.test", "raw.test", "evil.test", "API.test.", "", "192.0.2.1"} {
		f.Add([]byte(clientHello(f, name)), []byte{}, false)
		f.Add([]byte(clientHello(f, name)), []byte{0, 0, 4}, true)
	}
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"), []byte{}, false)
	f.Add([]byte("GET / HTTP/1.1\r\n"), []byte{}, false)
	f.Fuzz(func(t *testing.T, in, cuts []byte, passthrough bool) {
		if len(in) == 0 || in[0] != recordHandshake {
			return
		}
		host := "api.test"
		if passthrough {
			host = "raw.test"
		}
		whole := l.hello(t, host, in, bytes.NewReader(in))
		if cut := l.hello(t, host, in, &cutReader{in, cuts}); cut != whole {
			t.Fatalf("%s, cut %s", whole, cut)
		}
	})
}

// hello decides one connection and returns the decision in words.
func (l *lab) hello(t testing.TB, host string, in []byte, r io.Reader) string {
	t.Helper()
	n := &noted{}
	g := l.recordedBy(n)
	addr, err := g.Pool.Lease(l.sandbox.ID, host, false)
	must(t, err)
	p := &played{r: r, src: netip.MustParseAddrPort("127.0.0.1:1"), dst: netip.AddrPortFrom(addr, 443)}
	c := &conn{g: g, snap: l.g.Snapshot(), id: "c", sandbox: l.sandbox, state: g.state(l.sandbox.ID), started: time.Now(), client: newMeter(p), src: p.src, dst: p.dst, host: host}
	first, err := c.client.peek(time.Second)
	if err != nil || len(first) == 0 {
		return "nothing"
	}
	c.serveTLS(context.Background(), first, nil)
	var decisions []*audit.Event
	for _, e := range n.events {
		if e.Kind == audit.KindConn && e.Phase == audit.PhaseDecision {
			decisions = append(decisions, e)
		}
	}
	if len(decisions) != 1 {
		t.Fatalf("%d decisions", len(decisions))
	}
	d := decisions[0]
	if d.Verdict == "allow" {
		if name, err := policy.CanonicalHost(c.sni); err != nil || name != host {
			t.Fatalf("%q was admitted for %s", c.sni, host)
		}
	}
	if tls := c.tls.Load(); d.Verdict == "allow" && tls.Mode == "passthrough" && (len(p.wrote.Bytes()) > 0 || !bytes.HasPrefix(in, c.client.held)) {
		t.Fatalf("answered with %q, to be relayed %q", p.wrote.Bytes(), c.client.held)
	}
	return d.Verdict + " " + d.Reason
}

// recordedBy returns the lab's gateway with another log, and a front that
// takes no connections.
func (l *lab) recordedBy(r Recorder) *Gateway {
	d := l.g.Deps
	d.Audit = r
	g := &Gateway{Deps: d, configs: l.g.configs, allowances: l.g.allowances}
	g.snap.Store(l.g.Snapshot())
	g.front = newFront(g)
	_ = g.front.Close() // never fails
	return g
}

// FuzzAuthority: a request is admitted only for the name and the port of its
// connection, in whatever form they are written.
func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"api.test", "API.test.", "api.test:443", "api.test:8443", "api.test:", "evil.test", "api.test@evil.test", "[::1]:443",
		"api.test,evil.test", "api%2etest", "api.test\x00", "xn--api.test", "ａpi.test", "127.0.0.1", "", ":443", "api.test:443:443"} {
		f.Add(s, "", "", false)
		f.Add(s, s, "https", true)
	}
	f.Fuzz(func(t *testing.T, host, target, scheme string, h2 bool) {
		c := &conn{host: "api.test", dst: netip.MustParseAddrPort("198.18.0.9:8443"), scheme: policy.HTTPS, internal: false}
		c.tls.Store(&audit.TLS{})
		in := &http.Request{Host: host, Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}
		if h2 {
			in.ProtoMajor, in.ProtoMinor = 2, 0
		}
		r := &request{c: c, in: in, authority: host}
		if !h2 {
			r.head = http1.Head{Authority: target, Scheme: scheme}
		}
		if d := r.checkAuthority(); d != nil {
			if d.Reason == "" || d.Message == "" || d.Verdict != policy.Deny {
				t.Fatalf("%+v", d)
			}
			return
		}
		name, port, err := policy.SplitAuthority(r.authority, 8443)
		if err != nil || name != "api.test" || port != 8443 {
			t.Fatalf("%q is %s port %d, %v", r.authority, name, port, err)
		}
		if r.head.Authority != "" && (scheme != "https" || !strings.EqualFold(target, host)) {
			t.Fatalf("target %s://%s with host %s", scheme, target, host)
		}
		if c, err := policy.CanonicalHost(name); err != nil || c != name {
			t.Fatalf("%q is not canonical", name)
		}
	})
}

//go:build linux

package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"

	"sallyport/audit"
	"sallyport/test/lab"
)

// held is something that is kept open across reloads.
type held struct {
	name  string
	host  string
	kind  audit.Kind // of its record
	moved atomic.Int64
	ended chan struct{} // closed when it has been cut
}

// alive says whether it is open and, where it moves by itself, still moves.
func (h *held) alive() bool {
	select {
	case <-h.ended:
		return false
	default:
		return true
	}
}

// hold runs f, which counts what moves and returns when it is cut.
func hold(name, host string, kind audit.Kind, f func(*held)) *held {
	h := &held{name: name, host: host, kind: kind, ended: make(chan struct{})}
	go func() { defer close(h.ended); f(h) }()
	return h
}

// p7Rules are a group of every kind of rule, for hosts that begin with stem.
func p7Rules(group, stem string, port int) string {
	return fill(fmt.Sprintf(`
group %[1]q {
  allow "%[2]s.p7.test" { addresses = DOCS }
  tcp "%[2]s-tcp.p7.test:%[3]d" { addresses = DOCS }
  passthrough "%[2]s-pass.p7.test" {
    ports     = [%[4]d]
    addresses = DOCS
    reason    = "a test"
  }
}
`, group, stem, port, port+1))
}

// holdEverything opens one of each kind to the hosts that begin with stem.
func holdEverything(t *testing.T, s *lab.Sandbox, stem string, port int) (out []*held) {
	t.Helper()
	host := stem + ".p7.test"
	out = append(out, holdStream(t, s, "sse h1", host, false), holdStream(t, s, "sse h2", host, true),
		holdUpload(t, s, "upload h1", host, false), holdUpload(t, s, "upload h2", host, true),
		holdWebSocket(t, s, host), holdWebSocketH2(t, s, host), holdIdle(t, s, host),
		holdEcho(t, "raw tcp", stem+"-tcp.p7.test", s.Plain(t, fmt.Sprintf("%s-tcp.p7.test:%d", stem, port))))
	c, err := s.TLS(fmt.Sprintf("%s-pass.p7.test:%d", stem, port+1), &tls.Config{RootCAs: originRoots(s.Lab)})
	must(t, err)
	return append(out, holdEcho(t, "passthrough", stem+"-pass.p7.test", c))
}

func holdStream(t *testing.T, s *lab.Sandbox, name, host string, h2 bool) *held {
	t.Helper()
	c := s.Client(t, h2)
	c.Timeout = 0
	resp, err := c.Get("https://" + host + "/lab/sse?n=100000&ms=20")
	must(t, err)
	return hold(name, host, audit.KindHTTP, func(h *held) {
		defer resp.Body.Close()
		b := make([]byte, 1024)
		for {
			n, err := resp.Body.Read(b)
			h.moved.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
}

func holdUpload(t *testing.T, s *lab.Sandbox, name, host string, h2 bool) *held {
	t.Helper()
	c := s.Client(t, h2)
	c.Timeout = 0
	r, w := io.Pipe()
	req := lab.NewRequest(t, "POST", "https://"+host+"/lab/count", "")
	req.Body = r
	h := hold(name, host, audit.KindHTTP, func(*held) {
		if resp, err := c.Do(req); err == nil {
			_ = resp.Body.Close() // it has ended
		}
		_ = r.Close() // what is written ends too
	})
	go func() {
		for {
			n, err := w.Write([]byte("some more of it\n"))
			h.moved.Add(int64(n))
			if err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return h
}

func holdWebSocket(t *testing.T, s *lab.Sandbox, host string) *held {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), "wss://"+host+"/lab/ws", &websocket.DialOptions{HTTPClient: s.Client(t, false)})
	must(t, err)
	return hold("websocket h1", host, audit.KindWS, func(h *held) {
		defer c.CloseNow()
		for {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			err := c.Write(ctx, websocket.MessageText, []byte("ping"))
			if err == nil {
				_, _, err = c.Read(ctx)
			}
			cancel()
			if err != nil {
				return
			}
			h.moved.Add(1)
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// holdWebSocketH2 opens a WebSocket on a stream of HTTP/2 (RFC 8441).
func holdWebSocketH2(t *testing.T, s *lab.Sandbox, host string) *held {
	t.Helper()
	c, err := s.TLS(host+":443", h2Config(host))
	must(t, err)
	h2 := newRawH2(t, c)
	got, err := h2.open(false, field{":method", "CONNECT"}, field{":protocol", "websocket"}, field{":scheme", "https"},
		field{":path", "/lab/ws"}, field{":authority", host}, field{"sec-websocket-version", "13"})
	if err != nil || got[":status"] != "200" {
		t.Fatalf("websocket h2: %v, %v", got, err)
	}
	_ = c.SetDeadline(time.Time{})
	return hold("websocket h2", host, audit.KindWS, func(h *held) {
		for {
			f, err := h2.framer.ReadFrame()
			if err != nil {
				return
			}
			switch f.(type) {
			case *http2.RSTStreamFrame, *http2.GoAwayFrame:
				return
			}
			if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type == http2.FrameData {
				return
			}
		}
	})
}

// holdIdle keeps a connection after one request.
func holdIdle(t *testing.T, s *lab.Sandbox, host string) *held {
	t.Helper()
	w := s.Secure(t, host+":443")
	w.Send(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
	if a := w.Answer(t, "GET"); a.Status != 200 {
		t.Fatalf("idle: %d %s", a.Status, a.Body)
	}
	_ = w.SetDeadline(time.Time{})
	return hold("idle connection", host, audit.KindConn, func(*held) { _, _ = w.Conn.Read(make([]byte, 1)) })
}

// holdEcho sends to an echo and reads what comes back.
func holdEcho(t *testing.T, name, host string, c net.Conn) *held {
	t.Helper()
	t.Cleanup(func() { _ = c.Close() })
	return hold(name, host, audit.KindConn, func(h *held) {
		b := make([]byte, 4)
		for {
			if _, err := io.WriteString(c, "ping"); err != nil {
				return
			}
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			h.moved.Add(1)
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// stays holds that everything is open and moves, where it moves by itself.
func stays(t *testing.T, when string, all []*held) {
	t.Helper()
	for _, h := range all {
		before := h.moved.Load()
		moves := h.name != "idle connection" && h.name != "websocket h2"
		if !lab.Within(patience, func() bool { return !h.alive() || !moves || h.moved.Load() > before }) || !h.alive() {
			t.Errorf("%s: %s to %s did not go on", when, h.name, h.host)
		}
	}
}

// cutWithin bounds, widely, the 2 s in which a reload cuts what it revokes.
const cutWithin = 5 * time.Second

// TestP7RevokedMeansRevoked: a reload that takes a host away cuts what is open
// to it, whatever it is, and records it; one with an error changes nothing;
// what is unrelated goes on. OPS-01.
func TestP7RevokedMeansRevoked(t *testing.T) {
	l := begin(t)
	const livePort, stayPort = 7100, 7200
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{
		"live.hcl":  p7Rules("live", "live", livePort),
		"stay.hcl":  p7Rules("stay", "stay", stayPort),
		"boxes.hcl": "sandbox \"p7\" {\n  use = [\"live\", \"stay\"]\n}\nsandbox \"p7other\" {\n  use = [\"stay\"]\n}\n",
	}})
	for stem, port := range map[string]int{"live": livePort, "stay": stayPort} {
		for _, part := range []string{"-tcp", "-pass"} {
			l.DNS.Set(stem+part+".p7.test", "60 A "+lab.Raw)
		}
		l.Peer(t, fmt.Sprintf("%s:%d", lab.Raw, port), echoAll)
		l.Peer(t, fmt.Sprintf("%s:%d", lab.Raw, port+1), echoTLS(t, stem+"-pass.p7.test"))
	}
	s, other := g.Attach(t, "p7"), g.Attach(t, "p7other")
	live := holdEverything(t, s, "live", livePort)
	stay := append(holdEverything(t, s, "stay", stayPort), holdEverything(t, other, "stay", stayPort)...)
	everything := append(append([]*held{}, live...), stay...)
	stays(t, "at the start", everything)

	ready, err := g.Ready()
	must(t, err)
	for what, text := range map[string]string{"a syntax error": "group \"live\" {", "an unknown attribute": "group \"live\" {\n  alow = 1\n}\n", "nothing": ""} {
		g.WritePolicy(t, "live.hcl", text)
		if err := g.Reload(); err == nil {
			t.Errorf("a policy with %s was loaded", what)
		}
	}
	if now, err := g.Ready(); err != nil || now != ready {
		t.Errorf("after broken files the policy is %v, before %v (%v)", now, ready, err)
	}
	stays(t, "after broken files", everything)
	g.SetPolicy(t, "live.hcl", p7Rules("live", "live", livePort)+"group \"unrelated\" {\n  allow \"unrelated.test\" {}\n}\n")
	stays(t, "after an unrelated change", everything)

	begun := time.Now()
	g.SetPolicy(t, "live.hcl", "group \"live\" {\n  allow \"another.p7.test\" {}\n}\n")
	for _, h := range live {
		if !lab.Within(cutWithin-time.Since(begun), func() bool { return !h.alive() }) {
			t.Errorf("%s to %s is open %v after it was revoked", h.name, h.host, time.Since(begun))
		}
	}
	t.Logf("all was cut after %v", time.Since(begun))
	stays(t, "after the other host was revoked", stay)
	p7Recorded(t, g, live)
	for _, url := range []string{"https://live.p7.test/", "https://stay.p7.test/"} {
		a, err := lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", url, ""))
		if want := url == "https://stay.p7.test/"; err != nil || (a.Status == 200) != want {
			t.Errorf("%s: got %d %s (%v)", url, a.Status, a.Reason(), err)
		}
	}
}

// p7Recorded holds that each of the held ended as revoked.
func p7Recorded(t *testing.T, g *lab.Gateway, live []*held) {
	t.Helper()
	want := map[string]int{}
	for _, h := range live {
		want[string(h.kind)+" "+h.host]++
	}
	for key, n := range want {
		count := func() (got int) {
			for _, e := range g.Events(audit.Filter{Reason: "revoked"}) {
				if string(e.Kind)+" "+e.Host == key && e.Phase == audit.PhaseEnd {
					got++
				}
			}
			return got
		}
		if !lab.Within(patience, func() bool { return count() >= n }) {
			t.Errorf("%s: %d ends as revoked are recorded, not %d", key, count(), n)
		}
	}
	for _, e := range g.Events(audit.Filter{Reason: "revoked"}) {
		if e.Host[:4] == "stay" {
			t.Errorf("%s to %s was revoked", e.Kind, e.Host)
		}
	}
}

// TestP7ReloadsDisturbNothing: a hundred reloads under traffic, and not one
// request fails; each is judged by one version. OPS-02.
func TestP7ReloadsDisturbNothing(t *testing.T) {
	l := begin(t)
	boxes := "sandbox \"p7\" {\n  allow \"busy.p7.test\" { addresses = DOCS }\n  %s\n}\n"
	g := l.Gateway(t, lab.GatewayOptions{Policy: one(fmt.Sprintf(boxes, ""))})
	s := g.Attach(t, "p7")
	kept := []*held{holdStream(t, s, "sse h1", "busy.p7.test", false), holdStream(t, s, "sse h2", "busy.p7.test", true), holdUpload(t, s, "upload h2", "busy.p7.test", true)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 3)
	for i, h2 := range []bool{false, true, false} {
		c := s.Client(t, h2)
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				if a, err := lab.Try(c, lab.NewRequest(t, "GET", fmt.Sprintf("https://busy.p7.test/%d/%d", i, n), "")); err != nil || a.Status != http.StatusOK {
					t.Errorf("request %d of client %d: %d %s (%v)", n, i, a.Status, a.Reason(), err)
				}
				if i == 2 {
					c.CloseIdleConnections() // this one connects anew each time
				}
			}
			done <- n
		}()
	}
	before, err := g.Ready()
	must(t, err)
	for i := range 100 {
		extra := fmt.Sprintf("allow \"extra%d.p7.test\" { addresses = DOCS }", i)
		g.SetPolicy(t, "p.hcl", fill(fmt.Sprintf(boxes, extra)))
	}
	after, err := g.Ready()
	must(t, err)
	cancel()
	total := <-done + <-done + <-done
	stays(t, "after 100 reloads", kept)
	if n := after.Policy.Generation - before.Policy.Generation; n < 100 || total < 100 {
		t.Errorf("%d generations and %d requests", n, total)
	}
	for _, e := range g.Events(audit.Filter{Kind: "http"}) {
		if e.Phase == audit.PhaseDecision && (e.Policy == nil || e.Policy.Generation == 0 || e.Policy.SHA256 == "") {
			t.Fatalf("a decision without its policy: %+v", e)
		}
	}
}

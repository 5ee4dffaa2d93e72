//go:build linux

package e2e_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

// onDisk reads what is in the log's files at this instant. A last line that is
// not whole is not there.
func onDisk(t *testing.T, dir string) (out []*audit.Event) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s has no log (%v)", dir, err)
	}
	slices.Sort(files)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(b)) {
			e := new(audit.Event)
			if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), e) == nil {
				out = append(out, e)
			}
		}
	}
	return out
}

// witness looks into the log at the moment when something arrives.
type witness struct {
	t     *testing.T
	dir   string
	mu    sync.Mutex
	calls map[string]int
}

// saw holds that the log has a decision of that line now.
func (w *witness) saw(what, line string) {
	w.mu.Lock()
	w.calls[what]++
	w.mu.Unlock()
	events := onDisk(w.t, w.dir)
	if !has(events, line) {
		w.t.Errorf("%s arrived before %q was in the log", what, line)
	}
}

func (w *witness) count(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[what]
}

// TestP5RecordBeforeFirstByte: servers of the net look into the log as soon
// as something reaches them: a connection, or the question for its name. What
// reached them is there already. P5, AUD-06.
func TestP5RecordBeforeFirstByte(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one(`
sandbox "p5" {
  allow "https.p5early.test" { addresses = DOCS }
  allow "plain.p5early.test" {
    schemes   = ["http"]
    addresses = DOCS
  }
  tcp "tcp.p5early.test:7001" { addresses = DOCS }
  passthrough "pass.p5early.test" {
    ports     = [7002]
    addresses = DOCS
    reason    = "a test"
  }
}
`)})
	s := g.Attach(t, "p5")
	w := &witness{t: t, dir: filepath.Join(g.State, "audit"), calls: map[string]int{}}
	for _, c := range []struct {
		host, port, line string
		serve            func(*lab.Peer, *net.TCPConn)
	}{
		{"https.p5early.test", "443", "http allow rule_allow https.p5early.test", answerTLS(t, "https.p5early.test")},
		{"plain.p5early.test", "80", "http allow rule_allow plain.p5early.test", answerOnce},
		{"tcp.p5early.test", "7001", "conn allow rule_allow tcp.p5early.test", echoLine},
		{"pass.p5early.test", "7002", "conn allow passthrough_allow pass.p5early.test", answerTLS(t, "pass.p5early.test")},
	} {
		_, verdict, _ := strings.Cut(c.line, " ")
		asked := "dns " + verdict
		l.DNS.Script(c.host, func(q mdns.Question, m *mdns.Msg) {
			w.saw("question "+c.host, asked)
			if !slices.ContainsFunc(onDisk(t, w.dir), func(e *audit.Event) bool { return e.Message == "resolving "+c.host }) {
				t.Errorf("the question for %s left before it was recorded", c.host)
			}
			if q.Qtype == mdns.TypeA {
				m.Answer = []mdns.RR{&mdns.A{Hdr: mdns.RR_Header{Name: q.Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 60}, A: net.ParseIP(lab.Raw)}}
			}
		})
		l.Peer(t, lab.Raw+":"+c.port, func(p *lab.Peer, conn *net.TCPConn) {
			w.saw("connection "+c.host, c.line)
			c.serve(p, conn)
		})
	}
	for range 5 {
		if a := s.Get(t, "https://https.p5early.test/"); a.Status != 200 {
			t.Errorf("https: %d %s", a.Status, a.Body)
		}
		if a := s.Get(t, "http://plain.p5early.test/"); a.Status != 200 {
			t.Errorf("plain: %d %s", a.Status, a.Body)
		}
		c := s.Plain(t, "tcp.p5early.test:7001")
		c.Send(t, "line\n")
		if got := c.Rest(t, lab.StartTime); got != "echo line\n" {
			t.Errorf("tcp: %q", got)
		}
		tc, err := s.TLS("pass.p5early.test:7002", &tls.Config{RootCAs: originRoots(l)})
		must(t, err)
		_ = tc.Close() // the handshake went to the origin
	}
	for what, n := range map[string]int{"connection https.p5early.test": 5, "connection plain.p5early.test": 5,
		"connection tcp.p5early.test": 5, "connection pass.p5early.test": 5, "question tcp.p5early.test": 1} {
		if got := w.count(what); got < n {
			t.Errorf("%s: seen %d times, not %d", what, got, n)
		}
	}
}

// answerOnce answers one request and ends.
func answerOnce(_ *lab.Peer, c *net.TCPConn) { answerRequest(c) }

func answerRequest(c net.Conn) {
	if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok") // the gateway may have gone
	}
}

// answerTLS is answerOnce with TLS as host.
func answerTLS(t *testing.T, host string) func(*lab.Peer, *net.TCPConn) {
	t.Helper()
	leaf, err := world.lab.Origins.CA.Leaf(host, nil)
	must(t, err)
	return func(_ *lab.Peer, c *net.TCPConn) {
		tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*leaf}})
		defer tc.Close()
		answerRequest(tc)
	}
}

// TestP5FullDisk: when the log cannot be written traffic is refused and says
// why, nothing reaches an origin, and all goes on without a restart when there
// is room again. AUD-04.
func TestP5FullDisk(t *testing.T) {
	l := begin(t)
	state := smallDisk(t)
	disk, kept := l.Unique("disk")+".p5disk.test", l.Unique("kept")+".p5disk.test"
	g := l.Gateway(t, lab.GatewayOptions{State: state, Policy: one(fmt.Sprintf(`
sandbox "p5" {
  allow %q { addresses = DOCS }
  allow %q { addresses = DOCS }
}
`, disk, kept))})
	s := g.Attach(t, "p5")
	c := s.Client(t, false)
	get := func(host, path string) (lab.Answer, error) {
		return lab.Try(c, lab.NewRequest(t, "GET", "https://"+host+path, ""))
	}
	if a, err := get(kept, "/before"); err != nil || a.Status != 200 {
		t.Fatalf("before: %v %v", a.Status, err)
	}
	filler := filepath.Join(state, "filler")
	fill := func() { fillUp(t, filler) }
	fill()
	// Until nothing has been recorded for a while: when the log tries again, a
	// shorter line may still find room in its last block, of which there is one.
	const lines = 5 // of requests, that a block has room for at most
	var refused time.Time
	for i, served := 0, 0; refused.IsZero() || time.Since(refused) < 2*time.Second; i++ {
		fill() // what a rotation or a checkpoint freed
		a, err := get(kept, fmt.Sprintf("/during/%d", i))
		switch {
		case i > 1000:
			t.Fatalf("no request on the kept connection is told audit_unavailable: %d %s (%v)", a.Status, a.Reason(), err)
		case err == nil && a.Status == 503 && a.Reason() == "audit_unavailable":
			if refused.IsZero() {
				refused = time.Now()
			}
		case err == nil && a.Status == 200 && served < lines:
			refused = time.Time{}
			served++
		case err == nil:
			t.Fatalf("kept connection: got %d %s", a.Status, a.Reason())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if m, err := s.Ask(disk, mdns.TypeA); err == nil && len(m.Answer) > 0 {
		t.Errorf("a question was answered without a record: %v", m)
	}
	if _, err := get(disk, "/during"); err == nil {
		t.Error("a new connection was served without a record")
	}
	silent(t, disk)
	must(t, os.Remove(filler))
	if !lab.Within(lab.StartTime, func() bool { a, err := get(disk, "/after"); return err == nil && a.Status == 200 }) {
		t.Error("there is room again, and traffic is still refused")
	}
	must(t, g.Stop())
	verified(t, filepath.Join(state, "audit"))
	var recorded []string
	for _, e := range onDisk(t, filepath.Join(state, "audit")) {
		if e.Kind == "http" && e.Phase == audit.PhaseDecision && e.Verdict == "allow" {
			recorded = append(recorded, e.HTTP.Path)
		}
	}
	for _, q := range slices.Concat(origin(disk).Requests(), origin(kept).Requests()) {
		if !slices.Contains(recorded, q.Target) {
			t.Errorf("an origin saw %s, which is not in the log", q.Target)
		}
	}
}

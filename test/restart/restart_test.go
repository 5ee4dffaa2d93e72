//go:build linux

package restart_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/test/lab"
)

const origin = "kept.test"

// waiting is what a sandbox has sent while no daemon ran.
type waiting struct {
	s    *lab.Sandbox
	conn net.Conn
	dns  *dns.Conn // over UDP
	tcp  net.Conn  // of DNS
	id   uint16
}

// begin connects and asks, and makes sure that nothing is answered.
func begin(t *testing.T, s *lab.Sandbox, address string) *waiting {
	t.Helper()
	w := &waiting{s: s}
	var err error
	if w.conn, err = s.DialIP("tcp", address); err != nil {
		t.Fatalf("%s: a connection does not wait: %v", s.Name, err)
	}
	t.Cleanup(func() { w.conn.Close() })
	if w.tcp, err = s.DialIP("tcp", "192.0.2.53:53"); err != nil {
		t.Fatalf("%s: a connection for DNS does not wait: %v", s.Name, err)
	}
	t.Cleanup(func() { w.tcp.Close() })
	c, err := s.DialIP("udp", "192.0.2.53:53")
	must(t, err)
	t.Cleanup(func() { c.Close() })
	w.dns = &dns.Conn{Conn: c}
	m := new(dns.Msg)
	m.SetQuestion("sallyport.internal.", dns.TypeA)
	w.id = m.Id
	must(t, w.dns.WriteMsg(m))
	for _, c := range []net.Conn{w.conn, w.tcp, c} {
		must(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if n, err := c.Read(make([]byte, 512)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s: %d bytes are answered while nothing runs: %v", s.Name, n, err)
		}
	}
	return w
}

// answered makes sure that all of it is answered now.
func (w *waiting) answered(t *testing.T) {
	t.Helper()
	c, err := w.s.Handshake(w.conn, origin+":443", &tls.Config{ServerName: origin})
	if err != nil {
		t.Fatalf("%s: the connection that waited: %v\n%s", w.s.Name, err, w.s.Gateway.Stderr())
	}
	defer c.Close()
	req := lab.NewRequest(t, http.MethodGet, "https://"+origin+"/", "")
	must(t, c.SetDeadline(time.Now().Add(lab.StartTime)))
	must(t, req.Write(c))
	if a := lab.OnConn(t, c).Answer(t, http.MethodGet); a.Status != http.StatusOK {
		t.Errorf("%s: status %d %s", w.s.Name, a.Status, a.Reason())
	}
	must(t, w.dns.SetReadDeadline(time.Now().Add(lab.StartTime)))
	m, err := w.dns.ReadMsg()
	if err != nil || m.Id != w.id || len(m.Answer) == 0 {
		t.Errorf("%s: the question that waited: %v %v", w.s.Name, m, err)
	}
	over := &dns.Conn{Conn: w.tcp}
	must(t, over.SetDeadline(time.Now().Add(lab.StartTime)))
	q := new(dns.Msg)
	q.SetQuestion("sallyport.internal.", dns.TypeA)
	must(t, over.WriteMsg(q))
	if m, err := over.ReadMsg(); err != nil || len(m.Answer) == 0 {
		t.Errorf("%s: the DNS connection that waited: %v %v", w.s.Name, m, err)
	}
}

// nothing makes sure that none of it is answered, and that it was cut.
func (w *waiting) nothing(t *testing.T) {
	t.Helper()
	for _, c := range []net.Conn{w.conn, w.tcp} {
		must(t, c.SetDeadline(time.Now().Add(lab.StartTime)))
		if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %q %v", w.s.Name, b, err)
		}
	}
	must(t, w.dns.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
	if n, err := w.dns.Conn.Read(make([]byte, 512)); err == nil {
		t.Errorf("%s: %d bytes answer the question that waited", w.s.Name, n)
	}
}

func sandboxes(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		match := ""
		if name == "if" {
			match = `match { cidrs = ["10.66.92.0/24", "fd66:92::/64"] }`
		}
		fmt.Fprintf(&b, "sandbox %q {\n  %s\n  allow %q { addresses = [%q] }\n}\n", name, match, origin, lab.Origin+"/32")
	}
	return b.String()
}

// TestNothingIsLostOverARestart: what sandboxes send while the daemon is
// restarted, and after it was killed, waits, is answered by nobody, and is
// decided by the next daemon with its policy. What belonged to a sandbox that
// is no more is answered by nobody at all.
func TestNothingIsLostOverARestart(t *testing.T) {
	l := lab.New(t)
	v := l.Origins.Host(origin)
	v.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	g := l.UnstartedGateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": sandboxes("ns", "gone", "if")}, Interfaces: []string{"sb92"}})
	m := start(t, l, g)
	list := []*lab.Sandbox{g.Attach(t, "ns"), g.Interface(t, "if", 92)}
	gone := g.Attach(t, "gone")
	addresses := map[*lab.Sandbox]string{}
	for _, s := range append(list, gone) {
		a, err := s.Resolve(origin, dns.TypeA)
		must(t, err)
		addresses[s] = net.JoinHostPort(a.String(), "443")
	}
	m.keeps(t, 18, "three captures")
	var waits []*waiting
	wait := func() {
		waits = nil
		for _, s := range list {
			waits = append(waits, begin(t, s, addresses[s]))
		}
	}
	var never *waiting
	m.without(t, func() { m.systemctl(t, "restart", "--no-block", "sallyport.service") }, func() {
		wait()
		never = begin(t, gone, addresses[gone])
		g.WritePolicy(t, "p.hcl", sandboxes("ns", "if"))
	})
	for _, w := range waits {
		w.answered(t)
	}
	never.nothing(t)
	m.keeps(t, 12, "two captures")
	m.without(t, func() { m.systemctl(t, "kill", "--kill-who=main", "--signal=SIGKILL", "sallyport.service") }, func() {
		wait()
		g.WritePolicy(t, "p.hcl", sandboxes("ns", "gone", "if"))
	})
	for _, w := range waits {
		w.answered(t)
	}
	if _, err := gone.Ask("sallyport.internal", dns.TypeA); err != nil {
		t.Errorf("a sandbox that is again is not served: %v", err)
	}
	m.keeps(t, 18, "three captures, after a kill")
	// A reload that opens the interface anew lets go of its old sockets first.
	g.SetPolicy(t, "p.hcl", strings.Replace(sandboxes("ns", "gone", "if"), `"fd66:92::/64"`, `"fd66:92::/64", "10.66.93.7/32"`, 1))
	if _, err := list[1].Ask("sallyport.internal", dns.TypeA); err != nil {
		t.Errorf("an interface that was opened anew: %v\n%s", err, g.Stderr())
	}
	m.keeps(t, 18, "three captures, after a reload")
	m.systemctl(t, "stop", "sallyport.service")
	for _, s := range list {
		if c, err := s.DialIP("tcp", addresses[s]); err == nil {
			c.Close()
			t.Errorf("%s: a connection waits for a daemon that was stopped for good", s.Name)
		}
	}
	m.systemctl(t, "start", "sallyport.service")
	m.await(t)
	if b := []byte(g.Stderr()); bytes.Contains(b, []byte("DATA RACE")) || bytes.Contains(b, []byte("panic")) {
		t.Errorf("the daemon's log:\n%s", b)
	}
}

//go:build linux

package e2e_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"sallyport/test/lab"
)

// identity is the name in each place where a client can put one; "" leaves
// the place out.
type identity struct{ looked, sni, host, target string }

func (i identity) String() string {
	return strings.TrimSuffix(fmt.Sprintf("looked up %s, SNI %s, Host %s, target %s", i.looked, i.sni, i.host, i.target), ", target ")
}

// combinations are all ways to put a and b in the places, with and without a
// server name and with and without an absolute target.
func combinations(a, b string, sni bool) []identity {
	names := []string{a, b}
	snis, targets := []string{""}, []string{a, b, ""}
	if sni {
		snis = names
	}
	var out []identity
	for _, looked := range names {
		for _, s := range snis {
			for _, host := range names {
				for _, target := range targets {
					out = append(out, identity{looked, s, host, target})
				}
			}
		}
	}
	return out
}

// same says whether every place that is used has the same name.
func (i identity) same() bool {
	return (i.sni == "" || i.sni == i.looked) && i.host == i.looked && (i.target == "" || i.target == i.looked)
}

func p2Policy() map[string]string {
	return one(`
sandbox "p2" {
  allow "a.p2.test" { addresses = DOCS }
  allow "b.p2.test" { addresses = DOCS }
  allow "a.plain2.test" {
    schemes   = ["http"]
    addresses = DOCS
  }
  allow "b.plain2.test" {
    schemes   = ["http"]
    addresses = DOCS
  }
}
sandbox "other" {
  allow "a.p2.test" { addresses = DOCS }
}
`)
}

// TestP2OneIdentity: the name that was looked up, the server name, the
// authority and an absolute target are one name, or nothing is sent. All of
// them are allowed names; that they differ is what is refused.
func TestP2OneIdentity(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: p2Policy()})
	s := g.Attach(t, "p2")
	for _, name := range []string{"a.p2.test", "b.p2.test"} {
		origin(name).SetProtocols("http/1.1") // every byte is then of a request
	}
	t.Run("h1", func(t *testing.T) { p2TLS(t, s, "http/1.1", p2AskH1) })
	t.Run("h2", func(t *testing.T) { p2TLS(t, s, "h2", p2AskH2) })
	t.Run("plain", func(t *testing.T) { p2Plain(t, s) })
	t.Run("address", func(t *testing.T) { p2Addresses(t, g, s) })
}

// p2TLS makes one request for each combination and holds that only those of
// one name arrive.
func p2TLS(t *testing.T, s *lab.Sandbox, protocol string, ask func(*testing.T, *tls.Conn, identity) (int, string)) {
	for _, i := range combinations("a.p2.test", "b.p2.test", true) {
		before := p2Seen()
		c, err := s.Dial("tcp", i.looked+":443")
		must(t, err)
		tc, err := s.Handshake(c, "", &tls.Config{ServerName: i.sni, NextProtos: []string{protocol}})
		if err != nil {
			t.Errorf("%v: %v", i, err)
			continue
		}
		status, reason := ask(t, tc, i)
		_ = tc.Close() // judged by its answer
		if i.same() {
			if status != 200 || p2Seen() == before {
				t.Errorf("%v: got %d %s; the origin saw %v", i, status, reason, p2Seen())
			}
			continue
		}
		if status != 421 && status != 400 && status != 0 || status != 0 && !strings.HasPrefix(reason, "authority_") {
			t.Errorf("%v: got %d %s", i, status, reason)
		}
		if after := p2Seen(); after != before {
			t.Errorf("%v: the origins saw %v more than %v", i, after, before)
		}
	}
}

// seen counts what two origins saw: connections and bytes of each.
type seen struct{ connsA, connsB, bytesA, bytesB int }

func p2Seen() seen {
	a, b := origin("a.p2.test"), origin("b.p2.test")
	return seen{a.Conns(), b.Conns(), len(a.Raw()), len(b.Raw())}
}

func p2AskH1(t *testing.T, c *tls.Conn, i identity) (int, string) {
	w := lab.OnConn(t, c)
	target := "/p2"
	if i.target != "" {
		target = "https://" + i.target + target
	}
	w.Send(t, "GET "+target+" HTTP/1.1\r\nHost: "+i.host+"\r\n\r\n")
	a, err := w.TryAnswer("GET")
	if err != nil {
		return 0, err.Error()
	}
	return a.Status, a.Reason()
}

// p2AskH2 puts the target's name in :authority, and the Host in a field of
// that name beside it; without a target, only the Host field is sent.
func p2AskH2(t *testing.T, c *tls.Conn, i identity) (int, string) {
	h := newRawH2(t, c)
	fields := []field{{":method", "GET"}, {":scheme", "https"}, {":path", "/p2"}}
	if i.target != "" {
		fields = append(fields, field{":authority", i.target}, field{"host", i.host})
	} else {
		fields = append(fields, field{":authority", i.host})
	}
	got, err := h.ask(fields...)
	if err != nil {
		if !isRefusal(err) {
			t.Errorf("%v: %v", i, err)
		}
		return 0, err.Error()
	}
	var status int
	_, _ = fmt.Sscan(got[":status"], &status) // else 0
	return status, got["x-sallyport-reason"]
}

func p2Plain(t *testing.T, s *lab.Sandbox) {
	const a, b = "a.plain2.test", "b.plain2.test"
	raw := func() int { return len(origin(a).Raw()) + len(origin(b).Raw()) }
	for _, i := range combinations(a, b, false) {
		before := raw()
		w := s.Plain(t, i.looked+":80")
		target := "/p2"
		if i.target != "" {
			target = "http://" + i.target + target
		}
		w.Send(t, "GET "+target+" HTTP/1.1\r\nHost: "+i.host+"\r\nConnection: close\r\n\r\n")
		got, err := w.TryAnswer("GET")
		switch {
		case err != nil:
			t.Errorf("%v: %v", i, err)
		case i.same():
			if got.Status != 200 || raw() == before {
				t.Errorf("%v: got %d %s", i, got.Status, got.Reason())
			}
		case got.Status != 421 && got.Status != 400 || !strings.HasPrefix(got.Reason(), "authority_"):
			t.Errorf("%v: got %d %s", i, got.Status, got.Reason())
		case raw() != before:
			t.Errorf("%v: bytes went to an origin", i)
		}
	}
}

// p2Addresses holds that a sandbox never chooses where its bytes go.
func p2Addresses(t *testing.T, g *lab.Gateway, s *lab.Sandbox) {
	other := g.Attach(t, "other")
	theirs, err := other.Resolve("a.p2.test", 1)
	must(t, err)
	mine, err := s.Resolve("a.p2.test", 1)
	must(t, err)
	addresses := map[string]string{"the origin's own": lab.Origin, "one of the pool that stands for nothing here": "198.19.250.7"}
	if theirs != mine {
		addresses["another sandbox's"] = theirs.String()
	}
	before := p2Seen()
	for what, addr := range addresses {
		c, err := s.DialIP("tcp", net.JoinHostPort(addr, "443"))
		if err != nil {
			continue // refused at once
		}
		if tc, err := s.Handshake(c, "", &tls.Config{ServerName: "a.p2.test"}); err == nil {
			if status, reason := p2AskH1(t, tc, identity{host: "a.p2.test"}); status == 200 || status == 0 {
				t.Errorf("%s: got %d %s", what, status, reason)
			}
			_ = tc.Close() // judged by its answer
		}
	}
	if after := p2Seen(); after != before {
		t.Errorf("the origins saw %v, before %v", after, before)
	}
}

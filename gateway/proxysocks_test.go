package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/gateway/identity"
	"sallyport/policy"
)

// socksHello negotiates with the lab's credential.
func socksHello(password string) string {
	return "\x05\x02\x00\x02" + "\x01\x02ci" + string(rune(len(password))) + password
}

func socksName5(command byte, name string, port uint16) string {
	return string([]byte{5, command, 0, 3, byte(len(name))}) + name + string([]byte{byte(port >> 8), byte(port)})
}

// socksHead skips the answers to the negotiation.
func socksHead(t *testing.T, r io.Reader) {
	t.Helper()
	b := make([]byte, 4)
	_, err := io.ReadFull(r, b)
	must(t, err)
	if !bytes.Equal(b, []byte{5, 2, 1, 0}) {
		t.Fatalf("negotiation answered %x", b)
	}
}

func TestSOCKS(t *testing.T) {
	l := newLab(t)
	o := l.origin(t)
	l.allow("plain.test", o.port)
	l.load()
	addr := l.proxy(t)
	for _, c := range []struct {
		name, request, reason string
		code                  byte
	}{
		{"host", socksName5(1, "evil.test", 443), "host_not_allowed", 2},
		{"POL-17 port of SSH", socksName5(1, "plain.test", 22), "port_not_allowed", 2},
		{"address", "\x05\x01\x00\x01\xc0\x00\x02\x01\x01\xbb", "ip_literal", 2},
		{"address as a name", socksName5(1, "192.0.2.1", 443), "ip_literal", 2},
		{"address of IPv6", "\x05\x01\x00\x04" + string(netip.MustParseAddr("2001:db8::1").AsSlice()) + "\x01\xbb", "ip_literal", 2},
		{"mapped address", "\x05\x01\x00\x04" + string(netip.MustParseAddr("::ffff:192.0.2.1").AsSlice()) + "\x01\xbb", "ip_literal", 2},
		{"POL-08 brackets", socksName5(1, "[plain.test]", 443), "bad_hostname", 2},
		{"NUL in the name", socksName5(1, "plain.test\x00.evil.test", 443), "bad_hostname", 2},
		{"empty name", socksName5(1, "", 443), "bad_hostname", 2},
		{"BIND", socksName5(2, "plain.test", o.port), "connect_refused", 7},
		{"UDP", socksName5(3, "plain.test", o.port), "udp_blocked", 7},
		{"another kind of address", "\x05\x01\x00\x05abcd\x01\xbb", "protocol_error", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(l.events(decisions))
			_, r := speak(t, addr, socksHello(proxyPassword)+c.request)
			socksHead(t, r)
			b, _ := io.ReadAll(r) // closed after the answer
			if !bytes.Equal(b, socksReply(c.code)) {
				t.Errorf("answered %x, not %x", b, socksReply(c.code))
			}
			events := l.events(decisions)[before:]
			if len(events) != 1 || events[0].Reason != c.reason || events[0].Sandbox == nil {
				t.Errorf("records %+v", events)
			}
		})
	}
	t.Run("early request", func(t *testing.T) {
		_, r := speak(t, addr, socksHello(proxyPassword)+socksName5(1, "plain.test", o.port)+
			fmt.Sprintf("GET /hello HTTP/1.1\r\nHost: plain.test:%d\r\nConnection: close\r\n\r\n", o.port))
		socksHead(t, r)
		b, err := io.ReadAll(r)
		must(t, err)
		if !bytes.HasPrefix(b, socksReply(0)) || !strings.Contains(string(b), "200 OK") {
			t.Errorf("answered %q", b)
		}
	})
	for name, hello := range map[string]string{
		"no method":      "\x05\x01\x00",
		"wrong password": socksHello("x"),
		"SOCKS4":         "\x04\x01\x01\xbb\xc0\x00\x02\x01\x00",
	} {
		t.Run(name, func(t *testing.T) {
			before := len(l.events(decisions))
			_, r := speak(t, addr, hello)
			_, _ = io.ReadAll(r) // closed or reset
			if events := l.events(decisions)[before:]; len(events) != 1 || events[0].Verdict != "deny" || events[0].Sandbox != nil {
				t.Errorf("records %+v", events)
			}
		})
	}
}

// decisions are recorded before anybody is answered, which ends are not.
func decisions(e *audit.Event) bool { return e.Phase == audit.PhaseDecision }

func FuzzSOCKS(f *testing.F) {
	f.Add([]byte(socksHello("p") + socksName5(1, "a.test", 443)))
	f.Add([]byte("\x05\x01\x02\x01\x00\x00\x05\x01\x00\x04" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		if _, err := readSOCKSMethods(r); err != nil {
			return
		}
		if _, _, err := readSOCKSPassword(r); err != nil {
			return
		}
		q, err := readSOCKSRequest(r)
		if err != nil {
			return
		}
		if host, err := policy.CanonicalHost(q.host); err == nil && strings.ContainsAny(host, "\x00 /@%[]") {
			t.Errorf("host %q of %q", host, b)
		}
	})
}

// FuzzProxy holds that whatever a client of a proxy says leads to at most one
// connection for its sandbox, that nothing is allowed which policy does not
// allow, and that nothing ends the gateway.
func FuzzProxy(f *testing.F) {
	f.Add([]byte(connect("a.test:443") + "\x16\x03\x01"))
	f.Add([]byte("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: " + basic("ci", proxyPassword) + "\r\n\r\n"))
	f.Add([]byte(socksHello(proxyPassword) + socksName5(1, "a.test", 443)))
	f.Add([]byte("CONNECT x HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		log := &noted{}
		g := &Gateway{Deps: Deps{Logger: hclog.NewNullLogger(), Audit: log, Now: time.Now}}
		g.Limits.defaults()
		g.front = newFront(g)
		must(t, g.front.Close()) // plain requests are not served here
		nc := &played{r: bytes.NewReader(b), src: netip.MustParseAddrPort("127.0.0.1:1"), dst: netip.MustParseAddrPort("127.0.0.1:3128")}
		g.serveProxied(context.Background(), net.Conn(nc), func(user, password string) (*identity.Sandbox, bool) {
			return &identity.Sandbox{Name: "ci", ID: "1", Policy: "ci"}, user == "ci" && password == proxyPassword
		})
		if n := g.front.strangers.count(); n != 0 {
			t.Errorf("%d strangers are left", n)
		}
		if len(log.events) > maxCredentials {
			t.Errorf("%d records", len(log.events))
		}
		for _, e := range log.events {
			if e.Verdict != "deny" || e.Kind != audit.KindConn {
				t.Errorf("recorded %s %s of %q", e.Kind, e.Verdict, b)
			}
		}
	})
}

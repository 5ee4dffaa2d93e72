//go:build linux

package corpus_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

func namesPolicy() map[string]string {
	return map[string]string{"names.hcl": `
sandbox "pol01" {
  allow "trusted.test" { addresses = DOCS }
}
sandbox "pol03" {
  allow "*.pol03.test" { addresses = DOCS }
}
sandbox "pol06" {
  allow "Good.Pol06.Test" { addresses = DOCS }
  deny "EVIL.pol06.test" {}
}
sandbox "pol12" {}
sandbox "pol15" {
  allow "pol15.test" {
    schemes   = ["http", "https"]
    methods   = ["GET"]
    addresses = DOCS
  }
}
sandbox "pol16" {
  allow "pol16.test" {
    ports     = [8443]
    addresses = DOCS
  }
}
sandbox "pol21" {
  allow "strip.good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "block.good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
    foreign   = "block"
  }
  allow "own.good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
    foreign   = "pass"
  }
  allow "pass.good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
    foreign   = "pass"
  }
}
`}
}

func TestPOL01SuffixBoundary(t *testing.T) {
	begin(t)
	s := attached(t, "pol01")
	s.Expect(t, allowed("trusted.test"), func() { check(t, s.Get(t, "https://trusted.test/"), 200, "") })
	for _, host := range []string{"nottrusted.test", "trusted.test.evil.test", "a.trusted.test"} {
		t.Run("name "+host, func(t *testing.T) {
			if strings.HasPrefix(host, "trusted.test.") { // what a search list makes of an allowed name
				s.Expect(t, []string{"dns deny host_not_allowed " + host}, func() {
					if m, err := s.Ask(host, dns.TypeA); err != nil || m.Rcode != dns.RcodeNameError {
						t.Errorf("got %v, %v", m, err)
					}
				})
				return
			}
			s.Expect(t, unnamed(host, "host_not_allowed"), func() {
				check(t, s.Get(t, "https://"+host+"/"), 403, "host_not_allowed")
			})
		})
		t.Run("server name "+host, func(t *testing.T) {
			s.Expect(t, append(named("trusted.test"), "conn deny authority_mismatch trusted.test", "http deny authority_mismatch trusted.test"), func() {
				c, err := s.Dial("tcp", "trusted.test:443")
				if err != nil {
					t.Fatal(err)
				}
				a := sayTLS(t, s, c, host, get("/", host))
				check(t, a, 421, "authority_mismatch")
			})
		})
		t.Run("Host "+host, func(t *testing.T) {
			s.Expect(t, refused("trusted.test", "authority_mismatch"), func() {
				w := s.Secure(t, "trusted.test:443")
				w.Send(t, get("/", host))
				check(t, w.Answer(t, "GET"), 421, "authority_mismatch")
			})
		})
		silent(t, host)
		unasked(t, host)
	}
	if n := len(origin("trusted.test").Requests()); n != 1 {
		t.Errorf("the origin saw %d requests", n)
	}
}

// sayTLS completes a handshake for name on c, whatever c was dialled for,
// and sends one request.
func sayTLS(t *testing.T, s *lab.Sandbox, c net.Conn, name, request string) lab.Answer {
	t.Helper()
	tc, err := s.Handshake(c, "", &tls.Config{ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	w := lab.OnConn(t, tc)
	w.Send(t, request)
	return w.Answer(t, "GET")
}

// rejected holds that a policy does not load: nothing runs, and the message
// has every part.
func rejected(t *testing.T, text string, parts ...string) {
	t.Helper()
	r := world.lab.Run(t, lab.RunOptions{Policy: text, Argv: []string{"echo", "it", "ran"}})
	if r.Code != 125 || strings.Contains(r.Stdout, "it ran") {
		t.Errorf("exit %d, stdout %q", r.Code, r.Stdout)
	}
	for _, p := range parts {
		if !strings.Contains(r.Stderr, p) {
			t.Errorf("no %q in:\n%s", p, r.Stderr)
		}
	}
}

func TestPOL02StarGluedToName(t *testing.T) {
	begin(t)
	for _, tt := range []struct {
		pattern string
		parts   []string
	}{
		{"*good.test", []string{"*.good.test"}},
		{"good.*", nil},
		{"g*d.test", nil},
		{"*.*.test", nil},
		{"**", nil},
		{"*", []string{"any_host"}},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			rejected(t, fmt.Sprintf("sandbox \"s\" {\n  allow %q {}\n}\n", tt.pattern), append(tt.parts, "policy.hcl:2", tt.pattern)...)
		})
	}
	t.Run("a bare star never carries a secret", func(t *testing.T) {
		rejected(t, `
org { any_host = true }
secret "API_KEY" {
  hosts = ["*"]
  source "env" { name = "X" }
}
sandbox "s" {
  allow "*" {}
}
`, "policy.hcl:3", "API_KEY")
	})
}

func TestPOL03ApexAndDepth(t *testing.T) {
	begin(t)
	s := attached(t, "pol03")
	s.Expect(t, unnamed("pol03.test", "host_not_allowed"), func() {
		check(t, s.Get(t, "https://pol03.test/"), 403, "host_not_allowed")
	})
	for _, host := range []string{"a.pol03.test", "a.b.pol03.test", "under_score.pol03.test"} {
		s.Expect(t, allowed(host), func() {
			w := s.Secure(t, host+":443")
			leaf := w.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
			if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != host {
				t.Errorf("the leaf is for %v", leaf.DNSNames)
			}
			w.Send(t, get("/", host, "Connection: close"))
			check(t, w.Answer(t, "GET"), 200, "")
		})
	}
	for _, host := range []string{".pol03.test", "..pol03.test"} {
		s.Expect(t, refused("a.pol03.test", "bad_hostname"), func() {
			w := s.Secure(t, "a.pol03.test:443")
			w.Send(t, get("/", host))
			check(t, w.Answer(t, "GET"), 400, "bad_hostname")
		})
	}
}

func TestPOL05TrailingDot(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "pol05.good.test"
	s.Expect(t, allowed(host), func() {
		w := s.Secure(t, host+":443")
		w.Send(t, get("/", host+".", "Authorization: Bearer $API_KEY", "Connection: close"))
		check(t, w.Answer(t, "GET"), 200, "")
	})
	if q := origin(host).Requests(); len(q) != 1 || q[0].Header["Authorization"][0] != "Bearer "+real {
		t.Errorf("the origin saw %+v", q)
	}
	for _, tt := range []struct {
		host, reason string
		status       int
	}{
		{"evil.test.", "authority_mismatch", 421},
		{"169.254.169.254.", "authority_mismatch", 421},
		{host + "..", "bad_hostname", 400},
	} {
		t.Run(tt.host, func(t *testing.T) {
			s.Expect(t, refused(host, tt.reason), func() {
				w := s.Secure(t, host+":443")
				w.Send(t, get("/", tt.host))
				check(t, w.Answer(t, "GET"), tt.status, tt.reason)
			})
		})
	}
	t.Run("a denied name stays denied", func(t *testing.T) {
		s.Expect(t, unnamed("pol05.evil.test", "host_not_allowed"), func() {
			w := s.Plain(t, "pol05.evil.test:80")
			w.Send(t, get("/", "pol05.evil.test."))
			check(t, w.Answer(t, "GET"), 403, "host_not_allowed")
		})
	})
	t.Run("a server name has no dot", func(t *testing.T) { // RFC 6066, section 3
		s.Expect(t, append(named(host), "conn deny protocol_error "+host), func() {
			w := s.Plain(t, host+":443")
			w.Send(t, string(helloFor(t, host+".")))
			w.Rest(t, 3*time.Second)
		})
	})
}

func TestPOL06Case(t *testing.T) {
	begin(t)
	s := attached(t, "pol06")
	const host = "good.pol06.test"
	s.Expect(t, allowed(host), func() {
		c, err := s.Dial("tcp", "GoOd.PoL06.TeSt:443")
		if err != nil {
			t.Fatal(err)
		}
		tc, err := s.Handshake(c, "", &tls.Config{ServerName: "GoOd.PoL06.TeSt"})
		if err != nil {
			t.Fatal(err)
		}
		if got := tc.ConnectionState().PeerCertificates[0].DNSNames; len(got) != 1 || got[0] != host {
			t.Errorf("the leaf is for %v", got)
		}
		w := lab.OnConn(t, tc)
		w.Send(t, get("/", "GOOD.POL06.TEST:443", "Connection: close"))
		check(t, w.Answer(t, "GET"), 200, "")
	})
	s.Expect(t, unnamed("evil.pol06.test", "host_denied"), func() {
		check(t, s.Get(t, "https://EVIL.POL06.TEST/"), 403, "host_denied")
	})
}

func TestPOL08Brackets(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "pol08.good.test"
	for _, tt := range []string{"[" + host + "]:443", "[[evil.test]]:443", "[evil.test]:443", "[::1", host + ":443:443", "[" + host + "]"} {
		t.Run(tt, func(t *testing.T) {
			s.Expect(t, refused(host, "bad_hostname"), func() {
				w := s.Secure(t, host+":443")
				w.Send(t, get("/", tt))
				check(t, w.Answer(t, "GET"), 400, "bad_hostname")
				w.Rest(t, 3*time.Second)
			})
		})
	}
	t.Run("CONNECT", func(t *testing.T) {
		s.Expect(t, refused("pol08.plain.test", "connect_refused"), func() {
			w := s.Plain(t, "pol08.plain.test:80")
			w.Send(t, "CONNECT [evil.test]:443 HTTP/1.1\r\nHost: [evil.test]:443\r\n\r\n")
			check(t, w.Answer(t, "GET"), 405, "connect_refused")
		})
	})
	silent(t, host, "evil.test")
	check(t, s.Get(t, "https://"+host+"/"), 200, "")
}

func TestPOL11OddHostValues(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "pol11.good.test"
	for _, tt := range []struct{ name, head, reason string }{
		{"percent", get("/", "pol11.g%6fod.test"), "bad_hostname"},
		{"comma", get("/", host+",evil.test"), "bad_hostname"},
		{"space", get("/", host+" evil.test"), "authority_ambiguous"},
		{"userinfo", get("/", "evil.test@"+host), "authority_ambiguous"},
		{"none in 1.1", "GET / HTTP/1.1\r\nX: y\r\n\r\n", "authority_ambiguous"},
		{"two", get("/", host, "Host: evil.test"), "authority_ambiguous"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.Expect(t, refused(host, tt.reason), func() {
				w := s.Secure(t, host+":443")
				w.Send(t, tt.head)
				check(t, w.Answer(t, "GET"), 400, tt.reason)
			})
		})
	}
	t.Run("empty", func(t *testing.T) {
		s.Expect(t, refused("pol11.plain.test", "authority_ambiguous"), func() {
			w := s.Plain(t, "pol11.plain.test:80")
			w.Send(t, "GET / HTTP/1.1\r\nHost:\r\n\r\n")
			check(t, w.Answer(t, "GET"), 400, "authority_ambiguous")
		})
	})
	t.Run("HTTP/1.0 without Host in plain text", func(t *testing.T) {
		s.Expect(t, refused("pol11.plain.test", "authority_ambiguous"), func() {
			w := s.Plain(t, "pol11.plain.test:80")
			w.Send(t, "GET / HTTP/1.0\r\n\r\n")
			check(t, w.Answer(t, "GET"), 400, "authority_ambiguous")
		})
	})
	silent(t, host, "pol11.plain.test")
	t.Run("HTTP/1.0 without Host in TLS", func(t *testing.T) {
		s.Expect(t, allowed(host), func() {
			w := s.Secure(t, host+":443")
			w.Send(t, "GET / HTTP/1.0\r\n\r\n")
			check(t, w.Answer(t, "GET"), 200, "")
		})
	})
}

func TestPOL12EmptyAllowsNothing(t *testing.T) {
	l := begin(t)
	s := attached(t, "pol12")
	const host = "pol12.good.test"
	s.Expect(t, unnamed(host, "host_not_allowed"), func() {
		check(t, s.Get(t, "https://"+host+"/"), 403, "host_not_allowed")
	})
	s.Expect(t, unnamed(host, "host_not_allowed"), func() {
		check(t, s.Get(t, "http://"+host+"/"), 403, "host_not_allowed")
	})
	s.Expect(t, []string{"packet deny udp_blocked"}, func() { datagram(t, s, lab.Origin+":9999") })
	s.Expect(t, []string{"conn deny ip_literal 203.0.113.10"}, func() {
		s.Plain(t, lab.Origin+":443").Rest(t, 3*time.Second)
	})
	silent(t, host)
	unasked(t, host)

	t.Run("allow = []", func(t *testing.T) { rejected(t, "sandbox \"s1\" {\n  allow = []\n}\n", "policy.hcl:2", "allow") })
	t.Run("empty file", func(t *testing.T) { rejected(t, "", "empty") })
	t.Run("no block for this sandbox", func(t *testing.T) {
		r := l.Run(t, lab.RunOptions{Policy: "sandbox \"other\" {}\n", Sandbox: "s1", Argv: []string{"echo", "it ran"}})
		if r.Code != 125 || strings.Contains(r.Stdout, "it ran") || !strings.Contains(r.Stderr, `no sandbox "s1"`) {
			t.Errorf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
	})
	t.Run("run of an empty block", func(t *testing.T) {
		r := l.Run(t, lab.RunOptions{Policy: "sandbox \"s1\" {}\n", UID: lab.Nobody,
			Argv: []string{"curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "https://" + host + "/"}})
		if r.Stdout != "403" {
			t.Errorf("curl got %q: %s", r.Stdout, r.Stderr)
		}
	})
}

// datagram sends one datagram and holds that its sender is told at once.
func datagram(t *testing.T, s *lab.Sandbox, address string) {
	t.Helper()
	c, err := s.DialIP("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("secret data")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	if n, err := c.Read(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes came back", n)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		t.Error("the sender was not told that the datagram is refused")
	}
}

func TestPOL13BroadAllowStaysBelowDenyAndAddresses(t *testing.T) {
	l := begin(t)
	l.DNS.Set("private.pol13.test", "60 A 10.0.0.5")
	l.DNS.Set("metadata.pol13.test", "60 A 169.254.169.254")
	allow := "  allow \"*\" {}\n  allow \"any.pol13.test\" { addresses = DOCS }\n"
	deny := "  deny \"evil.pol13.test\" {}\n  deny \"*.evil.pol13.test\" {}\n"
	for name, body := range map[string]string{"allow first": allow + deny, "deny first": deny + allow} {
		t.Run(name, func(t *testing.T) {
			s := l.RunSandbox(t, lab.RunOptions{Sandbox: "s1", UID: lab.Nobody,
				Policy: l.MustPolicy(t, "org {\n  any_host = true\n"+allow+"}\nsandbox \"s1\" {\n"+body+"}\n", real)})
			s.Expect(t, allowed("any.pol13.test"), func() { check(t, s.Get(t, "https://any.pol13.test/"), 200, "") })
			for _, host := range []string{"evil.pol13.test", "A.EVIL.pol13.test"} {
				s.Expect(t, unnamed(strings.ToLower(host), "host_denied"), func() {
					check(t, s.Get(t, "https://"+host+"/"), 403, "host_denied")
				})
			}
			for host, reason := range map[string]string{"private.pol13.test": "resolves_private", "metadata.pol13.test": "resolves_metadata"} {
				s.Expect(t, refused(host, reason), func() { check(t, s.Get(t, "https://"+host+"/"), 403, reason) })
			}
			s.Expect(t, []string{"conn deny ip_literal 203.0.113.10"}, func() {
				s.Plain(t, lab.Origin+":443").Rest(t, 3*time.Second)
			})
		})
	}
}

func TestPOL14Literal(t *testing.T) {
	alone(t) // it measures how soon a connection is refused
	s := s1(t)
	for _, ip := range []string{lab.Origin, lab.Origin6} {
		t.Run("no server name "+ip, func(t *testing.T) {
			s.Expect(t, []string{"conn deny ip_literal " + ip}, func() {
				begun := time.Now()
				_, err := s.TLS(net.JoinHostPort(ip, "443"), &tls.Config{InsecureSkipVerify: true})
				if err == nil {
					t.Error("the handshake completed")
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
		t.Run("the name of an allowed host inside "+ip, func(t *testing.T) {
			s.Expect(t, []string{"conn deny ip_literal " + ip, "http deny ip_literal " + ip}, func() {
				c, err := s.DialIP("tcp", net.JoinHostPort(ip, "443"))
				if err != nil {
					t.Fatal(err)
				}
				a := sayTLS(t, s, c, "pol14.good.test", get("/", "pol14.good.test", "Authorization: Bearer $API_KEY"))
				check(t, a, 403, "ip_literal")
			})
		})
		t.Run("plain "+ip, func(t *testing.T) {
			s.Expect(t, []string{"conn deny ip_literal " + ip, "http deny ip_literal " + ip}, func() {
				w := s.Plain(t, net.JoinHostPort(ip, "80"))
				w.Send(t, get("/", "pol14.plain.test"))
				check(t, w.Answer(t, "GET"), 403, "ip_literal")
			})
		})
	}
	silent(t, "pol14.good.test", "pol14.plain.test")
}

func TestPOL15PlainHTTPObeysTheSameRules(t *testing.T) {
	begin(t)
	s := attached(t, "pol15")
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			s.Expect(t, unnamed("pol15.evil.test", "host_not_allowed"), func() {
				check(t, s.Get(t, scheme+"://pol15.evil.test/?d=SECRET"), 403, "host_not_allowed")
			})
			s.Expect(t, allowed("pol15.test"), func() { check(t, s.Get(t, scheme+"://pol15.test/"), 200, "") })
			s.Expect(t, refused("pol15.test", "method_not_allowed"), func() {
				check(t, lab.Do(t, s.Client(t, false), lab.NewRequest(t, "POST", scheme+"://pol15.test/", "x")), 403, "method_not_allowed")
			})
		})
	}
	silent(t, "pol15.evil.test")
	if n := len(origin("pol15.test").Requests()); n != 2 {
		t.Errorf("the origin saw %d requests", n)
	}
}

func TestPOL16EveryOtherPort(t *testing.T) {
	alone(t) // it is a flood
	s := s1(t)
	const host = "pol16.good.test"
	s.Expect(t, append(named(host), "conn deny port_not_allowed "+host, "http deny port_not_allowed "+host), func() {
		check(t, s.Get(t, "http://"+host+":5432/"), 403, "port_not_allowed")
	})
	s.Expect(t, append(named(host), "conn deny port_not_allowed "+host, "http deny port_not_allowed "+host), func() {
		check(t, s.Get(t, "https://"+host+":8443/"), 403, "port_not_allowed")
	})
	s.Expect(t, []string{"conn deny ip_literal 203.0.113.10"}, func() { s.Plain(t, lab.Origin+":22").Rest(t, 3*time.Second) })
	s.Expect(t, []string{"packet deny udp_blocked"}, func() { datagram(t, s, lab.Origin+":9999") })
	silent(t, host)

	t.Run("a port that is named", func(t *testing.T) {
		s := attached(t, "pol16")
		s.Expect(t, allowed("pol16.test"), func() { check(t, s.Get(t, "https://pol16.test:8443/"), 200, "") })
		s.Expect(t, append(named("pol16.test"), "conn deny port_not_allowed pol16.test", "http deny port_not_allowed pol16.test"), func() {
			check(t, s.Get(t, "https://pol16.test/"), 403, "port_not_allowed")
		})
	})
	t.Run("sweep", func(t *testing.T) {
		s := s1(t)
		a, err := s.Resolve("sweep."+host, dns.TypeA)
		if err != nil {
			t.Fatal(err)
		}
		// What another case is about: the resolver's port, DNS over TLS, plain
		// HTTP, and the one that is open.
		apart := map[int]bool{53: true, 853: true, 80: true, 443: true}
		var next atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for port := int(next.Add(1)); port < 65536; port = int(next.Add(1)) {
					if apart[port] {
						continue
					}
					c, err := s.DialIP("tcp", net.JoinHostPort(a.String(), fmt.Sprint(port)))
					if errors.Is(err, syscall.ECONNRESET) {
						continue // before it was known here that it was open
					}
					if err != nil {
						t.Errorf("port %d: %v", port, err)
						continue
					}
					_ = c.Close()
				}
			})
		}
		wg.Wait()
		const every = 65535 - 4
		count := func() (n int) {
			for _, e := range world.gateway.Events(audit.Filter{Kind: "conn"}) {
				if e.Sandbox == nil || e.Sandbox.ID != s.ID || e.Phase != "decision" {
					continue
				}
				if n += int(max(e.Count, 1)); e.Verdict != "deny" || e.Reason != "port_not_allowed" && e.Reason != "connection_limit" {
					t.Fatalf("recorded: %s", lab.Line(e))
				}
			}
			return n
		}
		for end := time.Now().Add(30 * time.Second); count() < every && time.Now().Before(end); { // what was too much at once is told together, later
			time.Sleep(200 * time.Millisecond)
		}
		if n := count(); n != every {
			t.Errorf("%d refused ports are recorded, of %d", n, every)
		}
		silent(t, "sweep."+host)
	})
}

func TestPOL17SSH(t *testing.T) {
	alone(t) // it measures how soon a connection is refused
	s := s1(t)
	const host = "pol17.good.test"
	s.Expect(t, append(named(host), "conn deny port_not_allowed "+host), func() {
		begun := time.Now()
		w := s.Plain(t, host+":22")
		w.Send(t, "SSH-2.0-OpenSSH_9.9\r\n")
		if got := w.Rest(t, 3*time.Second); got != "" {
			t.Errorf("it was answered %q", got)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	events := s.Expect(t, append(named(host), "conn deny not_tls "+host), func() {
		w := s.Plain(t, host+":443")
		w.Send(t, "SSH-2.0-OpenSSH_9.9\r\n")
		if got := w.Rest(t, 3*time.Second); got != "" {
			t.Errorf("it was answered %q", got)
		}
	})
	if last := events[len(events)-1]; !strings.Contains(last.Message, "HTTPS remote") {
		t.Errorf("the record says %q", last.Message)
	}
	s.Expect(t, refused("pol17.plain.test", "connect_refused"), func() {
		w := s.Plain(t, "pol17.plain.test:80")
		w.Send(t, "CONNECT "+host+":22 HTTP/1.1\r\nHost: "+host+":22\r\n\r\n")
		check(t, w.Answer(t, "GET"), 405, "connect_refused")
	})
	silent(t, host, "pol17.plain.test")
}

func TestPOL19Typos(t *testing.T) {
	l := begin(t)
	for _, tt := range []struct {
		name, text string
		parts      []string
	}{
		{"misspelt block", "sandbox \"s\" {\n  alow \"a.test\" {}\n}\n", []string{"policy.hcl:2", "alow", "allow"}},
		{"misspelt attribute", "sandbox \"s\" {\n  allow \"a.test\" {\n    metods = [\"GET\"]\n  }\n}\n", []string{"policy.hcl:3", "metods", "methods"}},
		{"wrong type", "sandbox \"s\" {\n  allow \"a.test\" {\n    ports = \"https\"\n  }\n}\n", []string{"policy.hcl:3", "ports"}},
		{"declared twice", "sandbox \"s\" {}\nsandbox \"s\" {}\n", []string{"policy.hcl:2", "policy.hcl:1"}},
		{"wrong place", "allow \"a.test\" {}\nsandbox \"s\" {}\n", []string{"policy.hcl:1", "allow"}},
		{"undeclared secret", "sandbox \"s\" {\n  allow \"a.test\" {\n    inject = [\"NO_SUCH_KEY\"]\n  }\n}\n", []string{"policy.hcl:3", "NO_SUCH_KEY"}},
		{"unclosed brace", "sandbox \"s\" {\n  allow \"a.test\" {}\n", []string{"policy.hcl:"}},
		{"every problem at once", "sandbox \"s\" {\n  alow \"a.test\" {}\n  allow \"*b.test\" {}\n  deny \"c.test\" { methds = 1 }\n}\n",
			[]string{"policy.hcl:2", "policy.hcl:3", "policy.hcl:4"}},
	} {
		t.Run(tt.name, func(t *testing.T) { rejected(t, tt.text, tt.parts...) })
	}
	for name, text := range map[string]string{
		"BOM":  "\ufeffsandbox \"s\" {}\n",
		"CRLF": "sandbox \"s\" {\r\n  allow \"a.test\" {}\r\n}\r\n",
	} {
		t.Run(name+" is accepted", func(t *testing.T) {
			if r := l.Run(t, lab.RunOptions{Policy: text, Argv: []string{"echo", "it ran"}}); r.Code != 0 || r.Stdout != "it ran\n" {
				t.Errorf("exit %d: %s", r.Code, r.Stderr)
			}
		})
	}
}

func TestPOL21ForeignCredential(t *testing.T) {
	begin(t)
	s := attached(t, "pol21")
	post := func(host string, lines ...string) lab.Answer {
		return lab.Do(t, s.Client(t, false), lab.NewRequest(t, "POST", "https://"+host+"/v1/files", "data", lines...))
	}
	const strip, block, pass = "strip.good.test", "block.good.test", "pass.good.test"
	events := s.Expect(t, allowed(strip), func() {
		check(t, post(strip, "Authorization: Bearer attacker-key", "X-Api-Key: attacker-key"), 200, "")
	})
	if u := events[2].Secrets; len(u) != 2 || u[0].Action != "stripped" || u[1].Action != "stripped" {
		t.Errorf("recorded uses: %+v", u)
	}
	s.Expect(t, refused(block, "foreign_credential"), func() {
		check(t, post(block, "Authorization: Bearer attacker-key"), 403, "foreign_credential")
	})
	s.Expect(t, refused(block, "foreign_credential"), func() {
		check(t, post(block, "Authorization: Bearer $API_KEY", "X-Api-Key: attacker-key"), 403, "foreign_credential")
	})
	silent(t, block)
	s.Expect(t, allowed(pass), func() { check(t, post(pass, "Authorization: Bearer attacker-key"), 200, "") })
	s.Expect(t, allowed(strip), func() { check(t, post(strip, "Authorization: Bearer $API_KEY"), 200, "") })
	for i, want := range []string{"", "Bearer " + real} {
		q := origin(strip).Requests()[i]
		if got := strings.Join(q.Header["Authorization"], "|"); got != want || len(q.Header["X-Api-Key"]) != 0 {
			t.Errorf("request %d: the origin saw %v", i, q.Header)
		}
	}
	if got := origin(pass).Requests()[0].Header["Authorization"]; len(got) != 1 || got[0] != "Bearer attacker-key" {
		t.Errorf("with foreign = pass the origin saw %q", got)
	}
}

func TestPOL22BigPolicy(t *testing.T) {
	l := alone(t) // it takes both processors and a gigabyte
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, "group \"g%d\" {\n", i)
		for j := range 1000 {
			fmt.Fprintf(&b, "  allow \"h%d-%d.pol22.test\" { addresses = DOCS }\n", i, j)
		}
		for j := range 200 {
			fmt.Fprintf(&b, "  allow \"*.w%d-%d.pol22.test\" { addresses = DOCS }\n", i, j)
		}
		b.WriteString("}\n")
	}
	for i := range 200 {
		fmt.Fprintf(&b, "sandbox \"s%d\" {\n  use = [\"g%d\", \"g%d\"]\n}\n", i, i%50, (i+1)%50)
	}
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, b.String(), real)}})
	s := g.Attach(t, "s49")
	resident := func() int {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.PID()))
		if err != nil {
			t.Fatal(err)
		}
		var kib int
		_, after, _ := strings.Cut(string(b), "VmRSS:")
		if _, err := fmt.Sscan(after, &kib); err != nil {
			t.Fatal(err)
		}
		return kib >> 10
	}
	s.Expect(t, byGroup("h49-999.pol22.test"), func() { check(t, s.Get(t, "https://h49-999.pol22.test/"), 200, "") })
	s.Expect(t, byGroup("deep.er.w0-199.pol22.test"), func() { check(t, s.Get(t, "https://deep.er.w0-199.pol22.test/"), 200, "") })
	s.Expect(t, unnamed("h1-1.pol22.test", "host_not_allowed"), func() {
		check(t, s.Get(t, "https://h1-1.pol22.test/"), 403, "host_not_allowed")
	})
	hold := s.Secure(t, "h49-1.pol22.test:443")
	hold.Send(t, get("/lab/sse?n=40&ms=25", "h49-1.pol22.test", "Connection: close"))
	begun := time.Now()
	if err := g.Reload(); err != nil {
		t.Error(err)
	}
	took := time.Since(begun)
	if a := hold.Answer(t, "GET"); strings.Count(a.Body, "data:") != 40 {
		t.Errorf("the stream broke at the reload: %q", a.Body)
	}
	if got := g.Await(t, 2, audit.Filter{Kind: "policy"}); len(got) != 2 {
		t.Errorf("%d changes of policy were recorded", len(got))
	}
	client := s.Client(t, true)
	for i := range 500 {
		if a, err := lab.Try(client, lab.NewRequest(t, "GET", fmt.Sprintf("https://h49-%d.pol22.test/", i%5), "")); err != nil || a.Status != 200 {
			t.Fatalf("request %d: %d, %v", i, a.Status, err)
		}
	}
	var added []float64 // by the gateway to a request, in ms: the decision, its record and what stands around
	for _, e := range g.Events(audit.Filter{Kind: "http"}) {
		if e.Phase == "end" {
			added = append(added, e.GatewayMS)
		}
	}
	slices.Sort(added)
	median, p99 := added[len(added)/2], added[len(added)*99/100]
	t.Logf("reloaded in %v; of %d requests half took the gateway %.2f ms and 99%% %.2f ms; %d MiB are resident", took, len(added), median, p99, resident())
	// Wide bounds, also for a machine that is busy and a build that detects
	// races: a search through the list would be far beyond them.
	if median > 25 || p99 > 500 || took > time.Minute || resident() > 3000 {
		t.Error("a policy of this size costs too much")
	}
}

// byGroup is an allowed request under the rule of a group.
func byGroup(host string) []string {
	return []string{"dns allow group_allow " + host, "conn allow group_allow " + host, "http allow group_allow " + host}
}

//go:build linux

package audit_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/policy"
	"sallyport/test/lab"
)

// realValue is the value of the secrets of the reasons' policy.
const realValue = "REAL-aud17-61c0f2d9a4-value"

// reasonsPolicy has a host for each way in which an attempt can fail.
const reasonsPolicy = `
secret "API_KEY" {
  hosts = ["*.key.test"]
  source "file" { path = "SECRETFILE" }
}
secret "BODY_KEY" {
  hosts = ["*.body.test"]
  source "file" { path = "SECRETFILE" }
  body { types = ["application/json"] }
}
secret "LOST_KEY" {
  hosts = ["*.lost.test"]
  source "file" { path = "/nonexistent/key" }
}
group "shared" {
  allow "*.group.test" { addresses = DOCS }
}
sandbox "all" {
  use = ["shared"]
  allow "*.good.test" { addresses = DOCS }
  allow "*.key.test" {
    addresses = DOCS
    schemes   = ["http", "https"]
    inject    = ["API_KEY"]
    foreign   = "block"
  }
  allow "*.body.test" {
    addresses = DOCS
    inject    = ["BODY_KEY"]
  }
  allow "*.lost.test" {
    addresses = DOCS
    inject    = ["LOST_KEY"]
  }
  allow "*.plain.test" {
    addresses = DOCS
    schemes   = ["http"]
  }
  allow "*.get.test" {
    addresses = DOCS
    methods   = ["GET"]
  }
  allow "*.paths.test" {
    addresses = DOCS
    paths     = ["/ok/**"]
  }
  allow "*.query.test" {
    addresses = DOCS
    query     = { v = ["1"] }
  }
  allow "*.header.test" {
    addresses = DOCS
    headers   = { X-V = ["1"] }
  }
  allow "*.gone.test" {
    addresses = DOCS
    expires   = "2020-01-01"
  }
  allow "*.anywhere.test" {}
  allow "*.narrow.test" { addresses = ["192.0.2.0/24"] }
  deny "*.denied.test" {}
  passthrough "*.pass.test" { addresses = DOCS }
  tcp "db.raw.test:5432" { addresses = DOCS }
  git "git.test/acme/app" {
    access    = "read"
    addresses = DOCS
  }
}
sandbox "report" { mode = "report" }
sandbox "trip" {
  credentials = "block"
  allow "*.good.test" { addresses = DOCS }
}
sandbox "slow" {
  limits { requests_per_minute = 1 }
  allow "*.good.test" { addresses = DOCS }
}
sandbox "few" {
  limits { connections = 1 }
  allow "*.good.test" { addresses = DOCS }
}
sandbox "small" {
  limits { max_request = 10 }
  allow "*.good.test" { addresses = DOCS }
}
sandbox "spent" {
  limits { bytes_sent_per_day = 2000 }
  allow "*.good.test" { addresses = DOCS }
}
`

// provocation is an attempt that ends with a decision of one reason.
type provocation struct {
	sandbox string // "": all
	try     func(t *testing.T, s *lab.Sandbox)
}

// asking provokes with a question.
func asking(name string, kind uint16) provocation {
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		if _, err := s.Ask(name, kind); err != nil {
			t.Fatal(err)
		}
	}}
}

// getting provokes with a request.
func getting(url string, lines ...string) provocation {
	return sending("GET", url, "", lines...)
}

func sending(method, url, body string, lines ...string) provocation {
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		_, _ = lab.Try(s.Client(t, false), lab.NewRequest(t, method, url, body, lines...)) // what came of it is in the log
	}}
}

// writing provokes with bytes on a connection without TLS.
func writing(address, bytes string) provocation {
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		w := s.Plain(t, address)
		_ = w.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(w, bytes) // what is refused as a connection is not waited for long
		w.Rest(t, 10*time.Second)
	}}
}

// secure provokes with bytes of HTTP/1.1 inside TLS.
func secure(host, bytes string) provocation {
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		w := s.Secure(t, host+":443")
		w.Send(t, bytes)
		_, _ = w.TryAnswer("GET") // what came of it is in the log
	}}
}

// shaking provokes with a handshake.
func shaking(host string, c *tls.Config) provocation {
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		conn, err := s.Dial("tcp", host+":443")
		must(t, err)
		if tc, err := s.Handshake(conn, host, c); err == nil {
			must(t, tc.Close())
		}
	}}
}

// resolving provokes with a host that resolves to records.
func resolving(name string, records ...string) provocation {
	host := name + ".anywhere.test"
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		s.Lab.DNS.Set(host, records...)
		getting("https://"+host+"/").try(t, s)
	}}
}

// packet provokes with one raw packet.
func packet(protocol int, payload string) provocation {
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		must(t, s.NS.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			to := &unix.SockaddrInet4{}
			copy(to.Addr[:], net.ParseIP(lab.Origin).To4())
			if err := unix.Sendto(fd, []byte(payload), 0, to); err != unix.EPERM && err != unix.EHOSTUNREACH && err != unix.EACCES {
				return err
			}
			return nil // refused at once
		}))
	}}
}

func datagram(port string) provocation {
	return provocation{try: func(t *testing.T, s *lab.Sandbox) {
		c, err := s.DialIP("udp", net.JoinHostPort(lab.Origin, port))
		must(t, err)
		defer c.Close()
		_, _ = c.Write([]byte("data")) // refused at once
	}}
}

const wsHead = "GET / HTTP/1.1\r\nHost: up.good.test\r\nConnection: Upgrade\r\nUpgrade: x-own\r\n\r\n"

// provocations has one for each reason that a running gateway can give by
// itself; reasonsElsewhere are the others.
func provocations() map[policy.Reason]provocation {
	in := func(sandbox string, p provocation) provocation { p.sandbox = sandbox; return p }
	return map[policy.Reason]provocation{
		policy.RuleAllow:        asking("a.good.test", dns.TypeA),
		policy.GroupAllow:       asking("a.group.test", dns.TypeA),
		policy.PassthroughAllow: shaking("a.pass.test", &tls.Config{InsecureSkipVerify: true, ServerName: "a.pass.test"}),
		policy.ReportMode:       in("report", asking("a.evil.test", dns.TypeA)),
		policy.GatewayName:      asking("sallyport.internal", dns.TypeA),

		policy.HostNotAllowed:    asking("a.evil.test", dns.TypeA),
		policy.HostDenied:        asking("a.denied.test", dns.TypeA),
		policy.PortNotAllowed:    writing("port.good.test:8443", "\x00"),
		policy.SchemeNotAllowed:  writing("a.good.test:443", "GET / HTTP/1.1\r\nHost: a.good.test\r\nConnection: close\r\n\r\n"),
		"no_rule_matched":        getting("https://a.header.test/", "X-V: 2"),
		policy.MethodNotAllowed:  sending("DELETE", "https://a.get.test/", ""),
		policy.PathNotAllowed:    getting("https://a.paths.test/other"),
		"query_not_allowed":      getting("https://a.query.test/?v=2"),
		policy.AmbiguousPath:     secure("a.paths.test", "GET /ok/%2e%2e/x HTTP/1.1\r\nHost: a.paths.test\r\n\r\n"),
		policy.GitPushNotAllowed: getting("https://git.test/acme/app/info/refs?service=git-receive-pack"),
		policy.RuleExpired:       asking("a.gone.test", dns.TypeA),
		"qtype_not_allowed":      asking("a.good.test", dns.TypeTXT),

		policy.NoSNI:              shaking("sni.good.test", &tls.Config{InsecureSkipVerify: true}),
		policy.IPLiteral:          writing(lab.Origin+":443", "\x00"),
		policy.AuthorityMismatch:  secure("am.good.test", "GET / HTTP/1.1\r\nHost: other.good.test\r\n\r\n"),
		policy.AuthorityAmbiguous: secure("aa.good.test", "GET / HTTP/1.1\r\nHost: aa.good.test\r\nHost: aa.good.test\r\n\r\n"),
		"ech_unsupported": {try: func(t *testing.T, s *lab.Sandbox) {
			w := s.Plain(t, "ech.pass.test:443")
			w.Send(t, withECH(t, "ech.pass.test"))
			_, _ = w.Read(make([]byte, 1)) // the gateway opens TLS itself, to explain
		}},
		policy.NotTLS:       writing("raw.good.test:443", "\x00\x01\x02\x03"),
		"not_http":          writing("raw.plain.test:80", "\x00\x01\x02\x03"),
		policy.BadHostname:  asking(`a\032b.good.test`, dns.TypeA),
		policy.StaleAddress: writing("198.19.77.7:443", "\x00\x01"),

		policy.ResolvesPrivate:   resolving("private", "60 A 10.0.0.5"),
		policy.ResolvesLoopback:  resolving("loopback", "60 A 127.0.0.1"),
		policy.ResolvesLinkLocal: resolving("linklocal", "60 A 169.254.1.1"),
		policy.ResolvesMetadata:  resolving("metadata", "60 A 169.254.169.254"),
		policy.ResolvesEmbedded:  resolving("embedded", "60 AAAA 64:ff9b::a9fe:a9fe"),
		policy.ResolvesSelf:      resolving("self", "60 A "+lab.Uplink),
		policy.ResolvesReserved:  resolving("reserved", "60 A 198.18.0.5"),
		policy.ResolveFailed:     resolving("loop", "60 CNAME loop.anywhere.test."),
		policy.AddressNotInRule:  getting("https://a.narrow.test/"),

		policy.PlaceholderLeak:    getting("https://leak.good.test/", "Authorization: Bearer $API_KEY"),
		policy.PlaceholderPlace:   getting("https://place.key.test/", "X-Data: $API_KEY"),
		policy.PlaintextInjection: getting("http://plain.key.test/", "Authorization: Bearer $API_KEY"),
		policy.SecretUnavailable:  getting("https://a.lost.test/", "Authorization: Bearer $LOST_KEY"),
		policy.SecretExfiltration: {try: func(t *testing.T, s *lab.Sandbox) {
			getting("https://out.key.test/", "Authorization: Bearer $API_KEY").try(t, s) // it is known from its first use on
			getting("https://out.good.test/"+realValue).try(t, s)
		}},
		policy.ForeignCredential: getting("https://foreign.key.test/", "Authorization: Bearer somebody-elses-credential"),
		policy.CredentialPattern: in("trip", getting("https://trip.good.test/", "X-Data: ghp_Zp3QmXw8LrT5vKc1NbYd7FhJs2Gu9AoEiR4q")),
		policy.UninspectableBody: sending("POST", "https://ub.body.test/", `{"key": "$BODY_KEY"}`, "Content-Type: application/json", "Content-Encoding: x-own"),

		policy.Smuggling:         secure("smuggling.good.test", "POST / HTTP/1.1\r\nHost: smuggling.good.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		policy.HeaderTooLarge:    secure("head.good.test", "GET /"+strings.Repeat("u", 200<<10)+" HTTP/1.1\r\nHost: head.good.test\r\n\r\n"),
		policy.BodyTooLarge:      in("small", sending("POST", "https://big.good.test/", "more than ten bytes")),
		policy.UpgradeNotAllowed: secure("up.good.test", wsHead),
		policy.ConnectRefused:    secure("connect.good.test", "CONNECT connect.good.test:443 HTTP/1.1\r\nHost: connect.good.test:443\r\n\r\n"),
		policy.ProtocolError:     writing("pe.good.test:443", "\x16\x03\x01\x00\x05hello"),
		policy.QUICBlocked:       datagram("443"),
		policy.UDPBlocked:        datagram("9999"),
		policy.ICMPBlocked:       packet(unix.IPPROTO_ICMP, "\x08\x00\x00\x00\x00\x01\x00\x01data"),
		policy.ProtoBlocked:      packet(unix.IPPROTO_GRE, "\x00\x00\x08\x00tunnel"),
		policy.DoTBlocked:        writing("dot.good.test:853", "\x00"),

		policy.RateLimited: in("slow", provocation{try: func(t *testing.T, s *lab.Sandbox) {
			getting("https://rate.good.test/").try(t, s)
			getting("https://rate.good.test/").try(t, s)
		}}),
		policy.ConnectionLimit: in("few", provocation{try: func(t *testing.T, s *lab.Sandbox) {
			s.Secure(t, "limit.good.test:443")
			_, _ = s.TLS("limit.good.test:443", nil) // it is reset
		}}),
		"byte_budget": in("spent", provocation{try: func(t *testing.T, s *lab.Sandbox) {
			sending("POST", "https://budget.good.test/", strings.Repeat("x", 1900)).try(t, s)
			sending("POST", "https://budget.good.test/", strings.Repeat("x", 1900)).try(t, s)
			getting("https://budget.good.test/").try(t, s)
		}}),
	}
}

// reasonsElsewhere are the reasons that need more than one attempt under one
// policy, with the test of this package that provokes each.
func reasonsElsewhere() map[policy.Reason]string {
	return map[policy.Reason]string{
		policy.UnknownSandbox:   "TestReasonUnknownSandbox",
		policy.SpoofedSource:    "TestReasonSpoofedSource",
		"policy_unavailable":    "TestReasonPolicyUnavailable",
		policy.AuditUnavailable: "TestFullDisk",
		policy.Revoked:          "TestReasonRevoked",
	}
}

// TestEveryReason: each reason of the closed list is provoked, and there is
// exactly one decision that has it.
func TestEveryReason(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": l.MustPolicy(t, reasonsPolicy, realValue)}})
	table := provocations()
	for reason, p := range table {
		t.Run(string(reason), func(t *testing.T) {
			name := p.sandbox
			if name == "" {
				name = "all"
			}
			s := g.Attach(t, name)
			p.try(t, s)
			decided := func() (list []*audit.Event) {
				for _, e := range s.Decisions() {
					if e.Reason == string(reason) {
						list = append(list, e)
					}
				}
				return list
			}
			lab.Within(10*time.Second, func() bool { return len(decided()) > 0 })
			s.Mark() // all that was written until now is read
			got := decided()
			// A question, a connection and a request are attempts of their own.
			kinds := map[audit.Kind]int{}
			for _, e := range got {
				kinds[e.Kind]++
			}
			if len(got) == 0 || len(kinds) != len(got) {
				var lines []string
				for _, e := range s.Decisions() {
					lines = append(lines, lab.Line(e)+": "+e.Message)
				}
				t.Fatalf("%d decisions, want one of a kind:\n%s", len(got), strings.Join(lines, "\n"))
			}
			whole(t, got[0])
		})
	}
}

// whole holds that a decision has what every decision has.
func whole(t *testing.T, e *audit.Event) {
	t.Helper()
	if e.Policy == nil || e.Policy.Generation == 0 || len(e.Policy.SHA256) != 64 || e.Sandbox == nil || e.Sandbox.Name == "" || e.Sandbox.ID == "" ||
		e.Severity == "" || e.Verdict != "allow" && e.Verdict != "deny" || e.Verdict == "deny" && e.Message == "" {
		t.Errorf("decision lacks something: %+v", e)
	}
	if e.Verdict == "allow" && e.Reason != string(policy.GatewayName) && e.Reason != string(policy.ReportMode) && (e.Rule == nil || e.Rule.File == "" || e.Rule.Line == 0) {
		t.Errorf("an allow names no rule: %+v", e)
	}
	if e.Verdict == "deny" && e.Would != nil {
		t.Errorf("a denial would have been: %+v", e.Would)
	}
}

// TestReasonsAreCovered: the tables and the closed list are one.
func TestReasonsAreCovered(t *testing.T) {
	code, err := os.ReadFile("../../policy/reason.go")
	must(t, err)
	var all []string
	for _, m := range regexp.MustCompile(`Reason\s*= "([a-z_]+)"`).FindAllStringSubmatch(string(code), -1) {
		all = append(all, m[1])
	}
	var have []string
	for r := range provocations() {
		have = append(have, string(r))
	}
	tests := ""
	for _, name := range []string{"reasons_test.go", "loss_test.go"} {
		b, err := os.ReadFile(name)
		must(t, err)
		tests += string(b)
	}
	for r, test := range reasonsElsewhere() {
		have = append(have, string(r))
		if !strings.Contains(tests, "func "+test+"(") {
			t.Errorf("%s: there is no %s", r, test)
		}
	}
	slices.Sort(all)
	slices.Sort(have)
	if !slices.Equal(all, have) {
		t.Errorf("reasons of the code\n%q\nprovoked\n%q", all, have)
	}
}

func TestReasonUnknownSandbox(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"a.hcl": "sandbox \"a\" {}\n", "b.hcl": "sandbox \"b\" {}\n"}})
	s := g.Attach(t, "a")
	g.RemovePolicy(t, "a.hcl")
	must(t, g.Reload())
	before := len(s.Decisions())
	ask(t, s, "x.evil.test")
	s.Decided(t, before, []string{"dns deny unknown_sandbox x.evil.test"})
}

// TestReasonPolicyUnavailable: a program without a policy does not start, so
// this is what is decided if one ever runs without.
func TestReasonPolicyUnavailable(t *testing.T) {
	for name, set := range map[string]*policy.Set{"none": nil, "empty": policy.Empty(1)} {
		for _, stage := range []policy.Stage{policy.StageName, policy.StageConn, policy.StageRequest} {
			d := set.Decide(policy.Request{Sandbox: "a", Stage: stage, Host: "a.test", Port: 443, Now: time.Now()})
			if d.Verdict == policy.Allow || d.Reason != policy.PolicyUnavailable || d.Message == "" {
				t.Errorf("%s policy at stage %v: %+v", name, stage, d)
			}
		}
	}
	l := world.lab
	g := l.Gateway(t, lab.GatewayOptions{Policy: one("sandbox \"dev\" {}\n")})
	must(t, g.Kill())
	g.RemovePolicy(t, "p.hcl")
	must(t, g.Launch())
	if code, err := g.Exit(30 * time.Second); err != nil || code != 78 {
		t.Errorf("a gateway without a policy: exit %d, %v", code, err)
	}
}

func TestReasonRevoked(t *testing.T) {
	l := begin(t)
	with := func(host string) string {
		return one("sandbox \"dev\" {\n  allow \"" + host + "\" { addresses = DOCS }\n}\n")["p.hcl"]
	}
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": with("held.revoked.test")}})
	s := g.Attach(t, "dev")
	w := s.Secure(t, "held.revoked.test:443")
	w.Send(t, "GET /lab/sse?n=1000&ms=100 HTTP/1.1\r\nHost: held.revoked.test\r\n\r\n")
	b := make([]byte, 1)
	if _, err := w.Read(b); err != nil {
		t.Fatal(err)
	}
	g.SetPolicy(t, "p.hcl", with("other.revoked.test"))
	w.Rest(t, 10*time.Second)
	got := g.Await(t, 2, audit.Filter{Reason: "revoked"})
	s.Mark()
	kinds := map[audit.Kind]int{}
	for _, e := range got {
		if e.Phase != audit.PhaseEnd || e.Conn == "" {
			t.Errorf("revoked: %+v", e)
		}
		kinds[e.Kind]++
	}
	if len(kinds) != 2 || kinds[audit.KindConn] != 1 || kinds[audit.KindHTTP] != 1 {
		t.Errorf("revoked: %v", kinds)
	}
}

func TestReasonSpoofedSource(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Interfaces: []string{"sb71"},
		Policy: one("sandbox \"vm\" {\n  match { cidrs = [\"10.66.71.2/32\"] }\n}\n")})
	s := g.Interface(t, "vm", 71)
	must(t, s.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		ip := []byte{0x45, 0, 0, 28, 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 10, 66, 71, 9}
		ip = append(ip, net.ParseIP(lab.Origin).To4()...)
		ip = append(ip, 0x30, 0x39, 0x27, 0x0f, 0, 8, 0, 0)
		to := &unix.SockaddrInet4{}
		copy(to.Addr[:], net.ParseIP(lab.Origin).To4())
		return unix.Sendto(fd, ip, 0, to)
	}))
	got := g.Await(t, 1, audit.Filter{Reason: "spoofed_source"})
	time.Sleep(100 * time.Millisecond)
	if got = g.Events(audit.Filter{Reason: "spoofed_source"}); len(got) != 1 || got[0].Severity != audit.Critical || got[0].Src == nil || got[0].Src.IP != "10.66.71.9" {
		t.Errorf("%d records: %+v", len(got), got)
	}
}

// withECH is the bytes of a ClientHello that hides a second server name: the
// outer extension of the draft, well formed and for no key of ours.
func withECH(t *testing.T, host string) string {
	t.Helper()
	c := &hello{}
	_ = tls.Client(c, &tls.Config{ServerName: host, InsecureSkipVerify: true}).Handshake() // it is cut off
	b := c.sent
	at := 5 + 4 + 2 + 32 // record, handshake, version, random
	at += 1 + int(b[at])
	at += 2 + int(b[at])<<8 + int(b[at+1])
	at += 1 + int(b[at]) // extensions begin at at with their length
	ext := append([]byte{0, 0, 1, 0, 1, 7, 0, 32}, make([]byte, 32)...)
	ext = append(append(ext, 0, 16), make([]byte, 16)...)
	ext = append([]byte{0xfe, 0x0d, 0, byte(len(ext))}, ext...)
	b = append(b, ext...)
	grow := func(i int) {
		n := int(b[i])<<8 + int(b[i+1]) + len(ext)
		b[i], b[i+1] = byte(n>>8), byte(n)
	}
	grow(3)  // of the record
	grow(7)  // of the handshake, its lower bytes
	grow(at) // of the extensions
	return string(b)
}

// hello keeps what is written and answers nothing.
type hello struct {
	net.Conn
	sent []byte
}

// Write keeps the bytes.
func (h *hello) Write(p []byte) (int, error) { h.sent = append(h.sent, p...); return len(p), nil }

// Read fails.
func (h *hello) Read([]byte) (int, error) { return 0, fmt.Errorf("no answer") }

// SetDeadline has no effect.
func (h *hello) SetDeadline(time.Time) error { return nil }

// SetWriteDeadline has no effect.
func (h *hello) SetWriteDeadline(time.Time) error { return nil }

// Close has no effect.
func (h *hello) Close() error { return nil }

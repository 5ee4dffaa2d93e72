package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addrs(s ...string) []netip.Addr {
	out := make([]netip.Addr, len(s))
	for i, a := range s {
		out[i] = netip.MustParseAddr(a)
	}
	return out
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// answers returns a lookup that knows good.test by these addresses.
func answers(list ...netip.Addr) LookupFunc {
	return func(context.Context, string) ([]netip.Addr, error) { return list, nil }
}

func TestDNS09NET03AddressChecks(t *testing.T) {
	self := func() []netip.Addr { return addrs("192.0.2.1", "5.6.7.8", "10.9.9.9") }
	for _, tc := range []struct {
		name     string
		answer   []netip.Addr
		named    []netip.Prefix
		metadata bool
		reason   string
	}{
		{"public", addrs("8.8.8.8", "2606:4700::1111"), nil, false, ""},
		{"private", addrs("10.0.0.5"), nil, false, "resolves_private"},
		{"carrier-grade NAT", addrs("100.64.0.1"), nil, false, "resolves_private"},
		{"unique local", addrs("fd00::5"), nil, false, "resolves_private"},
		{"loopback", addrs("127.0.0.1"), nil, false, "resolves_loopback"},
		{"loopback 6", addrs("::1"), nil, false, "resolves_loopback"},
		{"unspecified", addrs("0.0.0.0"), nil, false, "resolves_loopback"},
		{"unspecified 6", addrs("::"), nil, false, "resolves_loopback"},
		{"link-local", addrs("169.254.1.1"), nil, false, "resolves_link_local"},
		{"metadata", addrs("169.254.169.254"), nil, false, "resolves_metadata"},
		{"metadata of Azure", addrs("168.63.129.16"), nil, false, "resolves_metadata"},
		{"mapped metadata", addrs("::ffff:169.254.169.254"), nil, false, "resolves_embedded"},
		{"NAT64 metadata", addrs("64:ff9b::a9fe:a9fe"), nil, false, "resolves_embedded"},
		{"6to4 metadata", addrs("2002:a9fe:a9fe::1"), nil, false, "resolves_embedded"},
		{"site-local", addrs("fec0::1"), nil, false, "resolves_reserved"},
		{"documentation", addrs("203.0.113.10"), nil, false, "resolves_reserved"},
		{"multicast", addrs("224.0.0.1"), nil, false, "resolves_reserved"},
		{"virtual address", addrs("198.18.0.9"), nil, false, "resolves_reserved"},
		{"own public", addrs("5.6.7.8"), nil, false, "resolves_self"},
		{"own private", addrs("10.9.9.9"), nil, false, "resolves_self"},
		{"own, mapped", addrs("::ffff:5.6.7.8"), nil, false, "resolves_self"},
		{"one bad among good", addrs("8.8.8.8", "10.0.0.5", "1.1.1.1"), nil, false, "resolves_private"},
		{"one bad at the end of many", append(slices.Repeat(addrs("8.8.8.8"), 40), addrs("127.0.0.1")...), nil, false, "resolves_loopback"},

		{"named private", addrs("10.0.12.7"), prefixes("10.0.12.0/24"), false, ""},
		{"named documentation", addrs("203.0.113.10", "2001:db8::1"), prefixes("203.0.113.0/24", "2001:db8::/32"), false, ""},
		{"named self", addrs("10.9.9.9"), prefixes("10.9.9.9/32"), false, ""},
		{"named loopback", addrs("127.0.0.1"), prefixes("127.0.0.0/8"), false, ""},
		{"private outside", addrs("10.0.13.7"), prefixes("10.0.12.0/24"), false, "address_not_in_rule"},
		{"public outside", addrs("8.8.8.8"), prefixes("10.0.12.0/24"), false, "address_not_in_rule"},
		{"one outside", addrs("10.0.12.7", "10.0.13.7"), prefixes("10.0.12.0/24"), false, "address_not_in_rule"},
		{"self outside", addrs("5.6.7.8"), prefixes("10.0.12.0/24"), false, "resolves_self"},

		{"metadata named only", addrs("169.254.169.254"), prefixes("169.254.0.0/16"), false, "resolves_metadata"},
		{"metadata admitted only", addrs("169.254.169.254"), nil, true, "resolves_metadata"},
		{"metadata admitted, another named", addrs("169.254.169.254"), prefixes("10.0.0.0/8"), true, "resolves_metadata"},
		{"metadata both", addrs("169.254.169.254"), prefixes("169.254.169.254/32"), true, ""},

		{"form named, inner not", addrs("64:ff9b::10.0.0.1"), prefixes("64:ff9b::/96"), false, "resolves_embedded"},
		{"inner named, form not", addrs("64:ff9b::10.0.0.1"), prefixes("10.0.0.0/8"), false, "resolves_embedded"},
		{"form and inner named", addrs("64:ff9b::10.0.0.1"), prefixes("64:ff9b::/96", "10.0.0.0/8"), false, ""},
		{"form and inner metadata named", addrs("64:ff9b::a9fe:a9fe"), prefixes("64:ff9b::/96", "169.254.0.0/16"), false, "resolves_embedded"},
		{"everything named: mapped loopback", addrs("::ffff:127.0.0.1"), prefixes("::/0"), false, "resolves_embedded"},
		{"everything named: local NAT64", addrs("64:ff9b:1::1"), prefixes("::/0", "0.0.0.0/0"), true, "resolves_embedded"},
		{"everything named: site-local", addrs("fec0::1"), prefixes("::/0"), true, "resolves_reserved"},
		{"everything named: unspecified", addrs("0.0.0.0"), prefixes("0.0.0.0/0"), true, "resolves_loopback"},
		{"everything named: multicast", addrs("224.0.0.1"), prefixes("0.0.0.0/0"), true, "resolves_reserved"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUpstream(t, Options{Hosts: map[string][]netip.Addr{}, Lookup: answers(tc.answer...), Self: self})
			r, err := u.Route(t.Context(), Target{Host: "good.test", Port: 443, Addresses: tc.named, Metadata: tc.metadata}, nil)
			var refusal *Refusal
			if errors.As(err, &refusal) != (tc.reason != "") || refusal != nil && refusal.Reason != tc.reason {
				t.Fatalf("%v, want %q", err, tc.reason)
			}
			if err != nil {
				if !refusal.Addr.IsValid() || len(r.Addrs) != 0 {
					t.Errorf("refusal of %v, route to %v", refusal.Addr, r.Addrs)
				}
				if strings.Contains(err.Error(), refusal.Addr.String()) {
					t.Errorf("the message tells the address: %v", err)
				}
			}
		})
	}
}

func TestNET03MappedPublicIsDialledAsIPv4(t *testing.T) {
	u := newUpstream(t, Options{Lookup: answers(addrs("::ffff:8.8.8.8", "8.8.8.8")...)})
	r, err := u.Route(t.Context(), Target{Host: "x.test", Port: 443}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"8.8.8.8"}, texts(r.Addrs)); diff != "" {
		t.Error(diff)
	}
}

func texts(list []netip.Addr) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func TestDNS09CachedAnswerIsCheckedForEachRule(t *testing.T) {
	u := newUpstream(t, Options{Lookup: answers(addrs("10.0.0.5")...)})
	named := Target{Host: "x.test", Port: 443, Addresses: prefixes("10.0.0.0/8")}
	if _, err := u.Route(t.Context(), named, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Route(t.Context(), Target{Host: "x.test", Port: 443}, nil); err == nil {
		t.Error("one rule's addresses were given to another")
	}
}

func TestDNS09HandmadeRouteIsChecked(t *testing.T) {
	u := newUpstream(t, Options{})
	u.connect = func(context.Context, netip.AddrPort) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no")
	}
	for _, r := range []Route{
		{Target{Host: "x.test", Port: 443}, addrs("127.0.0.1")},
		{Target{Host: "x.test", Port: 443}, nil},
		{Target{Host: "x.test"}, addrs("8.8.8.8")},
		{},
	} {
		if _, err := u.Dial(t.Context(), r); err == nil {
			t.Errorf("%+v was dialled", r)
		}
	}
}

func TestDNS09StaticHostsAndLiteralsAreChecked(t *testing.T) {
	u := newUpstream(t, Options{
		Hosts: map[string][]netip.Addr{"DB.internal.test.": addrs("10.0.12.7"), "printer.local": addrs("10.0.12.8")},
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			t.Errorf("asked for %q", host)
			return nil, nil
		},
	})
	before := func() error { t.Error("a question was announced"); return nil }
	for _, host := range []string{"db.internal.test", "printer.local", "10.0.12.7", "127.0.0.1", "::1", "fe80::1%lo", "::ffff:10.0.0.1"} {
		if _, err := u.Route(t.Context(), Target{Host: host, Port: 443}, before); err == nil {
			t.Errorf("%s: routed without a rule that names it", host)
		}
	}
	for _, host := range []string{"db.internal.test", "printer.local", "10.0.12.7"} {
		if _, err := u.Route(t.Context(), Target{Host: host, Port: 443, Addresses: prefixes("10.0.12.0/24")}, before); err != nil {
			t.Error(err)
		}
	}
}

func TestNET02SpellingsOfAddressesAreNeverAskedFor(t *testing.T) {
	u := newUpstream(t, Options{Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		t.Errorf("asked for %q", host)
		return addrs("8.8.8.8"), nil
	}})
	before := func() error { t.Error("a question was announced"); return nil }
	for _, host := range []string{
		"2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "127.0.0.1.", "0x7f000001", "①②⑦.0.0.1", "a.0x7f", "a.1", "0x", "1.2.3.4.5",
		"", ".", "a..b", "A.test", "a b.test", "a\x00.test", "a.test/", "a@b.test", "[::1]", "::1]", strings.Repeat("a.", 127) + "test",
		"localhost", "x.localhost", "printer.local", "a.onion", "a.invalid", "local",
	} {
		_, err := u.Route(t.Context(), Target{Host: host, Port: 80}, before)
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			t.Errorf("%q: %v", host, err)
		}
	}
}

func TestNET04OwnAddressesByDefault(t *testing.T) {
	own := (&interfaces{}).now()
	if !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("interfaces have %v", own)
	}
	for _, a := range own {
		u := newUpstream(t, Options{Lookup: answers(a)})
		if _, err := u.Route(t.Context(), Target{Host: "x.test", Port: 443}, nil); err == nil {
			t.Errorf("own address %v is admitted", a)
		}
	}
}

func TestInterleave(t *testing.T) {
	for _, tc := range []struct{ in, want []string }{
		{[]string{"1.1.1.1"}, []string{"1.1.1.1"}},
		{[]string{"2606::1", "2606::2", "2606::3", "1.1.1.1"}, []string{"2606::1", "1.1.1.1", "2606::2", "2606::3"}},
		{[]string{"1.1.1.1", "1.1.1.2", "2606::1"}, []string{"1.1.1.1", "2606::1", "1.1.1.2"}},
	} {
		if diff := cmp.Diff(tc.want, texts(interleave(addrs(tc.in...)))); diff != "" {
			t.Error(diff)
		}
	}
	var many []netip.Addr
	for i := range 100 {
		many = append(many, netip.MustParseAddr(fmt.Sprintf("1.1.1.%d", i)))
	}
	if n := len(interleave(many)); n != maxAddrs {
		t.Errorf("%d addresses are dialled", n)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"resolver without port":   {Resolvers: []string{"192.0.2.53"}},
		"resolver by name":        {Resolvers: []string{"dns.test:53"}},
		"host that is an address": {Hosts: map[string][]netip.Addr{"127.1": addrs("10.0.0.1")}},
		"host without address":    {Hosts: map[string][]netip.Addr{"a.test": nil}},
		"host with no address":    {Hosts: map[string][]netip.Addr{"a.test": {{}}}},
		"NAT64 of IPv4":           {NAT64: prefixes("10.0.0.0/8")},
		"NAT64 of odd length":     {NAT64: prefixes("2001:db8::/80")},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzValidName holds that no name that may go to a resolver is an address in
// any spelling, and that it is canonical.
func FuzzValidName(f *testing.F) {
	for _, s := range []string{"good.test", "127.1", "0x7f.1", "0177.0.0.1", "a.0xff", "1.2.3.4", "::1", "foo_bar.test", "a..b", "xn--a.test", "0x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !validName(s) {
			return
		}
		if _, err := netip.ParseAddr(s); err == nil {
			t.Errorf("%q is an address", s)
		}
		last := s[strings.LastIndexByte(s, '.')+1:]
		hex, isHex := strings.CutPrefix(last, "0x")
		_, decimal := strconv.ParseUint(last, 10, 64)
		_, hexadecimal := strconv.ParseUint(hex, 16, 64)
		if decimal == nil || isHex && hexadecimal == nil {
			t.Errorf("%q ends in a number", s)
		}
		if s != strings.ToLower(s) || strings.HasSuffix(s, ".") || strings.ContainsAny(s, " /@%,[]:\x00") {
			t.Errorf("%q is not canonical", s)
		}
	})
}

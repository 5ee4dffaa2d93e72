package upstream

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

func TestNET03Classify(t *testing.T) {
	nat64 := []netip.Prefix{netip.MustParsePrefix("2001:4860:64::/96"), netip.MustParsePrefix("2a00:64::/40")}
	for addr, want := range map[string]Class{
		// The nine forms of the case.
		"::ffff:169.254.169.254":     Embedded,
		"64:ff9b::a9fe:a9fe":         Embedded,
		"64:ff9b:1::7f00:1":          Embedded,
		"2002:a9fe:a9fe::1":          Embedded,
		"2001:0:c000:201::80ff:fffe": Embedded,
		"::7f00:1":                   Embedded,
		"fec0::1":                    SiteLocal,
		"fe80::1":                    LinkLocal,
		"::":                         Unspecified,
		// More forms.
		"::ffff:0:10.0.0.1":         Embedded,
		"::ffff:0:8.8.8.8":          Reserved,
		"::8.8.8.8":                 Reserved,
		"::ffff:8.8.8.8":            Public,
		"::ffff:203.0.113.1":        Embedded,
		"::ffff:0.0.0.0":            Embedded,
		"64:ff9b::8.8.8.8":          Public,
		"64:ff9b::10.0.0.1":         Embedded,
		"64:ff9b:1::8.8.8.8":        Embedded,
		"64:ff9b:2::1":              Reserved,
		"2002:808:808::1":           Public,
		"2002:0a00:0001::1":         Embedded,
		"2001:0:808:808::f7f7:f7f7": Public,   // Teredo, 8.8.8.8 both
		"2001:0:808:808::f5ff:fffe": Embedded, // client 10.0.0.1
		"2001:0:a00:1::f7f7:f7f7":   Embedded, // server 10.0.0.1
		"2a00:1450::5efe:10.0.0.1":  Embedded, // ISATAP
		"2a00:1450::200:5efe:a00:1": Embedded,
		"2a00:1450::5efe:8.8.8.8":   Public,
		"2001:4860:64::a00:1":       Embedded, // configured /96
		"2001:4860:64::808:808":     Public,
		"2a00:64:a:0:1::":           Embedded, // configured /40: 10.0.0 in 40..64, 1 after octet 8
		"2a00:64:8:808:8::":         Public,
		// IPv6 ranges.
		"::1": Loopback, "fd00::1": UniqueLocal, "fc00::1": UniqueLocal, "fdff::1": UniqueLocal,
		"febf::1": LinkLocal, "ff02::1": Multicast, "ff0e::1": Multicast,
		"2001:db8::1": Documentation, "3fff::1": Documentation, "3fff:fff::1": Documentation, "3fff:1000::1": Public,
		"2001:2::1": Benchmarking, "2001:10::1": Reserved, "2001:1ff::1": Reserved, "2001:200::1": Public,
		"100::1": Reserved, "4000::1": Reserved, "5f00::1": Reserved, "fe00::1": Reserved,
		"2606:4700::1111": Public, "2a00:1450:4001::1": Public,
		"fd00:ec2::254": Metadata, "fd20:ce::254": Metadata, "fe80::a9fe:a9fe": Metadata, "fd00:42::42": Metadata,
		// IPv4 ranges and their edges.
		"0.0.0.0": Unspecified, "0.0.0.1": Reserved, "0.255.255.255": Reserved, "1.0.0.0": Public,
		"9.255.255.255": Public, "10.0.0.0": Private, "10.255.255.255": Private, "11.0.0.0": Public,
		"100.63.255.255": Public, "100.64.0.0": Shared, "100.127.255.255": Shared, "100.128.0.0": Public,
		"127.0.0.1": Loopback, "127.255.255.255": Loopback, "128.0.0.0": Public,
		"169.253.255.255": Public, "169.254.0.1": LinkLocal, "169.254.169.254": Metadata, "169.254.170.2": Metadata, "169.255.0.0": Public,
		"172.15.255.255": Public, "172.16.0.0": Private, "172.31.255.255": Private, "172.32.0.0": Public,
		"192.0.0.1": Reserved, "192.0.0.192": Metadata, "192.0.1.0": Public, "192.0.2.1": Documentation, "192.88.99.1": Reserved,
		"192.167.255.255": Public, "192.168.0.0": Private, "192.168.255.255": Private, "192.169.0.0": Public,
		"198.17.255.255": Public, "198.18.0.0": Benchmarking, "198.19.255.255": Benchmarking, "198.20.0.0": Public,
		"198.51.100.1": Documentation, "203.0.113.10": Documentation, "203.0.114.0": Public,
		"223.255.255.255": Public, "224.0.0.1": Multicast, "239.255.255.255": Multicast,
		"240.0.0.1": Reserved, "255.255.255.254": Reserved, "255.255.255.255": Broadcast,
		"100.100.100.200": Metadata, "168.63.129.16": Metadata,
		"2606:4700::1%eth0": Unknown,
	} {
		if got := Classify(netip.MustParseAddr(addr), nat64); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
	if Classify(netip.Addr{}, nil) != Unknown {
		t.Error("no address has a class")
	}
}

func TestClassWords(t *testing.T) {
	for c := Unknown; c <= SiteLocal; c++ {
		if (c.Reason() == "") != (c == Public) {
			t.Errorf("%v: reason %q", c, c.Reason())
		}
		if c.String() == "" {
			t.Errorf("class %d has no words", c)
		}
	}
	var zero Class
	if zero.Reason() == "" || !zero.never() {
		t.Error("the zero class is admitted")
	}
}

// TestNET03TranslationPrefixes holds the layout of RFC 6052, section 2.4:
// 192.0.2.33 behind each length of prefix.
func TestNET03TranslationPrefixes(t *testing.T) {
	for prefix, addr := range map[string]string{
		"2001:db8::/32":         "2001:db8:c000:221::",
		"2001:db8:100::/40":     "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":     "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96": "2001:db8:122:344::192.0.2.33",
	} {
		p := netip.MustParsePrefix(prefix)
		if !TranslationPrefix(p) {
			t.Errorf("%s is not taken for a prefix", p)
		}
		e, ok := embedded(netip.MustParseAddr(addr), []netip.Prefix{p})
		if !ok || e.inner[0] != netip.MustParseAddr("192.0.2.33") {
			t.Errorf("%s: %v %v", prefix, e.inner[0], ok)
		}
	}
	for _, prefix := range []string{"2001:db8::/33", "2001:db8::/128", "10.0.0.0/8", "::/0"} {
		if TranslationPrefix(netip.MustParsePrefix(prefix)) {
			t.Errorf("%s is taken for a prefix", prefix)
		}
	}
}

// embed returns every form around one IPv4 address.
func embed(v4 [4]byte, prefix uint64) map[string]netip.Addr {
	n := uint64(binary.BigEndian.Uint32(v4[:]))
	make16 := func(hi, lo uint64) netip.Addr {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:8], hi)
		binary.BigEndian.PutUint64(b[8:], lo)
		return netip.AddrFrom16(b)
	}
	global := prefix>>3 | 1<<61
	return map[string]netip.Addr{
		"mapped":        make16(0, 0xffff<<32|n),
		"compatible":    make16(0, n),
		"translated":    make16(0, 0xffff0000<<32|n),
		"nat64":         make16(0x0064_ff9b<<32, n),
		"local nat64":   make16(0x0064_ff9b_0001<<16|prefix&0xffff, n),
		"6to4":          make16(0x2002<<48|n<<16|prefix&0xffff, prefix),
		"teredo server": make16(0x2001_0000<<32|n, prefix),
		"teredo client": make16(0x2001_0000<<32|0x08080808, 0xffffffff&^n),
		"isatap":        make16(global, 0x5efe<<32|n),
		"isatap global": make16(global, 0x0200_5efe<<32|n),
		"configured":    make16(0x2a00_0064<<32, n),
	}
}

// FuzzClassify holds that no form around an IPv4 address that is not public
// is public, and that a public IPv6 address is global unicast.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "8.8.8.8", "0.0.0.0", "100.64.0.1", "192.168.1.1", "203.0.113.9", "255.255.255.255"} {
		a := netip.MustParseAddr(s).As4()
		f.Add(a[:], uint64(0x2a00_1450_0000_0001))
	}
	for _, s := range []string{"::1", "fe80::1", "2001:db8::1", "2606:4700::1111", "64:ff9b::a00:1"} {
		a := netip.MustParseAddr(s).As16()
		f.Add(a[:], uint64(0))
	}
	nat64 := []netip.Prefix{netip.MustParsePrefix("2a00:64::/96")}
	f.Fuzz(func(t *testing.T, b []byte, prefix uint64) {
		switch len(b) {
		case 4:
			v4 := [4]byte(b)
			inner := netip.AddrFrom4(v4)
			if Classify(inner, nil) == Public {
				if !inner.IsGlobalUnicast() || inner.IsPrivate() || inner.IsLoopback() {
					t.Errorf("%v is public", inner)
				}
				return
			}
			for form, a := range embed(v4, prefix) {
				if Classify(a, nat64) == Public {
					t.Errorf("%v, %s around %v, is public", a, form, inner)
				}
			}
		case 16:
			a := netip.AddrFrom16([16]byte(b))
			if Classify(a, nat64) != Public || a.Is4In6() {
				return
			}
			nat := netip.MustParsePrefix("64:ff9b::/96").Contains(a)
			if !nat && !netip.MustParsePrefix("2000::/3").Contains(a) || !a.IsGlobalUnicast() || a.IsPrivate() {
				t.Errorf("%v is public", a)
			}
		}
	})
}

func TestClassifyDoesNotAllocate(t *testing.T) {
	a := netip.MustParseAddr("2002:a00:1::1")
	f := func() { Classify(a, nil) }
	// All of the process is counted, also the end of what other tests served.
	if n := min(testing.AllocsPerRun(100, f), testing.AllocsPerRun(100, f), testing.AllocsPerRun(100, f)); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

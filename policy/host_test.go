package policy

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCanonicalHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, tt := range []struct {
		title, in, want string // want "": refused
	}{
		{"POL-05 one trailing dot", "good.test.", "good.test"},
		{"POL-05 two trailing dots", "good.test..", ""},
		{"POL-05 literal with a dot", "169.254.169.254.", "169.254.169.254"},
		{"POL-06 mixed case", "GoOd.TeSt", "good.test"},
		{"POL-08 brackets round a name", "[good.test]", ""},
		{"POL-08 two brackets", "[[evil.test]]", ""},
		{"POL-08 open bracket", "[::1", ""},
		{"POL-08 close bracket", "::1]", ""},
		{"POL-08 brackets round IPv4", "[127.0.0.1]", ""},
		{"POL-11 percent", "g%6fod.test", ""},
		{"POL-11 comma", "good.test,evil.test", ""},
		{"POL-11 space", "good.test evil.test", ""},
		{"POL-11 empty", "", ""},
		{"POL-03 leading dot", ".good.test", ""},
		{"POL-03 label of a hyphen", "-.good.test", ""},
		{"NET-02 decimal", "2130706433", ""},
		{"NET-02 hex", "0x7f.1", ""},
		{"NET-02 hex whole", "0x7f000001", ""},
		{"NET-02 hex empty", "a.0x", ""},
		{"NET-02 octal", "0177.0.0.1", ""},
		{"NET-02 short", "127.1", ""},
		{"NET-02 zero", "0", ""},
		{"NET-02 five parts", "1.2.3.4.5", ""},
		{"NET-02 name with number last", "good.1", ""},
		{"NET-02 other digits", "①②⑦.0.0.1", ""},
		{"NET-02 wide digits", "１２７.0.0.1", ""},
		{"IPv4", "192.0.2.1", "192.0.2.1"},
		{"number first", "1.good.test", "1.good.test"},
		{"hex first", "0x7f.good.test", "0x7f.good.test"},
		{"IPv6", "2001:DB8:0::1", "2001:db8::1"},
		{"IPv6 in brackets", "[2001:db8::1]", "2001:db8::1"},
		{"IPv6 with zone", "fe80::1%eth0", ""},
		{"IPv6 mapped", "[::ffff:192.0.2.1]", "192.0.2.1"},
		{"empty brackets", "[]", ""},
		{"bracket alone", "[", ""},
		{"root", ".", ""},
		{"underscore", "_dmarc.good.test", "_dmarc.good.test"},
		{"hyphens", "r3---sn-x.good.test", "r3---sn-x.good.test"},
		{"umlaut", "Bücher.example", "xn--bcher-kva.example"},
		{"sharp s is kept", "faß.example", "xn--fa-hia.example"},
		{"A-label", "xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"A-label in upper case", "XN--BCHER-KVA.example", "xn--bcher-kva.example"},
		{"broken A-label", "xn--a.example", ""},
		{"wide letters", "ｇｏｏｄ．ｔｅｓｔ", "good.test"},
		{"ideographic full stop", "good。test", "good.test"},
		{"maps to a slash", "a℀b.test", ""},
		{"NUL", "good.test\x00.evil.test", ""},
		{"line end", "good.test\r\n", ""},
		{"slash", "good.test/", ""},
		{"backslash", `good.test\`, ""},
		{"userinfo", "user@good.test", ""},
		{"port", "good.test:443", ""},
		{"empty label", "a..test", ""},
		{"star", "*.good.test", ""},
		{"not UTF-8", "good\xff.test", ""},
		{"label of 63", long + ".test", long + ".test"},
		{"label of 64", "a" + long + ".test", ""},
		{"253 bytes", strings.Repeat(long+".", 3) + strings.Repeat("b", 61), strings.Repeat(long+".", 3) + strings.Repeat("b", 61)},
		{"254 bytes", strings.Repeat(long+".", 3) + strings.Repeat("b", 62), ""},
		{"very long", strings.Repeat("a.", 100000), ""},
	} {
		t.Run(tt.title, func(t *testing.T) {
			got, err := CanonicalHost(tt.in)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("CanonicalHost(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestSplitAuthority(t *testing.T) {
	for _, tt := range []struct {
		in, host string
		port     uint16 // 0: refused
	}{
		{"good.test", "good.test", 443},
		{"GOOD.TEST:443", "good.test", 443},
		{"good.test.:8443", "good.test", 8443},
		{"[2001:db8::1]", "2001:db8::1", 443},
		{"[2001:db8::1]:80", "2001:db8::1", 80},
		{"192.0.2.1:65535", "192.0.2.1", 65535},
		{"[good.test]:443", "", 0},
		{"[[evil.test]]:443", "", 0},
		{"[::1", "", 0},
		{"[::1]443", "", 0},
		{"2001:db8::1", "", 0},
		{"good.test:443:443", "", 0},
		{"good.test:", "", 0},
		{"good.test:0", "", 0},
		{"good.test:0443", "", 0},
		{"good.test:+443", "", 0},
		{"good.test:65536", "", 0},
		{"good.test:https", "", 0},
		{"user@good.test", "", 0},
		{"user:pw@good.test:443", "", 0},
		{"good.test,evil.test:443", "", 0},
		{"g%6fod.test", "", 0},
		{":443", "", 0},
		{"", "", 0},
	} {
		host, port, err := SplitAuthority(tt.in, 443)
		if host != tt.host || port != tt.port || (err != nil) != (tt.port == 0) {
			t.Errorf("SplitAuthority(%q) = %q, %d, %v; want %q, %d", tt.in, host, port, err, tt.host, tt.port)
		}
	}
}

func TestIsIP(t *testing.T) {
	for host, want := range map[string]bool{
		"192.0.2.1": true, "2001:db8::1": true, "2001:db8::": true, "::": true, "::a": true,
		"good.test": false, "1.test": false, "test1": false, "a1": false, "": false,
	} {
		if IsIP(host) != want {
			t.Errorf("IsIP(%q) = %v", host, !want)
		}
	}
}

func TestCanonicalHostDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = CanonicalHost("api.good.test") }); n != 0 {
		t.Errorf("%v allocations for a canonical name, want 0", n)
	}
}

func FuzzCanonicalHost(f *testing.F) {
	for _, s := range []string{
		"good.test", "GoOd.TeSt.", "good.test..", "[::1]", "[::ffff:1.2.3.4]", "127.1", "0x7f.1", "xn--bcher-kva.example",
		"xn--", "xn--a", "xn--0.test", "①②⑦.0.0.1", "ß.example", "a℀b", "a\u200db.test", "a\u00adb.test", "。", "fe80::1%1",
		"\xff", "a\x00b", "g%6fod.test", "-a.test", "a-.test", "_x.test", "א.test", "0xn--a.test", "1.2.3.4.", "::1.2.3.4",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, err := CanonicalHost(s)
		if err != nil {
			if host != "" {
				t.Fatalf("CanonicalHost(%q) = %q with %v", s, host, err)
			}
			return
		}
		again, err := CanonicalHost(host)
		if err != nil || again != host {
			t.Fatalf("CanonicalHost(%q) = %q, whose own is %q, %v", s, host, again, err)
		}
		if len(host) > 253 || host == "" {
			t.Fatalf("CanonicalHost(%q) has %d bytes", s, len(host))
		}
		addr, parseErr := netip.ParseAddr(host)
		if IsIP(host) != (parseErr == nil) {
			t.Fatalf("IsIP(%q) = %v, netip says %v", host, IsIP(host), parseErr)
		}
		if parseErr == nil {
			if addr.String() != host || addr.Zone() != "" || addr.Is4In6() {
				t.Fatalf("CanonicalHost(%q) = %q, not the usual text of an address", s, host)
			}
			return
		}
		if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" ||
			strings.HasPrefix(host, ".") || strings.HasSuffix(host, ".") || strings.Contains(host, "..") {
			t.Fatalf("CanonicalHost(%q) = %q", s, host)
		}
		h, port, err := SplitAuthority(host+":8443", 443)
		if err != nil || h != host || port != 8443 {
			t.Fatalf("SplitAuthority(%q) = %q, %d, %v", host+":8443", h, port, err)
		}
	})
}

func TestPOL02Patterns(t *testing.T) {
	for _, tt := range []struct {
		in, says string // says "": accepted
	}{
		{"good.test", ""},
		{"*.good.test", ""},
		{"*.BÜCHER.example.", ""},
		{"*good.test", `write "*.good.test"`},
		{"good.*", "a star stands alone"},
		{"g*d.test", "a star stands alone"},
		{"*.*.test", `write "*.test"`},
		{"*.*.good.test", `write "*.good.test"`},
		{"a.*.good.test", `write "*.good.test"`},
		{"*", "any_host = true"},
		{"**", "a star stands alone"},
		{"**.good.test", `write "*.good.test"`},
		{"*.", "empty"},
		{".good.test", `write "*.good.test"`},
		{"*.com", "public_suffix = true"},
		{"*.github.io", "public_suffix = true"},
		{"*.co.uk", "public_suffix = true"},
		{"*.test", "public_suffix = true"},
		{"*.0.0.1", "ends in a number"},
		{"*.127.0.0.1", "no names below it"},
		{"*.[::1]", "no names below it"},
		{"", "empty"},
		{"good.test:443", "colons"},
	} {
		_, err := ParseHostPattern(tt.in, HostOptions{})
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("ParseHostPattern(%q): %v, want %q", tt.in, err, tt.says)
		}
		if tt.says != "" {
			d := sandboxDoc(allowRule(tt.in, line(7)))
			if p := wantProblem(t, d, tt.says); p.Pos.Line != 7 {
				t.Errorf("pattern %q: reported at %v, want line 7", tt.in, p.Pos)
			}
		}
	}
	for _, s := range []string{"*", "*.com"} {
		if _, err := ParseHostPattern(s, HostOptions{AnyHost: true, PublicSuffix: true}); err != nil {
			t.Errorf("ParseHostPattern(%q) with leave: %v", s, err)
		}
		mustCompile(t, sandboxDoc(denyRule(s))) // a wide denial needs no leave
	}
}

func TestPOL03PatternTable(t *testing.T) {
	o := HostOptions{AnyHost: true}
	for _, tt := range []struct {
		pattern, host string
		want          bool
	}{
		{"a.example", "a.example", true},
		{"A.Example.", "a.example", true},
		{"a.example", "x.a.example", false},
		{"a.example", "nota.example", false},
		{"*.a.example", "x.a.example", true},
		{"*.a.example", "x.y.a.example", true},
		{"*.a.example", "a.example", false},
		{"*.a.example", "nota.example", false},
		{"*.a.example", ".a.example", false},
		{"*.a.example", "a.example.x", false},
		{"*", "a.example", true},
		{"*", "192.0.2.1", false},
		{"*", "2001:db8::1", false},
		{"192.0.2.1", "192.0.2.1", true},
		{"[2001:DB8::1]", "2001:db8::1", true},
	} {
		p, err := ParseHostPattern(tt.pattern, o)
		if err != nil {
			t.Fatal(err)
		}
		if p.Match(tt.host) != tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.host, !tt.want)
		}
	}
	if (HostPattern{}).Match("") || (HostPattern{}).Match("a.example") {
		t.Errorf("the zero pattern matches")
	}
}

func hostGen() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		labels := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "xa"}), 1, 3).Draw(t, "labels")
		return strings.Join(append(labels, "test"), ".")
	})
}

func patternGen() *rapid.Generator[HostPattern] {
	return rapid.Custom(func(t *rapid.T) HostPattern {
		prefix := rapid.SampledFrom([]string{"", "*.", "*"}).Draw(t, "prefix")
		s := prefix + hostGen().Draw(t, "host")
		if prefix == "*" {
			s = "*"
		}
		p, err := ParseHostPattern(s, HostOptions{AnyHost: true, PublicSuffix: true})
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

func TestHostPatternCoversIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, o, host := patternGen().Draw(t, "p"), patternGen().Draw(t, "o"), hostGen().Draw(t, "host")
		if p.Covers(o) && o.Match(host) && !p.Match(host) {
			t.Fatalf("%q covers %q but not its %q", p, o, host)
		}
		if p.Match(host) && o.Match(host) && !p.Overlaps(o) {
			t.Fatalf("%q and %q both match %q but do not overlap", p, o, host)
		}
		again, err := ParseHostPattern(p.String(), HostOptions{AnyHost: true, PublicSuffix: true})
		if err != nil || again != p || !p.Covers(p) {
			t.Fatalf("%q does not survive its own text: %q, %v", p, again, err)
		}
	})
}

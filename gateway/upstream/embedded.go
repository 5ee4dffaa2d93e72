package upstream

import (
	"encoding/binary"
	"net/netip"
)

// form is a way in which an IPv6 address holds IPv4 addresses.
type form uint8

const (
	formMapped     form = iota + 1 // ::ffff:0:0/96, RFC 4291
	formCompatible                 // ::/96, RFC 4291, deprecated
	formTranslated                 // ::ffff:0:0:0/96, RFC 2765
	formNAT64                      // 64:ff9b::/96 and the operator's prefixes, RFC 6052
	formLocalNAT64                 // 64:ff9b:1::/48, RFC 8215: means what the network says, so nothing here
	formTeredo                     // 2001::/32, RFC 4380: server and client
	form6to4                       // 2002::/16, RFC 3056
	formISATAP                     // interface identifier [02]00:5efe:a.b.c.d, RFC 5214
)

// embedding is what was found in an IPv6 address.
type embedding struct {
	form  form
	inner [2]netip.Addr // Teredo holds two; the others leave the second invalid
}

// class judges an embedding by what it embeds.
func (e embedding) class(hi uint64) Class {
	if e.form == formLocalNAT64 {
		return Embedded
	}
	for _, a := range e.inner {
		if a.IsValid() && Classify(a, nil) != Public {
			return Embedded
		}
	}
	switch e.form {
	case formCompatible, formTranslated: // no route leads there, whatever is embedded
		return Reserved
	case formISATAP: // found in global unicast only; its prefix decides
		if hi>>61 != 1 {
			return Reserved
		}
	}
	return Public
}

// named reports whether every address that is embedded and not public is
// itself within the ranges. What cannot be read is not named.
func (e embedding) named(ranges []netip.Prefix, metadata bool) bool {
	if !e.inner[0].IsValid() {
		return false
	}
	for _, a := range e.inner {
		if !a.IsValid() {
			continue
		}
		switch c := Classify(a, nil); {
		case c == Public:
		case c.never(), c == Metadata && !metadata, !within(a, ranges):
			return false
		}
	}
	return true
}

// embedded finds IPv4 addresses inside an IPv6 address.
func embedded(a netip.Addr, nat64 []netip.Prefix) (embedding, bool) {
	if a.Is4In6() {
		return embedding{formMapped, [2]netip.Addr{a.Unmap()}}, true
	}
	b := a.As16()
	for _, p := range nat64 {
		if p.Contains(a) {
			return embedding{formNAT64, [2]netip.Addr{translated(b, p.Bits())}}, true
		}
	}
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case hi == 0 && lo>>32 == 0:
		return embedding{formCompatible, [2]netip.Addr{last}}, true
	case hi == 0 && lo>>32 == 0xffff_0000:
		return embedding{formTranslated, [2]netip.Addr{last}}, true
	case hi == 0x0064_ff9b_0000_0000 && lo>>32 == 0:
		return embedding{formNAT64, [2]netip.Addr{last}}, true
	case hi>>16 == 0x0064_ff9b_0001:
		return embedding{form: formLocalNAT64}, true
	case hi>>32 == 0x2001_0000:
		client := [4]byte{^b[12], ^b[13], ^b[14], ^b[15]}
		return embedding{formTeredo, [2]netip.Addr{netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4(client)}}, true
	case hi>>48 == 0x2002:
		return embedding{form6to4, [2]netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}}, true
	case hi>>61 == 1 && hi>>32 != 0x2001_0db8 && hi>>41 != 0x2001_0000>>9 && lo>>32&^0x0200_0000 == 0x5efe:
		return embedding{formISATAP, [2]netip.Addr{last}}, true
	}
	return embedding{}, false
}

// translated reads the IPv4 address behind a translation prefix of a length
// that RFC 6052, section 2.2, allows. Octet 8 (bits 64 to 71) is skipped.
func translated(b [16]byte, bits int) netip.Addr {
	var out [4]byte
	for i, at := 0, bits/8; i < 4; at++ {
		if at == 8 {
			continue
		}
		out[i] = b[at]
		i++
	}
	return netip.AddrFrom4(out)
}

// TranslationPrefix reports whether p has a length that RFC 6052 allows.
func TranslationPrefix(p netip.Prefix) bool {
	if !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6() {
		return false
	}
	switch p.Bits() {
	case 32, 40, 48, 56, 64, 96:
		return true
	}
	return false
}

func within(a netip.Addr, ranges []netip.Prefix) bool {
	for _, p := range ranges {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

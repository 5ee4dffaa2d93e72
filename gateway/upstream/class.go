package upstream

import (
	"encoding/binary"
	"net/netip"
)

// Class says what kind of place an address is. The zero value is not public.
type Class uint8

// Classes of addresses. Those from Unspecified to SiteLocal are never dialled,
// whatever a rule names.
const (
	Unknown       Class = iota
	Public              // global unicast
	Private             // RFC 1918
	Shared              // 100.64.0.0/10, RFC 6598 (carrier-grade NAT)
	UniqueLocal         // fc00::/7, RFC 4193
	Loopback            // 127.0.0.0/8, ::1
	LinkLocal           // 169.254.0.0/16, fe80::/10
	Metadata            // where a cloud hands out credentials
	Embedded            // an IPv6 form around an IPv4 address that is not public
	Documentation       // RFC 5737, RFC 3849, RFC 9637
	Benchmarking        // 198.18.0.0/15 and 2001:2::/48, RFC 2544 and RFC 5180
	Reserved            // everything else that is not global unicast
	Unspecified         // 0.0.0.0 and ::, which reach the loopback interface
	Multicast           // 224.0.0.0/4, ff00::/8
	Broadcast           // 255.255.255.255
	SiteLocal           // fec0::/10, RFC 3879
)

// never reports whether no rule can admit the class.
func (c Class) never() bool { return c == Unknown || c >= Unspecified }

// Reason returns the audit reason for refusing an address of the class, and
// "" for a public one.
func (c Class) Reason() string {
	switch c {
	case Public:
		return ""
	case Private, Shared, UniqueLocal:
		return "resolves_private"
	case Loopback, Unspecified:
		return "resolves_loopback"
	case LinkLocal:
		return "resolves_link_local"
	case Metadata:
		return "resolves_metadata"
	case Embedded:
		return "resolves_embedded"
	default:
		return "resolves_reserved"
	}
}

// String returns the class in words, for messages.
func (c Class) String() string {
	switch c {
	case Public:
		return "public"
	case Private:
		return "private"
	case Shared:
		return "shared (carrier-grade NAT)"
	case UniqueLocal:
		return "unique local"
	case Loopback:
		return "loopback"
	case LinkLocal:
		return "link-local"
	case Metadata:
		return "cloud metadata"
	case Embedded:
		return "translated non-public"
	case Documentation:
		return "documentation"
	case Benchmarking:
		return "benchmarking"
	case Unspecified:
		return "unspecified"
	case Multicast:
		return "multicast"
	case Broadcast:
		return "broadcast"
	case SiteLocal:
		return "site-local"
	default:
		return "reserved"
	}
}

// Classify returns the class of an address, by the special-purpose registries
// of RFC 6890 and what else is known to lead inside. nat64 are the operator's
// own translation prefixes (RFC 6052) besides 64:ff9b::/96; an IPv6 form that
// embeds an IPv4 address is judged by what it embeds. The own addresses of
// the gateway are not known here.
func Classify(a netip.Addr, nat64 []netip.Prefix) Class {
	switch {
	case !a.IsValid(), a.Zone() != "":
		return Unknown
	case a.Is4():
		return classify4(a.As4())
	default:
		return classify6(a, nat64)
	}
}

func classify4(b [4]byte) Class {
	if metadata4(b) {
		return Metadata
	}
	switch {
	case b == [4]byte{}:
		return Unspecified
	case b == [4]byte{255, 255, 255, 255}:
		return Broadcast
	case b[0] == 10, b[0] == 172 && b[1]&0xf0 == 16, b[0] == 192 && b[1] == 168:
		return Private
	case b[0] == 100 && b[1]&0xc0 == 64:
		return Shared
	case b[0] == 127:
		return Loopback
	case b[0] == 169 && b[1] == 254:
		return LinkLocal
	case b[0] == 192 && b[1] == 0 && b[2] == 2,
		b[0] == 198 && b[1] == 51 && b[2] == 100,
		b[0] == 203 && b[1] == 0 && b[2] == 113:
		return Documentation
	case b[0] == 198 && b[1]&0xfe == 18:
		return Benchmarking
	case b[0]&0xf0 == 224:
		return Multicast
	case b[0] == 0, b[0] >= 240,
		b[0] == 192 && b[1] == 0 && b[2] == 0,   // RFC 6890, IETF protocol assignments
		b[0] == 192 && b[1] == 88 && b[2] == 99: // RFC 7526, 6to4 relay anycast
		return Reserved
	}
	return Public
}

func classify6(a netip.Addr, nat64 []netip.Prefix) Class {
	b := a.As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	if metadata6(hi, lo) {
		return Metadata
	}
	switch {
	case hi == 0 && lo == 0:
		return Unspecified
	case hi == 0 && lo == 1:
		return Loopback
	}
	if e, ok := embedded(a, nat64); ok {
		return e.class(hi)
	}
	switch {
	case hi>>56 == 0xff:
		return Multicast
	case hi>>54 == 0xfe80>>6:
		return LinkLocal
	case hi>>54 == 0xfec0>>6:
		return SiteLocal
	case hi>>57 == 0xfc>>1:
		return UniqueLocal
	case hi>>32 == 0x20010db8, hi>>44 == 0x3fff0: // 2001:db8::/32, 3fff::/20
		return Documentation
	case hi>>16 == 0x2001_0002_0000:
		return Benchmarking
	case hi>>61 != 1, // outside 2000::/3
		hi>>41 == 0x20010000>>9: // 2001::/23, IETF protocol assignments
		return Reserved
	}
	return Public
}

// metadata4 reports whether an IPv4 address hands out credentials of the
// machine: AWS, GCP, Azure, OpenStack and others on 169.254.169.0/24, AWS
// containers and EKS on 169.254.170.0/24, Tencent, Scaleway, Alibaba, Oracle
// and Azure's wire server, which is the only one outside a special range.
func metadata4(b [4]byte) bool {
	switch {
	case b[0] == 169 && b[1] == 254 && (b[2] == 169 || b[2] == 170):
		return true
	}
	switch b {
	case [4]byte{169, 254, 0, 23}, [4]byte{169, 254, 42, 42},
		[4]byte{100, 100, 100, 200}, [4]byte{192, 0, 0, 192}, [4]byte{168, 63, 129, 16}:
		return true
	}
	return false
}

// metadata6 is metadata4 for IPv6: AWS (fd00:ec2::/32), GCP (fd20:ce::254),
// Scaleway (fd00:42::42) and OpenStack (fe80::a9fe:a9fe).
func metadata6(hi, lo uint64) bool {
	return hi>>32 == 0xfd000ec2 ||
		hi == 0xfd20_00ce_0000_0000 && lo == 0x254 ||
		hi == 0xfd00_0042_0000_0000 && lo == 0x42 ||
		hi == 0xfe80_0000_0000_0000 && lo == 0xa9fe_a9fe
}

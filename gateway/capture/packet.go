//go:build linux

package capture

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Verdicts of a Packet.
const (
	VerdictDeny  = "deny"  // no capture takes a packet of this kind
	VerdictSpoof = "spoof" // its source is not one of the sandbox's
)

// Packet is one refused packet, or several alike. A Packet whose Dst is not
// valid stands for packets that were refused and counted but not seen: there
// were more than the log takes.
type Packet struct {
	Interface string         // as Sockets.Interface
	Verdict   string         // VerdictDeny or VerdictSpoof
	Proto     uint8          // IANA number of the innermost protocol found; 0 unknown
	Src, Dst  netip.AddrPort // ports are 0 where the protocol has none or the packet does not show them
	ICMPType  uint8          // of ICMP and ICMPv6
	ICMPCode  uint8
	Length    int    // bytes of the first packet by its own header
	Count     uint64 // at least 1
	First     time.Time
	Last      time.Time
	MAC       string // the sender's link address, "" on lo
}

// Sizes of the headers that decode reads, in bytes.
const (
	ipv4HeaderLen = 20 // RFC 791 section 3.1, without options
	ipv6HeaderLen = 40 // RFC 8200 section 3
)

// maxExtensions is how many IPv6 extension headers decode walks over.
const maxExtensions = 8

// decode fills p from the beginning of an IP packet as the sandbox sent it. It
// says whether b has at least a whole IP header; the rest of b may be missing.
func (p *Packet) decode(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	switch b[0] >> 4 {
	case 4:
		return p.decode4(b)
	case 6:
		return p.decode6(b)
	}
	return false
}

func (p *Packet) decode4(b []byte) bool {
	if len(b) < ipv4HeaderLen {
		return false
	}
	p.Length = int(binary.BigEndian.Uint16(b[2:]))
	p.Proto = b[9]
	src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	var transport []byte
	const offsetMask = 0x1fff // a later fragment has no transport header
	header := int(b[0]&15) * 4
	if binary.BigEndian.Uint16(b[6:])&offsetMask == 0 && header >= ipv4HeaderLen && header < len(b) {
		transport = b[header:]
	}
	p.setTransport(src, dst, transport)
	return true
}

func (p *Packet) decode6(b []byte) bool {
	if len(b) < ipv6HeaderLen {
		return false
	}
	p.Length = ipv6HeaderLen + int(binary.BigEndian.Uint16(b[4:]))
	src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	proto, transport := skipExtensions(b[6], b[ipv6HeaderLen:])
	p.Proto = proto
	p.setTransport(src, dst, transport)
	return true
}

// skipExtensions walks over IPv6 extension headers (RFC 8200 section 4). It
// returns the protocol behind them and its header, or the extension at which
// the bytes end.
func skipExtensions(next uint8, b []byte) (uint8, []byte) {
	for range maxExtensions {
		var size int
		switch next {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			if len(b) < 8 {
				return next, nil
			}
			size = 8 + int(b[1])*8
		case unix.IPPROTO_AH: // RFC 4302 section 2.2: length in 4 bytes, less 2
			if len(b) < 8 {
				return next, nil
			}
			size = (int(b[1]) + 2) * 4
		case unix.IPPROTO_FRAGMENT:
			if len(b) < 8 {
				return next, nil
			}
			if binary.BigEndian.Uint16(b[2:])&0xfff8 != 0 { // not the first fragment
				return b[0], nil
			}
			size = 8
		default:
			return next, b
		}
		next = b[0]
		if size > len(b) {
			return next, nil
		}
		b = b[size:]
	}
	return next, nil
}

// setTransport fills addresses, ports and ICMP fields; b may be short or nil.
func (p *Packet) setTransport(src, dst netip.Addr, b []byte) {
	var srcPort, dstPort uint16
	switch p.Proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP:
		if len(b) >= 4 {
			srcPort, dstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if len(b) >= 2 {
			p.ICMPType, p.ICMPCode = b[0], b[1]
		}
	}
	p.Src, p.Dst = netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)
}

//go:build linux

package capture

import (
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The parts of which rules are made. Each is what the nft language writes as
// one match or statement.

func compare(load expr.Any, op expr.CmpOp, data ...byte) []expr.Any {
	return []expr.Any{load, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

func networkHeader(offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

func transportHeader(offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
}

// masked loads length bytes by load and clears the bits that mask does not have.
func masked(load expr.Any, mask []byte) []expr.Any {
	return []expr.Any{load, &expr.Bitwise{SourceRegister: 1, DestRegister: 1,
		Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))}}
}

// version matches packets of one version of IP.
func version(f family) []expr.Any {
	return compare(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, expr.CmpOpEq, f.nfproto)
}

// protocol matches the innermost protocol, behind extension headers.
func protocol(p uint8) []expr.Any {
	return compare(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, expr.CmpOpEq, p)
}

// nextHeader compares the protocol named in the IPv6 header itself.
func nextHeader(op expr.CmpOp, p uint8) []expr.Any {
	return append(version(ipv6()), compare(networkHeader(6, 1), op, p)...)
}

// hopLimit matches that of an IPv6 header.
func hopLimit(n uint8) []expr.Any { return compare(networkHeader(7, 1), expr.CmpOpEq, n) }

func icmpType(t uint8) []expr.Any { return compare(transportHeader(0, 1), expr.CmpOpEq, t) }

// neighbourDiscovery returns the ICMPv6 types of RFC 4861 that a host sends:
// router solicitation, neighbour solicitation and advertisement.
func neighbourDiscovery() []uint8 { return []uint8{133, 135, 136} }

// listenerReports returns the ICMPv6 types of multicast listener reports
// (RFC 2710, RFC 3810).
func listenerReports() []uint8 { return []uint8{131, 132, 143} }

// port matches the destination port.
func port(p uint16) []expr.Any {
	return compare(transportHeader(2, 2), expr.CmpOpEq, binaryutil.BigEndian.PutUint16(p)...)
}

// otherPort matches every other destination port.
func otherPort(p uint16) []expr.Any {
	return compare(transportHeader(2, 2), expr.CmpOpNeq, binaryutil.BigEndian.PutUint16(p)...)
}

// newConnection matches a TCP segment that opens a connection: SYN and neither
// ACK, FIN nor RST.
func newConnection() []expr.Any {
	const fin, syn, rst, ack = 0x01, 0x02, 0x04, 0x10
	parts := append(protocol(unix.IPPROTO_TCP), masked(transportHeader(13, 1), []byte{fin | syn | rst | ack})...)
	return append(parts, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{syn}})
}

// notNewConnection matches every other TCP segment.
func notNewConnection() []expr.Any {
	// Four bytes that are aligned the kernel compares without a call.
	parts := masked(transportHeader(12, 4), []byte{0, 0x17, 0, 0})
	return append(parts, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 0x02, 0, 0}})
}

// plainTCP matches TCP in a packet that is whole and has neither options nor
// extension headers.
func plainTCP(f family) []expr.Any {
	if f.domain == unix.AF_INET6 {
		return nextHeader(expr.CmpOpEq, unix.IPPROTO_TCP)
	}
	return slices.Concat(version(f), compare(networkHeader(9, 1), expr.CmpOpEq, unix.IPPROTO_TCP),
		compare(networkHeader(0, 1), expr.CmpOpEq, 0x45), whole4())
}

// whole4 matches what is no fragment of an IPv4 packet.
func whole4() []expr.Any {
	parts := masked(networkHeader(4, 4), []byte{0, 0, 0x3f, 0xff})
	return append(parts, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)})
}

// unicast matches packets that go to one host: an IPv4 address before
// 224.0.0.0, an IPv6 address before ff00::.
func unicast(f family) []expr.Any {
	if f.domain == unix.AF_INET6 {
		return compare(networkHeader(24, 1), expr.CmpOpLt, 0xff)
	}
	return compare(networkHeader(16, 1), expr.CmpOpLt, 224)
}

// fragment4 matches every fragment of an IPv4 packet.
func fragment4() []expr.Any {
	parts := append(version(ipv4()), masked(networkHeader(6, 2), []byte{0x3f, 0xff})...)
	return append(parts, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{0, 0}})
}

// optionsOf4 matches an IPv4 header that is not 20 bytes long.
func optionsOf4() []expr.Any {
	return append(version(ipv4()), compare(networkHeader(0, 1), expr.CmpOpNeq, 0x45)...)
}

// exactly matches the destination a in a packet of a's version of IP.
func exactly(a netip.Addr) []expr.Any {
	if a.Is6() {
		return compare(networkHeader(24, 16), expr.CmpOpEq, a.AsSlice()...)
	}
	return compare(networkHeader(16, 4), expr.CmpOpEq, a.AsSlice()...)
}

func source(p netip.Prefix) []expr.Any      { return address(p, 12, 8) }
func destination(p netip.Prefix) []expr.Any { return address(p, 16, 24) }

// address matches an address of the IP header, which begins at offset4 or
// offset6.
func address(p netip.Prefix, offset4, offset6 uint32) []expr.Any {
	f, offset := ipv4(), offset4
	if p.Addr().Is6() {
		f, offset = ipv6(), offset6
	}
	bits := p.Addr().BitLen()
	parts := append(version(f), masked(networkHeader(offset, uint32(bits/8)), net.CIDRMask(p.Bits(), bits))...)
	return append(parts, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Masked().Addr().AsSlice()})
}

// answeredElsewhere matches packets from whose source no route leads to device:
// what the kernel says about them would leave by another.
func answeredElsewhere(device string) []expr.Any {
	return compare(&expr.Fib{Register: 1, FlagSADDR: true, ResultOIFNAME: true}, expr.CmpOpNeq, interfaceName(device)...)
}

// noWayBack matches packets to whose source no route leads by the interface at
// which they came.
func noWayBack() []expr.Any {
	return compare(&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true}, expr.CmpOpEq, 0, 0, 0, 0)
}

// fromHost matches packets that claim to come from an address of the host
// itself.
func fromHost() []expr.Any {
	return compare(&expr.Fib{Register: 1, FlagSADDR: true, ResultADDRTYPE: true}, expr.CmpOpEq,
		binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)...)
}

// keepSource puts the packet's source into a set, or keeps it there longer. It
// does not match if the set is full of others.
func keepSource(f family, s *nftables.Set) []expr.Any {
	offset, size := uint32(12), uint32(4)
	if f.domain == unix.AF_INET6 {
		offset, size = 8, 16
	}
	return []expr.Any{networkHeader(offset, size), &expr.Dynset{SrcRegKey: 1, SetID: s.ID, SetName: s.Name,
		Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: s.Timeout}}
}

// sender matches the source address of an Ethernet frame.
func sender(mac [6]byte) []expr.Any {
	parts := compare(&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1}, expr.CmpOpEq,
		binaryutil.NativeEndian.PutUint16(unix.ARPHRD_ETHER)...)
	return append(parts, compare(
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 6, Len: 6}, expr.CmpOpEq, mac[:]...)...)
}

// socket matches a property of the socket to which a packet belongs; a packet
// that belongs to none does not match.
func socket(key expr.SocketKey, value uint8) []expr.Any {
	return compare(&expr.Socket{Key: key, Register: 1}, expr.CmpOpEq, value)
}

func count(device string, c class) []expr.Any {
	return []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: counterName(device, c)}}
}

// logTo sends the packet to the packet log, within the limit of its class.
func logTo(group uint16, c class) []expr.Any {
	return []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: logRate, Unit: expr.LimitTimeSecond, Burst: logBurst},
		&expr.Log{
			Key:   1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_PREFIX | 1<<unix.NFTA_LOG_SNAPLEN | 1<<unix.NFTA_LOG_QTHRESHOLD,
			Group: group, Snaplen: snapLength, QThreshold: logThreshold, Data: []byte(c.String()),
		},
	}
}

// connection loads the destination address and both ports into registers that
// follow one another, and returns the first. Each part has a type whose length
// the nft command knows: it cannot list sets of others.
func connection(f family) (uint32, []expr.Any) {
	const first = unix.NFT_REG32_00
	offset, size := uint32(16), uint32(4)
	if f.domain == unix.AF_INET6 {
		offset, size = 24, 16
	}
	return first, []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Payload{DestRegister: first + size/4, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
		&expr.Payload{DestRegister: first + size/4 + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// remember puts the packet's connection into a set, or keeps it there longer.
func remember(f family, s *nftables.Set) []expr.Any {
	register, load := connection(f)
	return append(load, &expr.Dynset{SrcRegKey: register, SetID: s.ID, SetName: s.Name,
		Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: s.Timeout})
}

// remembered matches packets of a connection in a set.
func remembered(f family, s *nftables.Set) []expr.Any {
	register, load := connection(f)
	return append(load, &expr.Lookup{SourceRegister: register, SetID: s.ID, SetName: s.Name})
}

func reset() []expr.Any { return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() []expr.Any   { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

func call(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

func goTo(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

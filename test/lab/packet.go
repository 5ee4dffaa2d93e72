package lab

import (
	"encoding/binary"
	"net/netip"
)

// Packet4 is an IPv4 packet (RFC 791, section 3.1) whose payload could begin a
// datagram to a port. Of a raw socket the kernel fills in an unspecified source.
func Packet4(from, to netip.Addr, proto byte, fragment, port uint16) []byte {
	b := make([]byte, 20, 36)
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], 36)
	binary.BigEndian.PutUint16(b[4:], 1)
	binary.BigEndian.PutUint16(b[6:], fragment)
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.AsSlice())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	return append(b, datagram(port)...)
}

// Packet6 is an IPv6 packet (RFC 8200, section 3) with such a payload.
func Packet6(from, to netip.Addr, next byte, port uint16) []byte {
	b := make([]byte, 40, 56)
	b[0], b[5], b[6], b[7] = 0x60, 16, next, 64
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
	return append(b, datagram(port)...)
}

// datagram is 16 bytes of UDP (RFC 768) without a checksum.
func datagram(port uint16) []byte {
	return append([]byte{0x30, 0x39, byte(port >> 8), byte(port), 0, 16, 0, 0}, "leakleak"...)
}

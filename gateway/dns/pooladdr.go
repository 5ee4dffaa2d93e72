package dns

import (
	"encoding/binary"
	"math"
	"net/netip"
)

// size returns how many offsets a family's prefix has. The last IPv4 address
// is left out: it is the prefix's broadcast address.
func (p *Pool) size(v6 bool) uint32 {
	if v6 {
		return uint32(min(uint64(1)<<min(128-p.o.Prefix6.Bits(), 63), math.MaxUint32))
	}
	return uint32(1)<<(32-p.o.Prefix4.Bits()) - 1
}

// address returns the address at an offset, which is less than the size.
func (p *Pool) address(off uint32, v6 bool) netip.Addr {
	if v6 {
		b := p.o.Prefix6.Addr().As16()
		low := binary.BigEndian.Uint64(b[8:]) + uint64(off)
		binary.BigEndian.PutUint64(b[8:], low)
		return netip.AddrFrom16(b)
	}
	b := p.o.Prefix4.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+off)
	return netip.AddrFrom4(b)
}

// offset returns where in its family's prefix a stands.
func (p *Pool) offset(a netip.Addr) (uint32, bool) {
	a = a.Unmap().WithZone("")
	switch {
	case p.o.Prefix4.Contains(a):
		b, base := a.As4(), p.o.Prefix4.Addr().As4()
		off := binary.BigEndian.Uint32(b[:]) - binary.BigEndian.Uint32(base[:])
		return off, off < p.size(false)
	case p.o.Prefix6.Contains(a):
		b, base := a.As16(), p.o.Prefix6.Addr().As16()
		off := binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(base[8:])
		return uint32(off), off < uint64(p.size(true))
	}
	return 0, false
}

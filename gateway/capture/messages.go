//go:build linux

package capture

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// batchLen is how many datagrams one system call reads or sends at most.
	batchLen = 32
	// controlSpace is room for one control message with a sockaddr_in6.
	controlSpace = 128
)

// header is a struct mmsghdr: of a message, and how long it came.
type header struct {
	unix.Msghdr
	length uint32
}

// messages is what recvmmsg(2) and sendmmsg(2) work on.
type messages struct {
	headers [batchLen]header
	buffers [batchLen]unix.Iovec
	names   [batchLen]unix.RawSockaddrInet6 // or a RawSockaddrInet4
	control [batchLen][controlSpace]byte    // of what is read
}

func (c *DNSConn) messages() *messages {
	if m, ok := c.spare.Get().(*messages); ok {
		return m
	}
	return new(messages)
}

// receive reads what is there into ds, without waiting. It returns how many
// headers are filled.
func (m *messages) receive(fd int, ds []Datagram) (int, error) {
	n := min(len(ds), batchLen)
	for i := range n {
		h := &m.headers[i]
		m.point(i, ds[i].B)
		h.Namelen = unix.SizeofSockaddrInet6
		h.Control = &m.control[i][0]
		h.SetControllen(controlSpace)
		h.Flags = 0
	}
	read, err := m.call(unix.SYS_RECVMMSG, fd, 0, n)
	m.forget(n)
	return read, err
}

// give puts the first n messages that were received into ds and returns how many
// that are. A datagram that was not diverted has no original destination; the
// rules let none through, and there would be no address to answer from.
func (m *messages) give(ds []Datagram, n int, z *zones) int {
	taken := 0
	for i := range max(n, 0) {
		h := &m.headers[i]
		dst, ok := originalDestination(m.control[i][:min(int(h.Controllen), controlSpace)])
		if !ok {
			continue
		}
		d, b := &ds[taken], ds[i].B
		ds[i].B = d.B // of one that was left out
		d.B = b[:min(int(h.length), len(b))]
		d.Peer, d.Scope = m.peer(i, z)
		d.Resolver = dst
		taken++
	}
	return taken
}

// peer is the source of message i, and the number of its zone, which is 0 of most.
func (m *messages) peer(i int, z *zones) (netip.AddrPort, uint32) {
	name := &m.names[i]
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&name.Port))[:])
	if name.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr), port), 0
	}
	addr := netip.AddrFrom16(name.Addr)
	if name.Scope_id != 0 {
		addr = addr.WithZone(z.name(name.Scope_id))
	}
	return netip.AddrPortFrom(addr, port), name.Scope_id
}

// answers makes the messages that send ds, at most batchLen.
func (m *messages) answers(ds []Datagram) {
	var from []byte
	var last netip.Addr
	for i := range ds {
		d, h := &ds[i], &m.headers[i]
		m.point(i, d.B)
		h.Namelen = m.setPeer(i, d.Peer, d.Scope)
		if a := d.Resolver.Addr(); from == nil || a != last {
			from, last = sendFrom(a), a
		}
		h.Control = &from[0]
		h.SetControllen(len(from))
	}
}

// send sends those messages of the n that come after the first sent, without
// waiting, and returns how many went out. An error is that of the first.
func (m *messages) send(fd, sent, n int) (int, error) {
	return m.call(unix.SYS_SENDMMSG, fd, sent, n)
}

// forget drops what the first n messages point to.
func (m *messages) forget(n int) {
	for i := range n {
		m.buffers[i].Base, m.headers[i].Control = nil, nil
	}
}

// point makes b the one buffer of message i.
func (m *messages) point(i int, b []byte) {
	m.buffers[i].Base = unsafe.SliceData(b)
	m.buffers[i].SetLen(len(b))
	h := &m.headers[i]
	h.Name = (*byte)(unsafe.Pointer(&m.names[i]))
	h.Iov = &m.buffers[i]
	h.SetIovlen(1)
}

// setPeer makes a, in the zone of number scope, the other end of message i and
// returns its length.
func (m *messages) setPeer(i int, a netip.AddrPort, scope uint32) uint32 {
	name := &m.names[i]
	*name = unix.RawSockaddrInet6{Family: unix.AF_INET6}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&name.Port))[:], a.Port())
	if a.Addr().Is4() {
		name.Family = unix.AF_INET
		(*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr = a.Addr().As4()
		return unix.SizeofSockaddrInet4
	}
	name.Addr, name.Scope_id = a.Addr().As16(), scope
	return unix.SizeofSockaddrInet6
}

// sendFrom is the control message that sends from a.
func sendFrom(a netip.Addr) []byte {
	if a.Is4() {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
}

// call is one system call about the messages from the one numbered first up to
// end.
func (m *messages) call(number uintptr, fd, first, end int) (int, error) {
	for {
		n, _, errno := unix.Syscall6(number, uintptr(fd), uintptr(unsafe.Pointer(&m.headers[first])), uintptr(end-first), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

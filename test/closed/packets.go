//go:build linux

package closed

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"sallyport/test/lab"
)

// port is that of the datagrams that the packets could be.
const port = 4433

// attempt is a packet that is neither TCP nor DNS, and what is recorded of it.
type attempt struct {
	name, reason, proto string
	to                  netip.Addr
	packet              []byte
	port                uint16 // that is recorded, if it tells the attempt from others
	fragment            bool
}

// attempts are packets of every kind. Those behind a header of IPv6 are
// recorded by what the header names.
func (s *Sandbox) attempts() []attempt {
	to4, to6, group4, group6 := s.Watch.IP4, s.Watch.IP6, s.Watch.Group4, s.Watch.Group6
	first := lab.Packet4(s.From4, to4, 17, 0x2000, port)
	binary.BigEndian.PutUint16(first[22:], 4434)
	list := []attempt{
		{name: "first fragment", reason: "udp_blocked", proto: "udp", to: to4, packet: first, port: 4434, fragment: true},
		{name: "later fragment", reason: "proto_blocked", proto: "tcp", to: to4, packet: lab.Packet4(s.From4, to4, 6, 0x0002, port), fragment: true},
	}
	for _, a := range []struct {
		name, reason, proto string
		to                  netip.Addr
		packet              []byte
	}{
		{"UDP", "udp_blocked", "udp", to4, lab.Packet4(s.From4, to4, 17, 0, port)},
		{"ICMP", "icmp_blocked", "icmp", to4, lab.Packet4(s.From4, to4, 1, 0, port)},
		{"SCTP", "proto_blocked", "sctp", to4, lab.Packet4(s.From4, to4, 132, 0, port)},
		{"GRE", "proto_blocked", "gre", to4, lab.Packet4(s.From4, to4, 47, 0, port)},
		{"ESP", "proto_blocked", "esp", to4, lab.Packet4(s.From4, to4, 50, 0, port)},
		{"multicast", "udp_blocked", "udp", group4, lab.Packet4(s.From4, group4, 17, 0, port)},
		{"UDP over IPv6", "udp_blocked", "udp", to6, lab.Packet6(s.From6, to6, 17, port)},
		{"echo over IPv6", "icmp_blocked", "icmpv6", to6, lab.Packet6(s.From6, to6, 58, port)},
		{"SCTP over IPv6", "proto_blocked", "sctp", to6, lab.Packet6(s.From6, to6, 132, port)},
		{"GRE over IPv6", "proto_blocked", "gre", to6, lab.Packet6(s.From6, to6, 47, port)},
		{"hop-by-hop header", "udp_blocked", "udp", to6, hopByHop(s.From6, to6)},
		{"routing header", "proto_blocked", "proto-48", to6, lab.Packet6(s.From6, to6, 43, port)},
		{"fragment header", "proto_blocked", "proto-48", to6, lab.Packet6(s.From6, to6, 44, port)},
		{"destination options", "proto_blocked", "proto-48", to6, lab.Packet6(s.From6, to6, 60, port)},
		{"multicast over IPv6", "udp_blocked", "udp", group6, lab.Packet6(s.From6, group6, 17, port)},
	} {
		list = append(list, attempt{name: a.name, reason: a.reason, proto: a.proto, to: a.to, packet: a.packet})
	}
	return list
}

// send sends whole packets, as root in the sandbox can. The kernel of the
// sandbox may be the first to refuse, once it has learned to.
func (s *Sandbox) send(list []attempt) error {
	return s.NS.Do(func() error {
		fd4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd4)
		fd6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd6)
		for _, a := range list {
			if a.to.Is4() {
				_ = unix.Sendto(fd4, a.packet, 0, &unix.SockaddrInet4{Addr: a.to.As4()})
			} else {
				_ = unix.Sendto(fd6, a.packet, 0, &unix.SockaddrInet6{Addr: a.to.As16()})
			}
		}
		return nil
	})
}

// hopByHop is a datagram behind a header for every hop, which the kernel reads
// before the rules see the packet: it must be in order.
func hopByHop(from, to netip.Addr) []byte {
	b := lab.Packet6(from, to, 0, port)
	return append(b[:40], 17, 0, 1, 4, 0, 0, 0, 0, 0x30, 0x39, 0x11, 0x51, 0, 8, 0, 0) // options: padding
}

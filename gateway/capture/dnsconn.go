//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// DNSConn receives the datagrams that a sandbox sends to port 53 of any
// address and answers from the address that was asked.
type DNSConn struct {
	conn *net.UDPConn
}

func newDNSConn(f *os.File) (*DNSConn, error) {
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	udp, ok := c.(*net.UDPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is not a UDP socket", c), c.Close())
	}
	return &DNSConn{conn: udp}, nil
}

// originalDestinationSpace is room for one control message with a
// sockaddr_in6.
const originalDestinationSpace = 128

// ReadFrom reads one datagram. dst is the resolver the sandbox asked. A
// datagram longer than b is cut.
func (c *DNSConn) ReadFrom(b []byte) (n int, peer, dst netip.AddrPort, err error) {
	var oob [originalDestinationSpace]byte
	for {
		n, oobn, _, peer, err := c.conn.ReadMsgUDPAddrPort(b, oob[:])
		if err != nil {
			return 0, netip.AddrPort{}, netip.AddrPort{}, err
		}
		// A datagram that was not diverted has no original destination; the
		// rules let none through, and there would be no address to answer from.
		if dst, ok := originalDestination(oob[:oobn]); ok {
			return n, peer, dst, nil
		}
	}
}

func originalDestination(oob []byte) (netip.AddrPort, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for i := range messages {
		sa, err := unix.ParseOrigDstAddr(&messages[i])
		if err != nil {
			continue
		}
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), true
		case *unix.SockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), true
		}
	}
	return netip.AddrPort{}, false
}

// WriteTo sends b to peer from dst, the address that ReadFrom gave with the
// question.
func (c *DNSConn) WriteTo(b []byte, dst, peer netip.AddrPort) (int, error) {
	var oob []byte
	if dst.Addr().Is4() {
		oob = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: dst.Addr().As4()})
	} else {
		oob = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: dst.Addr().As16()})
	}
	n, _, err := c.conn.WriteMsgUDPAddrPort(b, oob, peer)
	return n, err
}

// Close closes the socket; a blocked ReadFrom returns net.ErrClosed.
func (c *DNSConn) Close() error { return c.conn.Close() }

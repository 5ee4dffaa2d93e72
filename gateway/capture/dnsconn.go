//go:build linux

package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Datagram is a message of a DNSConn. It is no type of its own so that those
// who read and send need not know this package.
type Datagram = struct {
	B        []byte         // room to read into, then the message
	Peer     netip.AddrPort // the sandbox's end
	Scope    uint32         // the number of Peer's zone, where the socket is; 0 of most
	Resolver netip.AddrPort // the end that was asked
}

// DNSConn receives the datagrams that a sandbox sends to port 53 of any
// address and answers from the address that was asked.
type DNSConn struct {
	conn  *net.UDPConn
	raw   syscall.RawConn
	spare sync.Pool // of *messages
	zones zones     // of who reads: raw lets in one at a time
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
	raw, err := udp.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, udp.Close())
	}
	return &DNSConn{conn: udp, raw: raw}, nil
}

// ReadBatch waits for datagrams and reads those that are there, as many as take
// has room for, and cuts each B to its message. It calls take before each try,
// and leave after one that found nothing. A datagram longer than its B is cut.
func (c *DNSConn) ReadBatch(take func() []Datagram, leave func()) (n int, err error) {
	ended := c.raw.Read(func(fd uintptr) bool {
		m := c.messages()
		defer c.spare.Put(m)
		for n == 0 && err == nil {
			ds := take()
			var read int
			if read, err = m.receive(int(fd), ds); err == unix.EAGAIN {
				leave()
				err = nil
				return false
			}
			n = m.give(ds, read, &c.zones)
		}
		return true
	})
	if ended != nil {
		return 0, ended
	}
	if err != nil {
		return 0, os.NewSyscallError("recvmmsg", err)
	}
	return n, nil
}

// WriteBatch sends each B to its Peer from its Resolver, the address that
// ReadBatch gave with the question. One that cannot be sent does not keep back
// the others; the error is that of the first such.
func (c *DNSConn) WriteBatch(ds []Datagram) error {
	m := c.messages()
	defer c.spare.Put(m)
	var failed error
	for start := 0; start < len(ds); start += batchLen {
		some := ds[start:min(start+batchLen, len(ds))]
		m.answers(some)
		sent := 0
		ended := c.raw.Write(func(fd uintptr) bool {
			for sent < len(some) {
				n, err := m.send(int(fd), sent, len(some))
				switch {
				case err == unix.EAGAIN:
					return false
				case err != nil: // of the first of them
					if failed == nil {
						failed = fmt.Errorf("to %s: %w", some[sent].Peer, os.NewSyscallError("sendmmsg", err))
					}
					sent++
				default:
					sent += n
				}
			}
			return true
		})
		m.forget(len(some))
		if ended != nil {
			return ended
		}
	}
	return failed
}

// SetReadDeadline ends a ReadBatch that waits at t with os.ErrDeadlineExceeded.
func (c *DNSConn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// SyscallConn is the socket, for those who wait for it together with others.
func (c *DNSConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Close closes the socket; a ReadBatch that waits returns net.ErrClosed.
func (c *DNSConn) Close() error { return c.conn.Close() }

// originalDestination returns what IP_RECVORIGDSTADDR and its like for IPv6
// have put into the control messages.
func originalDestination(oob []byte) (netip.AddrPort, bool) {
	for len(oob) >= unix.CmsgLen(0) {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return netip.AddrPort{}, false
		}
		oob = rest
		// The data is a sockaddr_in or a sockaddr_in6.
		switch {
		case h.Level == unix.SOL_IP && h.Type == unix.IP_ORIGDSTADDR && len(data) >= unix.SizeofSockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[4:8])), binary.BigEndian.Uint16(data[2:])), true
		case h.Level == unix.SOL_IPV6 && h.Type == unix.IPV6_ORIGDSTADDR && len(data) >= unix.SizeofSockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(data[8:24])), binary.BigEndian.Uint16(data[2:])), true
		}
	}
	return netip.AddrPort{}, false
}

//go:build linux

package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// netfilterSocket is a netlink socket to the netfilter of the network namespace
// it was made in. Unlike the libraries' connections it can be handed to another
// process and read with a deadline.
type netfilterSocket struct {
	file *os.File
	raw  syscall.RawConn
}

// openNetfilter makes a socket in the network namespace of the calling thread.
func openNetfilter() (*netfilterSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("netfilter socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("netfilter socket: bind", err)
	}
	return newNetfilterSocket(fd)
}

// netfilterFromFile makes a socket of a descriptor that was received. f stays
// the caller's.
func netfilterFromFile(f *os.File) (*netfilterSocket, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := duplicate(raw)
	if err != nil {
		return nil, err
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err == nil && protocol != unix.NETLINK_NETFILTER {
		err = fmt.Errorf("protocol %d is not netfilter's", protocol)
	}
	if err == nil {
		err = os.NewSyscallError("set nonblock", unix.SetNonblock(fd, true))
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return newNetfilterSocket(fd)
}

// newNetfilterSocket takes fd over.
func newNetfilterSocket(fd int) (*netfilterSocket, error) {
	f := os.NewFile(uintptr(fd), "netfilter")
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &netfilterSocket{file: f, raw: raw}, nil
}

// File returns a duplicate of the descriptor, which the caller closes.
func (s *netfilterSocket) File() (*os.File, error) {
	fd, err := duplicate(s.raw)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netfilter"), nil
}

func duplicate(raw syscall.RawConn) (int, error) {
	dup, err := -1, error(nil)
	if cerr := raw.Control(func(fd uintptr) {
		dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); cerr != nil {
		return -1, closed(cerr)
	}
	return dup, os.NewSyscallError("duplicate", err)
}

// Close closes the socket; a blocked receive returns os.ErrClosed.
func (s *netfilterSocket) Close() error { return s.file.Close() }

// setDeadline is for receive; a time that has passed ends one that waits.
func (s *netfilterSocket) setDeadline(t time.Time) error { return closed(s.file.SetReadDeadline(t)) }

// closed gives the poller's error of a closed file, which package os does not
// translate for raw connections, its public name.
func closed(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		return err
	}
	return fmt.Errorf("netfilter: %w (%v)", os.ErrClosed, err)
}

// receive reads one datagram into what room returns, which it asks for when
// there is one, and waits until the deadline.
func (s *netfilterSocket) receive(room func() []byte) (int, error) {
	n, err := 0, error(nil)
	rerr := s.raw.Read(func(fd uintptr) bool {
		n, err = readInto(int(fd), room)
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return 0, closed(rerr)
	}
	return n, os.NewSyscallError("netfilter: receive", err)
}

// receiveNow reads one datagram that is already there; EAGAIN if none is.
func (s *netfilterSocket) receiveNow(room func() []byte) (int, error) {
	n, err := 0, error(nil)
	if cerr := s.raw.Control(func(fd uintptr) { n, err = readInto(int(fd), room) }); cerr != nil {
		return 0, closed(cerr)
	}
	return n, err
}

// readInto reads one datagram from a socket that does not block.
func readInto(fd int, room func() []byte) (int, error) {
	if _, _, err := unix.Recvfrom(fd, nil, unix.MSG_PEEK|unix.MSG_DONTWAIT); err != nil {
		return 0, err
	}
	n, _, err := unix.Recvfrom(fd, room(), unix.MSG_DONTWAIT)
	return n, err
}

func (s *netfilterSocket) send(b []byte) error {
	var err error
	if cerr := s.raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}); cerr != nil {
		return closed(cerr)
	}
	return os.NewSyscallError("netfilter: send", err)
}

// answerSpace holds the answer to any request made here.
const answerSpace = 4096

// request sends one message and returns the data of its answer, nil for an
// acknowledgement. netfilter answers before send returns. A refusal is a
// syscall.Errno.
func (s *netfilterSocket) request(kind uint16, flags netlink.HeaderFlags, data []byte) ([]byte, error) {
	m := netlink.Message{Data: pad(data), Header: netlink.Header{
		Type:  netlink.HeaderType(kind),
		Flags: netlink.Request | flags,
	}}
	m.Header.Length = uint32(unix.NLMSG_HDRLEN + len(m.Data))
	b, err := m.MarshalBinary()
	if err != nil {
		return nil, err
	}
	if err := s.send(b); err != nil {
		return nil, err
	}
	answer := make([]byte, answerSpace)
	n, err := s.receiveNow(func() []byte { return answer })
	if err != nil {
		return nil, os.NewSyscallError("netfilter: answer", err)
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil || len(messages) == 0 {
		return nil, fmt.Errorf("netfilter: answer of %d bytes: %w", n, errors.Join(err, os.ErrInvalid))
	}
	first := messages[0]
	if first.Header.Type != unix.NLMSG_ERROR {
		return first.Data, nil
	}
	if len(first.Data) < 4 {
		return nil, fmt.Errorf("netfilter: short answer: %w", os.ErrInvalid)
	}
	if code := int32(binary.NativeEndian.Uint32(first.Data)); code != 0 {
		return nil, syscall.Errno(-code)
	}
	return nil, nil
}

func pad(b []byte) []byte {
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// nfgenmsg is the header before the attributes of every netfilter message.
func nfgenmsg(family byte, resource uint16) []byte {
	return []byte{family, unix.NFNETLINK_V0, byte(resource >> 8), byte(resource)}
}

const nfgenmsgLen = 4

func netfilterType(subsystem, message int) uint16 { return uint16(subsystem<<8 | message) }

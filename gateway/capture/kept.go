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

// Kept are listening sockets of a capture that outlived the process which
// opened them: the service manager held them meanwhile, and connections and
// questions wait in them. A nil Kept is none.
type Kept struct {
	// Files stay the caller's, who closes them when the capture is open.
	Files []*os.File
	// Drop makes the service manager let go of them. It is called, once, before
	// others are opened in their stead, and returns when that is done.
	Drop func() error
}

// wanted is one socket as a capture opens it.
type wanted struct {
	family  family
	kind    int            // SOCK_STREAM, which listens, or SOCK_DGRAM
	at      netip.AddrPort // port 0: any but that of DNS
	device  string         // "" all
	visible bool           // an ordinary socket, of an explicit proxy
}

// use returns k's descriptors in the order of want, if the kernel says of them
// that they are what a capture would open, in the network namespace of the
// calling thread, each once and none besides. If one is not, none is used: they
// are let go of, and the result is nil.
func (k *Kept) use(want []wanted) ([]*os.File, error) {
	if k == nil {
		return nil, nil
	}
	if files := k.matching(want); files != nil {
		return files, nil
	}
	k.Close()
	if k.Drop == nil {
		return nil, nil
	}
	return nil, k.Drop()
}

// Close closes the descriptors.
func (k *Kept) Close() {
	if k != nil {
		closeFiles(k.Files)
		k.Files = nil
	}
}

func (k *Kept) matching(want []wanted) []*os.File {
	here, err := cookieHere()
	if err != nil || here == 0 || len(want) == 0 || len(k.Files) != len(want) {
		return nil
	}
	files := make([]*os.File, len(want))
	for _, f := range k.Files {
		for i, w := range want {
			if files[i] == nil && w.is(f, here) {
				files[i] = f
				break
			}
		}
	}
	for _, f := range files {
		if f == nil {
			return nil
		}
	}
	return files
}

// is says whether f is such a socket, in the namespace with the cookie here.
func (w wanted) is(f *os.File, here uint64) bool {
	raw, err := f.SyscallConn() // Fd would make it block for every process that has it
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		is = w.hasPlace(int(fd), here) && w.hasAddress(int(fd)) && w.hasOptions(int(fd))
	})
	return err == nil && is
}

// hasPlace compares where the socket is: namespace and device, by the numbers
// that the kernel does not give again to another of the same name.
func (w wanted) hasPlace(fd int, here uint64) bool {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil || cookie != here {
		return false
	}
	index := 0
	if w.device != "" {
		link, err := net.InterfaceByName(w.device)
		if err != nil {
			return false
		}
		index = link.Index
	}
	return optionIs(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, index)
}

func (w wanted) hasAddress(fd int) bool {
	if _, err := unix.Getpeername(fd); !errors.Is(err, unix.ENOTCONN) {
		return false
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	var at netip.AddrPort
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	if w.at.Port() == 0 {
		return at.Addr() == w.at.Addr() && at.Port() != 0 && at.Port() != dnsPort
	}
	return at == w.at
}

// hasOptions compares what setOptions sets, and what would let another share
// the port or take what is sent.
func (w wanted) hasOptions(fd int) bool {
	protocol, listens, transparent := unix.IPPROTO_TCP, 1, 1
	if w.kind == unix.SOCK_DGRAM {
		protocol, listens = unix.IPPROTO_UDP, 0
	}
	if w.visible {
		transparent = 0
	}
	speaks := optionIs(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL, protocol) ||
		w.visible && optionIs(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_MPTCP) // as package net listens
	same := speaks && optionIs(fd, unix.SOL_SOCKET, unix.SO_DOMAIN, w.family.domain) &&
		optionIs(fd, unix.SOL_SOCKET, unix.SO_TYPE, w.kind) &&
		optionIs(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN, listens) &&
		optionIs(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 0) &&
		optionIs(fd, unix.SOL_SOCKET, unix.SO_MARK, 0)
	if w.family.domain == unix.AF_INET6 {
		same = same && optionIs(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, transparent)
	} else {
		same = same && optionIs(fd, unix.SOL_IP, unix.IP_TRANSPARENT, transparent)
	}
	if w.family.domain == unix.AF_INET6 && !w.visible {
		same = same && optionIs(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if w.kind != unix.SOCK_DGRAM {
		return same
	}
	if w.family.domain == unix.AF_INET6 {
		same = same && optionIs(fd, unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR, 1)
	} else {
		same = same && optionIs(fd, unix.SOL_IP, unix.IP_RECVORIGDSTADDR, 1)
	}
	return same && optionIs(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
}

func optionIs(fd, level, name, want int) bool {
	v, err := unix.GetsockoptInt(fd, level, name)
	return err == nil && v == want
}

// Listening returns duplicates of the listening sockets of s, to be kept for
// the next process. The caller closes them; s stays open.
func (s *Sockets) Listening() ([]*os.File, error) {
	var sockets []filer
	for _, l := range append(append([]net.Listener{}, s.TCP...), s.DNSListeners...) {
		f, ok := l.(filer)
		if !ok {
			return nil, fmt.Errorf("%T has no descriptor", l)
		}
		sockets = append(sockets, f)
	}
	for _, c := range s.DNSPackets {
		sockets = append(sockets, c.conn)
	}
	return duplicates(sockets)
}

func duplicates(sockets []filer) ([]*os.File, error) {
	var files []*os.File
	for _, socket := range sockets {
		f, err := socket.File()
		if err != nil {
			closeFiles(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Listen opens the listening socket of an explicit proxy, or takes over the one
// that was kept, and says which. The address is one of this host.
func Listen(address string, k *Kept) (l net.Listener, reused bool, err error) {
	files, err := k.use(visibleAt(address))
	if err != nil {
		return nil, false, err
	}
	if len(files) == 1 {
		l, err = net.FileListener(files[0])
		return l, true, err
	}
	l, err = net.Listen("tcp", address)
	return l, false, err
}

// visibleAt is the socket that package net opens at an address, or nothing if
// that is not said by the address alone.
func visibleAt(address string) []wanted {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil || a.Port == 0 {
		return nil
	}
	w := wanted{family: ipv6(), kind: unix.SOCK_STREAM, at: netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(a.Port)), visible: true}
	if len(a.IP) == 0 {
		return []wanted{w}
	}
	w.at = netip.AddrPortFrom(a.AddrPort().Addr().Unmap().WithZone(""), uint16(a.Port))
	if w.at.Addr().Is4() {
		w.family = ipv4()
	}
	return []wanted{w}
}

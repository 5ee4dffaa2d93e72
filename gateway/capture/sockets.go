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

// Sockets is what a capture hands to the gateway. The descriptors belong to
// the network namespace they were made in and work from any other.
type Sockets struct {
	TCP          []net.Listener // LocalAddr of an accepted connection is its original destination
	DNSPackets   []*DNSConn     // UDP port 53 of every address
	DNSListeners []net.Listener // TCP port 53 of every address
	Packets      *PacketLog     // everything else, refused
	Interface    string         // names the capture in records
	Reused       bool           // the listening sockets are those that were kept
}

// Close closes every descriptor. The rules in the kernel stay: without the
// sockets behind them they refuse everything.
func (s *Sockets) Close() error {
	var errs []error
	for _, l := range s.TCP {
		errs = append(errs, l.Close())
	}
	for _, c := range s.DNSPackets {
		errs = append(errs, c.Close())
	}
	for _, l := range s.DNSListeners {
		errs = append(errs, l.Close())
	}
	if s.Packets != nil {
		errs = append(errs, s.Packets.Close())
	}
	return errors.Join(errs...)
}

// The addresses at which the listeners of every capture are bound. Nobody
// else's are: the first is the dummy address of RFC 7600 section 6, the second a
// unique local one (RFC 4193). In a namespace with nothing but lo they are also
// its own addresses, from which its connections come.
func ownAddr4() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 0, 8}) }
func ownAddr6() netip.Addr { return netip.MustParseAddr("fd73:616c:6c79::1") }

const (
	dnsPort = 53
	// backlog is how many connections may wait for Accept; the kernel cuts it
	// to net.core.somaxconn of the namespace.
	backlog = 4096
	// packetBuffer is the receive buffer of a DNS socket in bytes, as far as
	// net.core.rmem_max allows.
	packetBuffer = 1 << 20
)

// family is one of the two versions of IP.
type family struct {
	domain  int // AF_INET or AF_INET6
	own     netip.Addr
	nfproto byte
}

func ipv4() family {
	return family{domain: unix.AF_INET, own: ownAddr4(), nfproto: unix.NFPROTO_IPV4}
}

func ipv6() family {
	return family{domain: unix.AF_INET6, own: ownAddr6(), nfproto: unix.NFPROTO_IPV6}
}

// listenOptions says what openListeners makes.
type listenOptions struct {
	families  []family
	device    string // only packets that arrive at this interface; "" all
	Interface string // Sockets.Interface
	kept      *Kept
}

// listeners is Sockets without its packet log, and the ports the rules divert to.
type listeners struct {
	sockets *Sockets
	ports   map[int]uint16 // domain → port of the TCP listener
	room    int            // of each DNS socket of an interface, for answers, in bytes
}

// wanted are the sockets that o asks for: one to divert connections to and two
// for DNS in each version of IP.
func (o listenOptions) wanted() []wanted {
	var out []wanted
	for _, f := range o.families {
		dns := netip.AddrPortFrom(f.own, dnsPort)
		out = append(out,
			wanted{family: f, kind: unix.SOCK_STREAM, at: netip.AddrPortFrom(f.own, 0), device: o.device},
			wanted{family: f, kind: unix.SOCK_STREAM, at: dns, device: o.device},
			wanted{family: f, kind: unix.SOCK_DGRAM, at: dns, device: o.device})
	}
	return out
}

// openListeners makes the sockets in the network namespace of the calling
// thread, or takes over those that were kept.
func openListeners(o listenOptions) (*listeners, error) {
	want := o.wanted()
	kept, err := o.kept.use(want)
	if err != nil {
		return nil, err
	}
	ls := &listeners{sockets: &Sockets{Interface: o.Interface, Reused: kept != nil}, ports: make(map[int]uint16)}
	for i, w := range want {
		if kept != nil {
			err = ls.take(w, kept[i])
		} else {
			err = ls.open(w)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", w, err), ls.sockets.Close())
		}
	}
	return ls, nil
}

// open makes the socket that w asks for.
func (l *listeners) open(w wanted) error {
	if w.kind == unix.SOCK_DGRAM {
		file, err := bind(w)
		if err != nil {
			return err
		}
		return l.take(w, file)
	}
	listener, err := listen(w)
	if err == nil {
		l.listens(w, listener)
	}
	return err
}

// take takes in a duplicate of the socket that w asked for, and closes file.
func (l *listeners) take(w wanted, file *os.File) (err error) {
	defer file.Close()
	if w.kind == unix.SOCK_DGRAM {
		if w.device != "" {
			if l.room, err = makeRoomForAnswers(file); err != nil {
				return err
			}
		}
		c, err := newDNSConn(file)
		if err == nil {
			l.sockets.DNSPackets = append(l.sockets.DNSPackets, c)
		}
		return err
	}
	listener, err := net.FileListener(file)
	if err == nil {
		l.listens(w, listener)
	}
	return err
}

// listens takes in the listener that w asked for.
func (l *listeners) listens(w wanted, listener net.Listener) {
	switch {
	case w.at.Port() == dnsPort:
		l.sockets.DNSListeners = append(l.sockets.DNSListeners, listener)
	default:
		l.sockets.TCP = append(l.sockets.TCP, listener)
		l.ports[w.family.domain] = listener.Addr().(*net.TCPAddr).AddrPort().Port()
	}
}

// String names the socket in errors.
func (w wanted) String() string {
	if w.kind == unix.SOCK_DGRAM {
		return "udp " + w.at.String()
	}
	return "tcp " + w.at.String()
}

// bind makes the transparent datagram socket that w asks for. It never shares
// its port: SO_REUSEADDR would let a process of the sandbox bind the same and
// take the questions.
func bind(w wanted) (*os.File, error) {
	fd, err := unix.Socket(w.family.domain, w.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "capture")
	err = w.prepare(fd)
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(w.at)))
	}
	if err != nil {
		file.Close()
		return nil, held(err)
	}
	return file, nil
}

// prepare sets what a socket must have before it is bound.
func (w wanted) prepare(fd int) error {
	err := setOptions(fd, w.family, w.kind)
	if err == nil && w.device != "" {
		err = os.NewSyscallError("bind to "+w.device, unix.BindToDevice(fd, w.device))
	}
	return err
}

// held says of an address that is in use who may have it.
func held(err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("another gateway holds this capture, or another program that port of every address: %w", err)
	}
	return err
}

func setOptions(fd int, f family, kind int) error {
	type option struct {
		level, name int
		text        string
	}
	options := []option{{unix.SOL_IP, unix.IP_TRANSPARENT, "IP_TRANSPARENT"}}
	if f.domain == unix.AF_INET6 {
		options = []option{
			{unix.SOL_IPV6, unix.IPV6_V6ONLY, "IPV6_V6ONLY"},
			{unix.SOL_IPV6, unix.IPV6_TRANSPARENT, "IPV6_TRANSPARENT"},
		}
	}
	switch {
	case kind == unix.SOCK_STREAM:
		options = append(options, option{unix.SOL_SOCKET, unix.SO_REUSEADDR, "SO_REUSEADDR"})
	case f.domain == unix.AF_INET6:
		options = append(options, option{unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR, "IPV6_RECVORIGDSTADDR"})
	default:
		options = append(options, option{unix.SOL_IP, unix.IP_RECVORIGDSTADDR, "IP_RECVORIGDSTADDR"})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, 1); err != nil {
			return os.NewSyscallError(o.text, err)
		}
	}
	if kind == unix.SOCK_DGRAM {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, packetBuffer); err != nil {
			return os.NewSyscallError("SO_RCVBUF", err)
		}
	}
	return nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

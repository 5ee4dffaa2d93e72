//go:build linux

package e2e_test

import (
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/test/lab"
)

// attack sends a packet of every kind to the addresses of w from inside ns, as
// root there: connections and datagrams to many ports, every protocol number
// by hand, fragments, wrong sources, and frames past the kernel's own routing.
// What cannot be sent is not sent.
func attack(t *testing.T, ns *lab.Namespace, w *lab.Watch, frames *frames) {
	t.Helper()
	attackWith(t, ns, w, packets(w))
	if frames != nil {
		must(t, ns.Do(func() error { return frames.send(w) }))
	}
	time.Sleep(50 * time.Millisecond) // for what is still on its way
}

// attackWith is the part of attack that any namespace can do.
func attackWith(t *testing.T, ns *lab.Namespace, w *lab.Watch, raw [][]byte) {
	t.Helper()
	var wg sync.WaitGroup
	for _, to := range []netip.Addr{w.IP4, w.IP6} {
		for _, port := range []int{1, 22, 25, 53, 80, 443, 853, 8080, 9418, 65535} {
			wg.Go(func() { knock(ns, "tcp", to, port) })
			wg.Go(func() { knock(ns, "udp", to, port) })
		}
	}
	wg.Go(func() { must(t, ns.Do(func() error { return sendRaw(w, raw) })) })
	wg.Wait()
}

// knock connects or sends once.
func knock(ns *lab.Namespace, network string, to netip.Addr, port int) {
	_ = ns.Do(func() error { // it is refused, or not: the counters tell
		c, err := net.DialTimeout(network, net.JoinHostPort(to.String(), strconv.Itoa(port)), 700*time.Millisecond)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		return c.Close()
	})
}

// sendRaw sends packets that are built by hand.
func sendRaw(w *lab.Watch, list [][]byte) error {
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
	full := 1000 // times that what was sent before may be waited for
	for _, p := range list {
		fd, to := fd4, unix.Sockaddr(&unix.SockaddrInet4{Addr: w.IP4.As4()})
		if p[0]>>4 == 6 {
			fd, to = fd6, &unix.SockaddrInet6{Addr: w.IP6.As16()}
		}
		err := unix.Sendto(fd, p, unix.MSG_DONTWAIT, to) // refused is well
		for ; (err == unix.EAGAIN || err == unix.ENOBUFS) && full > 0; full-- {
			time.Sleep(time.Millisecond)
			err = unix.Sendto(fd, p, unix.MSG_DONTWAIT, to)
		}
	}
	return nil
}

// everyProtocol is one packet of each protocol in both versions.
func everyProtocol(w *lab.Watch, from6 netip.Addr) (out [][]byte) {
	for proto := range 256 {
		out = append(out, lab.Packet4(netip.IPv4Unspecified(), w.IP4, byte(proto), 0, 443), lab.Packet6(from6, w.IP6, byte(proto), 443))
	}
	return out
}

// packets are one of every protocol, some from other sources, and fragments.
func packets(w *lab.Watch) (out [][]byte) {
	out = everyProtocol(w, netip.IPv6Loopback())
	for _, src := range []string{lab.Uplink, "10.66.1.2", "127.0.0.1", "198.18.0.1"} {
		for _, proto := range []byte{1, 6, 17, 47, 132} {
			out = append(out, lab.Packet4(netip.MustParseAddr(src), w.IP4, proto, 0, 443))
		}
	}
	for _, src := range []string{lab.Uplink6, "fd66:1::2", "fe80::1"} {
		for _, proto := range []byte{6, 17, 47, 58, 132} {
			out = append(out, lab.Packet6(netip.MustParseAddr(src), w.IP6, proto, 443))
		}
	}
	const more, second = 0x2000, 0x0002 // flag; offset in units of 8 bytes
	return append(out, lab.Packet4(netip.IPv4Unspecified(), w.IP4, 17, more, 443), lab.Packet4(netip.IPv4Unspecified(), w.IP4, 17, second, 443), lab.Packet4(netip.IPv4Unspecified(), w.IP4, 6, more, 443))
}

// frames is where Ethernet frames are sent from and to.
type frames struct {
	link string
	mac  net.HardwareAddr // of the gateway's end
	ip4  netip.Addr       // of the sandbox
	ip6  netip.Addr
}

// send sends the packets as frames, with the sandbox's own source and without
// asking any route.
func (f *frames) send(w *lab.Watch) error {
	link, err := net.InterfaceByName(f.link)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list := packets(w)
	for _, proto := range []byte{1, 6, 17, 47} {
		list = append(list, lab.Packet4(f.ip4, w.IP4, proto, 0, 443), lab.Packet6(f.ip6, w.IP6, proto, 443))
	}
	for _, p := range list {
		to := &unix.SockaddrLinklayer{Ifindex: link.Index, Halen: 6, Protocol: swapped(unix.ETH_P_IP)}
		if p[0]>>4 == 6 {
			to.Protocol = swapped(unix.ETH_P_IPV6)
		}
		copy(to.Addr[:], f.mac)
		if err := unix.Sendto(fd, p, 0, to); err != nil && err != unix.ENOBUFS {
			return err
		}
	}
	return nil
}

func swapped(n uint16) uint16 { return n<<8 | n>>8 }

//go:build linux

package capture

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRefusalsCarryNothingOut: the kernel answers a refused packet with an ICMP
// message that holds it, or with a reset, at the source that it claims. Whatever
// that is, neither leaves by another link than the sandbox's.
func TestRefusalsCarryNothingOut(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	everybody := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for name, guard := range map[string]func(t *testing.T, s site){
		"pinned": func(t *testing.T, s site) { s.open(t, s.options()) },
		"capture": func(t *testing.T, s site) {
			o := s.options()
			o.Sources = everybody
			s.open(t, o)
		},
		"lock": func(t *testing.T, s site) {
			inside(t, s.host, func() error { return LockInterfaces([]string{"sb0"}) })
		},
		"routes": func(t *testing.T, s site) {
			inside(t, s.host, func() error { return errors.Join(closeRoutes("sb0")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			inside(t, s.host, func() error { return configure("sb0", "10.77.4.1/24", "fd77::1/64") })
			guard(t, s)
			seen := s.listenOutside(t)
			inside(t, s.sandbox, func() error { // learns where the host is, of whatever that is refused
				for _, a := range []string{"198.51.100.8:99", "[2001:db8:2::8]:99"} {
					d := net.Dialer{Timeout: 300 * time.Millisecond}
					if c, err := d.Dial("tcp", a); err == nil {
						c.Close()
					}
				}
				return nil
			})
			inside(t, s.sandbox, func() error {
				data := bytes.Repeat([]byte("carried out"), 8)
				v4, v6 := netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:1::10")
				to4, to6 := netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:2::9")
				firstFragment := append([]byte{unix.IPPROTO_SCTP, 0, 0, 1, 0, 0, 0, 7}, data...)
				var errs []error
				for _, p := range []rawPacket{
					{src: v4, dst: to4, proto: unix.IPPROTO_UDP, payload: append(ports(4000, 99, 0, byte(8+len(data)), 0, 0), data...)},
					{src: v4, dst: to4, proto: unix.IPPROTO_SCTP, payload: data},
					{src: v4, dst: to4, proto: unix.IPPROTO_GRE, fragment: 0x2000, payload: data},
					{src: v4, dst: to4, proto: unix.IPPROTO_TCP, payload: segment(99, 16)},
					{src: v6, dst: to6, proto: unix.IPPROTO_SCTP, payload: data},
					{src: v6, dst: to6, proto: unix.IPPROTO_FRAGMENT, payload: firstFragment},
				} {
					errs = append(errs, p.send())
				}
				return errors.Join(errs...)
			})
			time.Sleep(500 * time.Millisecond)
			for _, got := range seen() {
				t.Errorf("outside: %q", got)
			}
		})
	}
}

// listenOutside begins to read what arrives outside, and returns what had come
// from or about the sandbox.
func (s site) listenOutside(t *testing.T) func() [][]byte {
	t.Helper()
	var f *os.File
	inside(t, s.outside, func() error {
		const all = 0x0300 // ETH_P_ALL in network order
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, all)
		f = os.NewFile(uintptr(fd), "outside")
		return os.NewSyscallError("socket", err)
	})
	t.Cleanup(func() { f.Close() })
	return func() (out [][]byte) {
		for {
			b := make([]byte, 2048)
			n, _, err := unix.Recvfrom(int(f.Fd()), b, unix.MSG_DONTWAIT)
			if err != nil {
				return out
			}
			for _, a := range []string{"198.51.100.9", "2001:db8:2::9"} {
				ip := net.ParseIP(a)
				if v4 := ip.To4(); v4 != nil {
					ip = v4
				}
				if bytes.Contains(b[:n], ip) {
					out = append(out, b[:n])
				}
			}
		}
	}
}

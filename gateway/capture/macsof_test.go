//go:build linux

package capture

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestSourceOfAnotherMAC: whose Ethernet address is bound to one source does not
// send from another's.
func TestSourceOfAnotherMAC(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	o := s.options()
	theirs := netip.MustParsePrefix("10.77.4.3/32")
	inside(t, s.sandbox, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			o.MACsOf = map[netip.Prefix][]net.HardwareAddr{o.Sources[0]: {l.Attrs().HardwareAddr}, theirs: {{2, 0, 0, 0, 0, 9}}}
		}
		return err
	})
	o.Sources = append(o.Sources, theirs)
	sockets := s.open(t, o)
	serveDestination(t, sockets)
	inside(t, s.sandbox, func() error { _, err := ask("203.0.113.10:443"); return err })
	inside(t, s.sandbox, rawPacket{src: theirs.Addr(), dst: netip.MustParseAddr("203.0.113.11"),
		proto: unix.IPPROTO_TCP, payload: segment(443, 2)}.send)
	got := next(t, sockets.Packets, func(p Packet) bool { return p.Dst.Port() == 443 })
	if got.Verdict != VerdictSpoof || got.Src.Addr() != theirs.Addr() {
		t.Errorf("reported %+v", got)
	}
}

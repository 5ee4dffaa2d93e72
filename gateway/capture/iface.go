//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What sallyport adds to the routing of the namespace where it captures
// interfaces. The numbers are its own; RemoveRules takes them away again.
const (
	// divertMark is set on every packet that goes to a listener. It is
	// compared whole.
	divertMark = 0x53500001
	// divertTable makes every address local to packets with divertMark.
	divertTable = 21328
	// closedTable has a black hole for everything in each version of IP, and an
	// unreachable default route behind it, of the metric closedLast.
	// Captured interfaces look there after divertTable and before every other
	// table but local, so if the nft rules are gone nothing is forwarded.
	closedTable = 21329
	closedLast  = 1 << 16
	// Priorities of the two routing rules.
	divertPriority = 530
	closedPriority = 531
)

// Groups of NFLOG for interfaces: interfaceGroup plus the index of the
// interface, modulo interfaceGroups. A group has one reader, so a second gateway
// cannot take an interface that has one.
const (
	interfaceGroup  = 20000
	interfaceGroups = 40000
)

// InterfaceOptions describes an interface whose default route is the gateway.
type InterfaceOptions struct {
	// Interface is its name where the gateway runs.
	Interface string
	// Sources are the addresses the sandbox may send from; at least one. A
	// packet from any other is a spoof. IPv6 link-local addresses are for
	// neighbour discovery alone unless they are listed.
	Sources []netip.Prefix
	// MACs, if any, are the Ethernet addresses the sandbox may send from.
	MACs []net.HardwareAddr
	// MACsOf are those that go with one of Sources, in the place of MACs: who has
	// one of them may not send from the source of another.
	MACsOf map[netip.Prefix][]net.HardwareAddr
	// Gateway are the addresses with prefix length at which the sandbox finds
	// its default route, such as 10.77.4.1/24. Those that are missing are added
	// to the interface.
	Gateway []netip.Prefix
	// Namespace, if not "", is the path of a network namespace of sallyport's
	// own, made if it is not there, into which the interface is moved. It has no
	// other link, so there is nothing to forward to, whatever the rules say, and
	// none of the host's sockets. It should be in a directory that lives as long
	// as the machine is up, such as /run/sallyport/net/NAME.
	Namespace string
	// Kept are sockets that an earlier process opened for the interface.
	Kept *Kept
}

// OpenInterface captures all traffic that arrives at an interface, the other
// end of which is a sandbox with the gateway as its default route. Forwarding
// settings are left as they are. The rules stay when the process ends, and
// refuse everything until the interface is opened again; RemoveRules removes
// them.
func OpenInterface(o InterfaceOptions) (*Sockets, error) {
	g, err := o.gate()
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", o.Interface, err)
	}
	var s *Sockets
	open := func() (err error) {
		s, err = openInterfaceHere(o, g)
		return err
	}
	if o.Namespace == "" {
		err = open()
	} else {
		err = withLinkMoved(o.Interface, o.Namespace, open)
	}
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", o.Interface, err)
	}
	return s, nil
}

// gate checks o and turns it into rules, as far as they are known before the
// listeners are.
func (o InterfaceOptions) gate() (gate, error) {
	g := gate{device: o.Interface, mark: divertMark, pinned: true}
	if o.Interface == "" || len(o.Interface) >= unix.IFNAMSIZ || strings.ContainsAny(o.Interface, "/ \t\n\x00") {
		return gate{}, errors.New("is not the name of an interface")
	}
	if len(o.Sources) == 0 {
		return gate{}, errors.New("has no source address: who sends there would be unknown")
	}
	for _, p := range o.Sources {
		if !p.IsValid() || p.Addr().Is4In6() {
			return gate{}, fmt.Errorf("source %s: is not a prefix of IPv4 or IPv6", p)
		}
		macs, ok := o.MACsOf[p]
		if !ok {
			macs = o.MACs
		}
		bound := sourceOf{prefix: p.Masked()}
		for _, m := range macs {
			if len(m) != 6 {
				return gate{}, fmt.Errorf("mac %q: is not an Ethernet address", m)
			}
			bound.macs = append(bound.macs, [6]byte(m))
		}
		g.sources = append(g.sources, bound)
	}
	for _, p := range o.Gateway {
		if !p.IsValid() || p.Addr().Is4In6() || p.Addr().IsUnspecified() {
			return gate{}, fmt.Errorf("gateway %s: is not an address with a prefix length", p)
		}
	}
	return g, nil
}

// openInterfaceHere does it in the network namespace of the calling thread. The
// second lock is closed first; the sandbox is let speak last.
func openInterfaceHere(o InterfaceOptions, g gate) (*Sockets, error) {
	link, err := netlink.LinkByName(o.Interface)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	if err := notUplink(link); err != nil {
		return nil, err
	}
	if g.gateways, err = neighboursOf(link, o.Gateway); err != nil {
		return nil, err
	}
	g.group = interfaceGroup + uint16(link.Attrs().Index%interfaceGroups)
	if g.families, err = addRoutes(o.Interface); err != nil {
		return nil, err
	}
	ls, err := openListeners(listenOptions{families: g.families, device: o.Interface, Interface: o.Interface, kept: o.Kept})
	if err != nil {
		return nil, err
	}
	g.ports = ls.ports
	err = limitWaiting(link, g.families, ls.room)
	if err == nil {
		err = ls.guard(g, false)
	}
	if err == nil {
		err = addAddresses(link, o.Gateway, o.Namespace != "")
	}
	if err == nil {
		err = os.NewSyscallError("up", netlink.LinkSetUp(link))
	}
	if err != nil {
		return nil, errors.Join(err, ls.sockets.Close())
	}
	return ls.sockets, nil
}

// notUplink refuses lo and an interface through which a default route leads:
// captured, it would cut the machine off.
func notUplink(link netlink.Link) error {
	if link.Attrs().Flags&net.FlagLoopback != 0 {
		return errors.New("is the loopback")
	}
	for _, domain := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(link, domain)
		if err != nil {
			return fmt.Errorf("routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst == nil || isEverything(r.Dst) {
				return errors.New("has the default route of the gateway itself: it is an uplink, not a sandbox")
			}
		}
	}
	return nil
}

// neighboursOf returns the IPv6 addresses that link has or will have.
func neighboursOf(link netlink.Link, added []netip.Prefix) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, p := range added {
		if p.Addr().Is6() {
			out = append(out, single(p.Addr()))
		}
	}
	present, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	for _, a := range present {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && !ip.IsLinkLocalUnicast() && !slices.Contains(out, single(ip)) {
			out = append(out, single(ip))
		}
	}
	return out, nil
}

func isEverything(n *net.IPNet) bool {
	ones, _ := n.Mask.Size()
	return ones == 0
}

// addRoutes adds the routing rules and tables that are missing, the lock first,
// and returns the versions of IP there are.
func addRoutes(device string) ([]family, error) {
	if err := closeRoutes(device); err != nil {
		return nil, err
	}
	return localRoutes()
}

// closeRoutes leads what comes from a device, once nothing else has taken it, to
// a table with a black hole that ends in unreachable. The black hole is silent:
// an ICMP message has the packet in it, and would go to whatever source the
// packet claims.
func closeRoutes(device string) error {
	for _, f := range versions() {
		for _, closed := range []*netlink.Route{
			{Dst: everything(f), Table: closedTable, Type: unix.RTN_BLACKHOLE},
			{Dst: everything(f), Table: closedTable, Type: unix.RTN_UNREACHABLE, Priority: closedLast},
		} {
			if err := netlink.RouteReplace(closed); err != nil {
				return fmt.Errorf("route of type %d, %s table %d: %w", closed.Type, closed.Dst, closedTable, err)
			}
		}
		if err := addRule(closedRule(f, device)); err != nil {
			return err
		}
	}
	return nil
}

func divertRule(f family) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Mark, r.Table, r.Priority = f.domain, divertMark, divertTable, divertPriority
	return r
}

func closedRule(f family, device string) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.IifName, r.Table, r.Priority = f.domain, device, closedTable, closedPriority
	return r
}

func addRule(r *netlink.Rule) error {
	err := netlink.RuleAdd(r)
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("routing rule to table %d: %w", r.Table, err)
	}
	return nil
}

// addAddresses adds those that are missing. With anew, for a namespace that is
// the gateway's own, those that are there are added again: their routes may
// have been taken away by a hand.
func addAddresses(link netlink.Link, addresses []netip.Prefix, anew bool) error {
	for _, p := range addresses {
		a := &netlink.Addr{IPNet: &net.IPNet{
			IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD // usable at once
		}
		err := netlink.AddrAdd(link, a)
		if errors.Is(err, syscall.EEXIST) && anew {
			if err = netlink.AddrDel(link, a); err == nil {
				err = netlink.AddrAdd(link, a)
			}
		}
		if err != nil && !errors.Is(err, syscall.EEXIST) {
			return fmt.Errorf("address %s: %w", p, err)
		}
	}
	return nil
}

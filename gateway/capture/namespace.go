//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// loopback is the one interface of a sandbox that is a namespace.
const loopback = "lo"

// namespaceGroup is the NFLOG group in a namespace of which all belongs to
// sallyport. Groups are numbered anew in every namespace.
const namespaceGroup = 7955

// NamespaceOptions says how OpenNamespace names the capture.
type NamespaceOptions struct {
	Interface string // Sockets.Interface; "" is the path of the namespace
	Kept      *Kept  // sockets that an earlier process opened there
}

// OpenNamespace captures all traffic of the network namespace at path, such as
// /run/netns/NAME or /proc/PID/ns/net, which must have no link but lo. The
// namespace is entered by a thread of its own and left again; the sockets stay
// good as long as they are open, and keep the namespace alive.
func OpenNamespace(path string, o NamespaceOptions) (*Sockets, error) {
	if o.Interface == "" {
		o.Interface = path
	}
	ns, err := openNamespaceFile(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var s *Sockets
	err = inNamespace(ns, func() (err error) {
		s, err = openHere(hereOptions{Interface: o.Interface, kept: o.Kept})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	return s, nil
}

// openNamespaceFile opens a network namespace that is not the caller's own.
func openNamespaceFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		f.Close()
		return nil, fmt.Errorf("namespace %s: is not a network namespace", path)
	}
	theirs, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	ours, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		f.Close()
		return nil, err
	}
	if os.SameFile(ours, theirs) {
		f.Close()
		return nil, fmt.Errorf("namespace %s: is the gateway's own", path)
	}
	return f, nil
}

// inNamespace runs f on a thread that is in the network namespace ns and is
// thrown away afterwards: its goroutine ends without unlocking it. The main
// thread is never used, for /proc/self shows what it is in.
func inNamespace(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- inNamespace(ns, f) // this goroutine holds the main thread meanwhile
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- os.NewSyscallError("enter", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// hereOptions says how openHere names the capture.
type hereOptions struct {
	Interface string // Sockets.Interface; "" is "lo"
	kept      *Kept
}

// openHere captures all traffic of the network namespace of the calling thread,
// which must be locked and have CAP_NET_ADMIN there. The namespace may have no
// link but lo, and gets: lo up, an address of its own, AnyIP routes by which
// every address is local, the rules, and the sockets. It can be done again after
// the sockets were closed.
func openHere(o hereOptions) (*Sockets, error) {
	if o.Interface == "" {
		o.Interface = loopback
	}
	lo, err := onlyLoopback()
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("lo: up: %w", err)
	}
	families, err := makeAllLocal(lo)
	if err != nil {
		return nil, err
	}
	ls, err := openListeners(listenOptions{families: families, Interface: o.Interface, kept: o.kept})
	if err != nil {
		return nil, err
	}
	g := gate{
		device: loopback, families: families, ports: ls.ports, group: namespaceGroup,
		own: ownDestinations(),
	}
	if err := ls.guard(g, true); err != nil {
		return nil, errors.Join(err, ls.sockets.Close())
	}
	return ls.sockets, nil
}

// guard loads the rules of g and opens the packet log behind them. What is
// refused between the two is counted and told later.
func (l *listeners) guard(g gate, fresh bool) error {
	if err := loadRules(g, fresh); err != nil {
		return fmt.Errorf("nft rules: %w", err)
	}
	packets, err := openNetfilter()
	if err != nil {
		return err
	}
	if err := bindLog(packets, g.group); err != nil {
		return errors.Join(err, packets.Close())
	}
	counters, err := openNetfilter()
	if err != nil {
		return errors.Join(err, packets.Close())
	}
	l.sockets.Packets = newPacketLog(packets, counters, l.sockets.Interface, g.device)
	return nil
}

// ownDestinations are what a process of a namespace may reach without the
// gateway: other processes beside it.
func ownDestinations() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("127.0.0.0/8"), single(ownAddr4()),
		netip.MustParsePrefix("::1/128"), single(ownAddr6()),
	}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// onlyLoopback returns lo if there is no other link that could lead out.
func onlyLoopback() (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	var lo netlink.Link
	for _, l := range links {
		a := l.Attrs()
		switch {
		case a.Flags&net.FlagLoopback != 0:
			lo = l
		case isFallbackTunnel(a):
		default:
			return nil, fmt.Errorf("link %q (%s) may lead out: a namespace is captured only with lo alone; capture the interface at its other end instead",
				a.Name, l.Type())
		}
	}
	if lo == nil {
		return nil, errors.New("link lo: not found")
	}
	return lo, nil
}

// isFallbackTunnel says whether a link is one of the tunnel devices that the
// kernel makes in every namespace and leaves down. Alone with lo they have
// nothing to send through.
func isFallbackTunnel(a *netlink.LinkAttrs) bool {
	names := []string{"tunl0", "gre0", "gretap0", "erspan0", "sit0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0"}
	return a.Flags&net.FlagUp == 0 && slices.Contains(names, a.Name)
}

// makeAllLocal gives lo the sandbox's own addresses and routes by which every
// other address is local too. It returns the versions of IP there are: a
// namespace in which IPv6 cannot be turned on has IPv4 alone.
func makeAllLocal(lo netlink.Link) ([]family, error) {
	families := []family{ipv4()}
	if enableIPv6() {
		families = append(families, ipv6())
	}
	for _, f := range families {
		bits := f.own.BitLen()
		address := &netlink.Addr{
			IPNet: &net.IPNet{IP: f.own.AsSlice(), Mask: net.CIDRMask(bits, bits)},
			Flags: unix.IFA_F_NODAD,
		}
		if err := netlink.AddrReplace(lo, address); err != nil {
			return nil, fmt.Errorf("lo: address %s: %w", f.own, err)
		}
		route := &netlink.Route{
			LinkIndex: lo.Attrs().Index,
			Dst:       everything(f),
			Src:       f.own.AsSlice(),
			Table:     unix.RT_TABLE_LOCAL,
			Type:      unix.RTN_LOCAL,
			Scope:     unix.RT_SCOPE_HOST,
		}
		if err := netlink.RouteReplace(route); err != nil {
			return nil, fmt.Errorf("lo: route local %s: %w", route.Dst, err)
		}
	}
	return families, nil
}

func everything(f family) *net.IPNet {
	bits := f.own.BitLen()
	return &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
}

const disableIPv6 = "/proc/sys/net/ipv6/conf/lo/disable_ipv6"

// versions are those of IP that the namespace of the calling thread has.
func versions() []family {
	if hasIPv6() {
		return []family{ipv4(), ipv6()}
	}
	return []family{ipv4()}
}

// hasIPv6 says whether the namespace of the calling thread speaks IPv6.
func hasIPv6() bool {
	state, err := os.ReadFile(disableIPv6)
	return err == nil && string(state) == "0\n"
}

// enableIPv6 turns IPv6 on at lo, where container engines turn it off, and says
// whether it is.
func enableIPv6() bool {
	return hasIPv6() || os.WriteFile(disableIPv6, []byte("0"), 0) == nil
}

//go:build linux

// Package peers starts what the benchmark compares: the proxies, each with its
// configuration, and the namespaces that the load comes from and goes to.
// Everything is in namespaces of the benchmark's own, and ends with it.
package peers

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sallyport/test/bench/origin"
)

// uplink is the address of the proxies' host in the origin's network.
const uplink = "203.0.113.1"

// own takes lo up and lets this namespace forward, so that the origin can be
// reached without a proxy too.
func own() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetUp(lo), os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), Ports())
}

// Ports gives the namespace of this process enough ports for connections that
// have just ended.
func Ports() error {
	return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("10240 65000"), 0),
		os.WriteFile("/proc/sys/net/ipv4/tcp_tw_reuse", []byte("1"), 0))
}

// link lays a pair between this namespace and that of a process.
func link(pid int, here, there string, address string, theirs []string, routes map[string]string) error {
	space, err := netns.GetFromPid(pid)
	if err != nil {
		return fmt.Errorf("namespace of process %d: %w", pid, err)
	}
	defer space.Close()
	inside, err := netlink.NewHandleAt(space)
	if err != nil {
		return err
	}
	defer inside.Close()
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: here}, PeerName: there, PeerNamespace: netlink.NsFd(int(space))}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("link %s: %w", here, err)
	}
	outside, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer outside.Close()
	if err := errors.Join(configure(outside, here, address), configure(inside, "lo"), configure(inside, there, theirs...)); err != nil {
		return err
	}
	l, err := inside.LinkByName(there)
	if err != nil {
		return err
	}
	for to, via := range routes {
		_, dst, err := net.ParseCIDR(to)
		if err != nil {
			return err
		}
		if err := inside.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: net.ParseIP(via)}); err != nil {
			return fmt.Errorf("route %s: %w", to, err)
		}
	}
	return nil
}

func configure(h *netlink.Handle, name string, addresses ...string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := h.AddrAdd(l, addr); err != nil {
			return fmt.Errorf("address %s on %s: %w", a, name, err)
		}
	}
	return h.LinkSetUp(l)
}

// linkOrigin joins the origin's namespace.
func linkOrigin(pid int) error {
	return link(pid, "up0", "net0", uplink+"/24", []string{origin.Address + "/24", origin.Fleeting + "/24", origin.Resolver + "/24"},
		map[string]string{"10.66.0.0/16": uplink})
}

// linkClient joins the n-th client's namespace; the proxies' host is its
// default route.
func linkClient(pid, n int) error {
	return link(pid, LinkName(n), "eth0", ClientGateway(n)+"/24", []string{fmt.Sprintf("10.66.%d.2/24", n)},
		map[string]string{"0.0.0.0/0": ClientGateway(n)})
}

// LinkName is the link of the n-th client on the proxies' host.
func LinkName(n int) string { return fmt.Sprintf("sb%d", n) }

// ClientGateway is the address of the proxies' host for the n-th client.
func ClientGateway(n int) string { return fmt.Sprintf("10.66.%d.1", n) }

// resolvers makes programs of this mount namespace ask the origin's resolver.
func resolvers(dir string) error {
	path := dir + "/resolv.conf"
	if err := os.WriteFile(path, []byte("nameserver "+origin.Resolver+"\noptions timeout:2\n"), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(path, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("/etc/resolv.conf: %w", err)
	}
	return nil
}

//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the lab.
const (
	Uplink   = "203.0.113.1" // of the gateway's host in the net
	Uplink6  = "2001:db8:1::1"
	Origin   = "203.0.113.10" // the HTTP origin
	Origin6  = "2001:db8:1::10"
	Raw      = "203.0.113.20" // scripted peers
	Resolver = "203.0.113.53" // the scripted DNS authority
	Spare    = "203.0.113.66" // nobody listens
	router   = "203.0.113.250"
	router6  = "2001:db8:1::250"
)

const (
	uplinkName = "up0"
	netName    = "net0"
)

// elsewhere are addresses of the net that are not documentation addresses.
func elsewhere() []string {
	return []string{"8.8.8.8/32", "1.1.1.1/32", "169.254.169.254/32", "10.255.0.5/32"}
}

// wire lays the network between the gateway's host and the net.
func (l *Lab) wire() error {
	return errors.Join(
		l.GW.Do(func() error {
			return errors.Join(
				sysctl("net/ipv4/ip_forward", "1"),
				sysctl("net/ipv6/conf/all/forwarding", "1"),
				sysctl("net/ipv6/conf/default/accept_dad", "0"),
				addVeth(uplinkName, netName, l.Net),
				configure(uplinkName, Uplink+"/24", Uplink6+"/64"))
		}),
		l.Net.Do(func() error {
			return errors.Join(
				sysctl("net/ipv6/conf/"+netName+"/accept_dad", "0"),
				configure("lo", elsewhere()...),
				configure(netName, Origin+"/24", Raw+"/24", Resolver+"/24", Spare+"/24", router+"/24", Origin6+"/64", router6+"/64"),
				route(netName, "10.66.0.0/16", Uplink),
				route(netName, "fd66::/16", Uplink6))
		}),
		l.GW.Do(func() error {
			return errors.Join(route(uplinkName, "0.0.0.0/0", router), route(uplinkName, "::/0", router6))
		}))
}

func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}

// addVeth adds a pair of which one end is here and the other in ns.
func addVeth(name, peer string, ns *Namespace) error {
	err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name},
		PeerName: peer, PeerNamespace: netlink.NsFd(int(ns.handle))})
	if err != nil {
		return fmt.Errorf("veth %s: %w", name, err)
	}
	return nil
}

// removeLink takes a link away, and with it the other end of a pair. One that
// is gone already is none to take away.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("take link %s away: %w", name, err)
	}
	return nil
}

// configure gives a link its addresses and takes it up.
func configure(name string, addresses ...string) error {
	err := eachAddress(name, addresses, func(link netlink.Link, addr *netlink.Addr) error {
		if addr.IP.To4() == nil {
			addr.Flags |= unix.IFA_F_NODAD
		}
		return netlink.AddrAdd(link, addr)
	})
	if err != nil {
		return err
	}
	return linkUp(name)
}

// takeAddresses takes addresses of a link away again.
func takeAddresses(name string, addresses ...string) error {
	return eachAddress(name, addresses, netlink.AddrDel)
}

// eachAddress calls do for addresses of a link until one cannot be done.
func eachAddress(name string, addresses []string, do func(netlink.Link, *netlink.Addr) error) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := do(link, addr); err != nil {
			return fmt.Errorf("address %s on %s: %w", a, name, err)
		}
	}
	return nil
}

func route(name, to, via string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		return fmt.Errorf("route %s via %s: %w", to, via, err)
	}
	return nil
}

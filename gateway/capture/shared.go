//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// OpenShared captures what leaves the network namespace of the process, whoever
// sends it, but for the gateway itself: what has its user and group IDs goes
// out as ever. The namespace has an uplink, and may have answers to what comes
// in through it. So this holds only those who cannot take on the gateway's
// IDs, cannot change the rules and cannot send without a socket of their own:
// processes without capabilities. The rules stay when the process ends, and
// refuse everything then. k are sockets that an earlier process opened so.
func OpenShared(k *Kept) (*Sockets, error) {
	o := owners{uid: os.Geteuid(), gid: os.Getegid()}
	if err := o.check(); err != nil {
		return nil, err
	}
	families, err := localRoutes()
	if err != nil {
		return nil, fmt.Errorf("shared namespace: %w", err)
	}
	// Not bound to lo: answers to it would find no IPv6 route to an address that
	// is the namespace's at its uplink.
	ls, err := openListeners(listenOptions{families: families, Interface: "shared", kept: k})
	if err != nil {
		return nil, fmt.Errorf("shared namespace: %w", err)
	}
	g := gate{device: loopback, families: families, ports: ls.ports, group: namespaceGroup, mark: divertMark, shared: true}
	if g.own, err = hereAddresses(); err == nil {
		err = ls.guard(g, false)
	}
	if err == nil {
		err = divertOthers(g, o)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shared namespace: %w", err), ls.sockets.Close())
	}
	return ls.sockets, nil
}

// localRoutes makes every address local to packets with divertMark, and
// returns the versions of IP there are.
func localRoutes() ([]family, error) {
	lo, err := netlink.LinkByName(loopback)
	if err != nil {
		return nil, fmt.Errorf("link lo: %w", err)
	}
	families := versions()
	for _, f := range families {
		local := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everything(f), Table: divertTable,
			Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}
		if err := netlink.RouteReplace(local); err != nil {
			return nil, fmt.Errorf("route local %s table %d: %w", local.Dst, divertTable, err)
		}
		if err := addRule(divertRule(f)); err != nil {
			return nil, err
		}
	}
	return families, nil
}

// hereAddresses are the addresses of the namespace: what is sent to them does
// not leave it.
func hereAddresses() ([]netip.Prefix, error) {
	own := ownDestinations()
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses: %w", err)
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLoopback() {
			own = append(own, single(p.Addr().Unmap()))
		}
	}
	return own, nil
}

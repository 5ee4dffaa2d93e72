//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	divertChain = "divert" // at the output of a namespace that is shared
	// divertHook comes after connection tracking, which knows answers.
	divertHook = -150
)

// OpenShared captures what leaves the network namespace of the process, whoever
// sends it, but for the gateway itself: what has its user and group IDs goes
// out as ever. The namespace has an uplink, and may have answers to what comes
// in through it. So this holds only those who cannot take on the gateway's
// IDs, cannot change the rules and cannot send without a socket of their own:
// processes without capabilities. The rules stay when the process ends, and
// refuse everything then. k are sockets that an earlier process opened so.
func OpenShared(k *Kept) (*Sockets, error) {
	if os.Geteuid() == 0 && os.Getegid() == 0 {
		return nil, errors.New("shared namespace: the gateway runs as root and with root's group; it needs a user or group of its own, by which its packets are known")
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
	g := gate{device: loopback, families: families, ports: ls.ports, group: namespaceGroup, mark: divertMark}
	if g.own, err = hereAddresses(); err == nil {
		err = ls.guard(g, false)
	}
	if err == nil {
		err = divertOthers(os.Geteuid(), os.Getegid())
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

// divertOthers sends what leaves back to lo, where the rules wait for it,
// unless it is the gateway's own or an answer to what came in.
func divertOthers(uid, gid int) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	b := &batch{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}}
	acceptAll, priority := nftables.ChainPolicyAccept, nftables.ChainPriority(divertHook)
	b.chain = conn.AddChain(&nftables.Chain{Table: b.table, Name: divertChain, Type: nftables.ChainTypeRoute,
		Hooknum: nftables.ChainHookOutput, Priority: &priority, Policy: &acceptAll})
	conn.FlushChain(b.chain)
	b.rule(toHost(), accept())
	b.rule(owner(expr.MetaKeySKUID, uid), owner(expr.MetaKeySKGID, gid), accept())
	// Neighbour discovery and listener reports are the kernel's own: no process
	// owns them.
	b.rule(protocol(unix.IPPROTO_ICMPV6), owned(), setMark(divertMark), accept())
	for _, kind := range append(neighbourDiscovery(), listenerReports()...) {
		b.rule(protocol(unix.IPPROTO_ICMPV6), icmpType(kind), accept())
	}
	b.rule(answer(), accept())
	b.rule(setMark(divertMark))
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nft chain %s: %w", divertChain, err)
	}
	return nil
}

// owner compares an ID of the socket that sends. What has no socket does not
// match.
func owner(key expr.MetaKey, id int) []expr.Any {
	return compare(&expr.Meta{Key: key, Register: 1}, expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(uint32(id))...)
}

// owned matches packets of a process.
func owned() []expr.Any {
	return compare(&expr.Meta{Key: expr.MetaKeySKUID, Register: 1}, expr.CmpOpGte, 0, 0, 0, 0)
}

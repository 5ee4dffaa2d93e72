//go:build linux

package capture

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// RemoveRules takes out of the network namespace it is called in whatever
// OpenInterface put there: the nft table, the routing rules and their tables.
// Addresses and links stay. Nothing there is not an error. Sandboxes whose
// interface is on a host that forwards are no longer held after this.
func RemoveRules() error {
	var errs []error
	for _, f := range []family{ipv4(), ipv6()} {
		errs = append(errs, removeRouting(f))
	}
	return errors.Join(append(errs, removeTable())...)
}

func removeTable() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nft table %s: %w", tableName, err)
	}
	loaded, err := hasTable(conn)
	if err == nil && loaded {
		conn.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
		err = conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("nft table %s: %w", tableName, err)
	}
	return nil
}

// RemoveInterface takes the rules of one interface out of the network namespace
// it is called in. It is for an interface that is gone; one that is there is
// refused, for on a host that forwards it would be open. No rules for it is not
// an error.
func RemoveInterface(device string) error {
	_, err := netlink.LinkByName(device)
	var absent netlink.LinkNotFoundError
	if err == nil {
		return fmt.Errorf("interface %q: is still there", device)
	}
	if !errors.As(err, &absent) {
		return fmt.Errorf("interface %q: %w", device, err)
	}
	errs := []error{removeChains(gate{device: device})}
	for _, f := range []family{ipv4(), ipv6()} {
		err := netlink.RuleDel(closedRule(f, device))
		if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EAFNOSUPPORT) {
			errs = append(errs, fmt.Errorf("routing rule to table %d: %w", closedTable, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("interface %q: %w", device, err)
	}
	return nil
}

func removeChains(g gate) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	b := &batch{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}}
	loaded, err := hasTable(conn)
	if err != nil || !loaded {
		return err
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return fmt.Errorf("nft chains: %w", err)
	}
	if !slices.ContainsFunc(chains, func(c *nftables.Chain) bool {
		return c.Table.Name == tableName && c.Name == g.entry()
	}) {
		return nil
	}
	if err := conn.SetDeleteElements(b.interfaces(), g.element()); err != nil {
		return err
	}
	if err := b.forget(g); err != nil {
		return err
	}
	for _, name := range g.chains() {
		conn.DelChain(&nftables.Chain{Table: b.table, Name: name})
	}
	sets, err := conn.GetSets(b.table)
	if err != nil {
		return fmt.Errorf("nft sets: %w", err)
	}
	for _, f := range []family{ipv4(), ipv6()} {
		for _, s := range sets {
			if s.Name == b.opened(g, f).Name {
				conn.DelSet(s)
			}
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nft chains of %s: %w", g.device, err)
	}
	return nil
}

func removeRouting(f family) error {
	var errs []error
	rules, err := netlink.RuleList(f.domain)
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EOPNOTSUPP) {
		return nil // a kernel without this version of IP
	}
	if err != nil {
		return fmt.Errorf("routing rules: %w", err)
	}
	for _, r := range rules {
		if r.Table != divertTable && r.Table != closedTable {
			continue
		}
		r.Family = f.domain
		if err := netlink.RuleDel(&r); err != nil && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("routing rule to table %d: %w", r.Table, err))
		}
	}
	for _, table := range []int{divertTable, closedTable} {
		routes, err := netlink.RouteListFiltered(f.domain, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		if err != nil {
			errs = append(errs, fmt.Errorf("table %d: %w", table, err))
			continue
		}
		for _, r := range routes {
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, syscall.ESRCH) {
				errs = append(errs, fmt.Errorf("table %d: route: %w", table, err))
			}
		}
	}
	return errors.Join(errs...)
}

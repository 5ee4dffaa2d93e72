//go:build linux

package capture

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// RemoveRules takes out of the network namespace it is called in whatever
// OpenInterface and LockInterfaces put there: the nft tables, the routing rules
// and their tables.
// Addresses and links stay. Nothing there is not an error. Sandboxes whose
// interface is on a host that forwards are no longer held after this.
func RemoveRules() error {
	var errs []error
	for _, f := range []family{ipv4(), ipv6()} {
		errs = append(errs, removeRouting(f))
	}
	return errors.Join(append(errs, removeTable(tableName), removeTable(lockTable))...)
}

func removeTable(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nft table %s: %w", name, err)
	}
	loaded, err := hasTable(conn, name)
	if err == nil && loaded {
		conn.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
		err = conn.Flush()
	}
	if err != nil {
		return fmt.Errorf("nft table %s: %w", name, err)
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

//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// lockTable is the nft table of the lock, apart from that of the captures:
	// it is there before them, and holds interfaces that they have not opened.
	lockTable = "sallyport_lock"
	// lockChain has a rule for each glob; lockedChain has what is left to their
	// interfaces.
	lockChain, lockedChain = "prerouting", "locked"
	// lockHook comes after the captures have marked what is theirs, and before
	// everything that forwards or delivers.
	lockHook = publishedHook + 10
)

// Lockable returns an error if interfaces of a glob cannot be locked before
// they are there: the kernel's rules know names and beginnings of names.
func Lockable(glob string) error {
	name, rest := glob, ""
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		name, rest = glob[:i], glob[i:]
	}
	switch {
	case name == "" && rest == "*":
		return fmt.Errorf("interface %q: names the uplink too", glob)
	case name == "" || rest != "" && rest != "*":
		return fmt.Errorf("interface %q: is neither a name nor the beginning of one and *", glob)
	case len(name) >= unix.IFNAMSIZ || strings.ContainsAny(name, "/ \t\n\x00"):
		return fmt.Errorf("interface %q: is not the name of an interface", glob)
	}
	return nil
}

// LockInterfaces closes every interface whose name a glob matches, now and when
// it is made, to all but captures: what it sends is neither forwarded nor given
// to a service of the host, whether or not the gateway has ever run. An nft
// table holds names and globs. Where routing rules can, a second lock stands
// behind it: for names, and for what there is of interfaces. What is locked
// stays so until RemoveRules; locking it again changes nothing. Globs must be
// Lockable, and an uplink is refused.
func LockInterfaces(globs []string) error {
	if len(globs) == 0 {
		return nil
	}
	devices, err := lockedDevices(globs)
	if err != nil {
		return err
	}
	for _, name := range devices {
		if err := closeRoutes(name); err != nil {
			return fmt.Errorf("interface %q: %w", name, err)
		}
	}
	if err := loadLock(globs); err != nil {
		return fmt.Errorf("nft table %s: %w", lockTable, err)
	}
	return nil
}

// lockedDevices are the names among globs, and the links that they match.
func lockedDevices(globs []string) ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	var out []string
	for _, glob := range globs {
		if err := Lockable(glob); err != nil {
			return nil, err
		}
		if !strings.HasSuffix(glob, "*") {
			out = append(out, glob)
		}
		for _, l := range links {
			name := l.Attrs().Name
			if ok, _ := path.Match(glob, name); !ok || slices.Contains(out, name) && glob != name {
				continue
			}
			if err := notUplink(l); err != nil {
				return nil, fmt.Errorf("interface %q: %w", name, err)
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// loadLock adds globs to those of the table, in one transaction.
func loadLock(globs []string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: lockTable}
	known, err := locked(conn, table)
	if err != nil {
		return err
	}
	for _, g := range globs {
		if !slices.Contains(known, g) {
			known = append(known, g)
		}
	}
	conn.AddTable(table)
	b := &batch{conn: conn, table: table}
	b.lockedRules()
	b.lockRules(known)
	return conn.Flush()
}

// lockedRules let through what captures have marked and what a link needs to be
// one. They do not ask connection tracking, which a host may be without.
func (b *batch) lockedRules() {
	b.chain = b.conn.AddChain(&nftables.Chain{Table: b.table, Name: lockedChain})
	b.conn.FlushChain(b.chain)
	for _, mark := range []uint32{divertMark, publishedMark} {
		b.rule(marked(mark), accept())
	}
	// Not to any other address: a host that forwards would carry it out.
	link := [][]expr.Any{destination(netip.MustParsePrefix("ff02::/16")), destination(netip.MustParsePrefix("fe80::/10")), toHost()}
	for _, to := range link {
		for _, kind := range neighbourDiscovery() {
			b.rule(nextHeader(expr.CmpOpEq, unix.IPPROTO_ICMPV6), hopLimit(255), to, icmpType(kind), accept())
		}
	}
	// A refusal has the packet in it, and goes to the source that it claims.
	b.rule(noWayBack(), counted(), drop())
	b.rule(protocol(unix.IPPROTO_TCP), counted(), reset())
	b.rule(counted(), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}})
}

// lockRules send packets from the interfaces of globs to lockedChain. The glob
// is each rule's comment, by which it is known again.
func (b *batch) lockRules(globs []string) {
	acceptAll, priority := nftables.ChainPolicyAccept, nftables.ChainPriority(lockHook)
	b.chain = b.conn.AddChain(&nftables.Chain{Table: b.table, Name: lockChain, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: &priority, Policy: &acceptAll})
	b.conn.FlushChain(b.chain)
	for _, g := range globs {
		data := interfaceName(g)
		if prefix, ok := strings.CutSuffix(g, "*"); ok {
			data = []byte(prefix)
		}
		b.conn.AddRule(&nftables.Rule{Table: b.table, Chain: b.chain, UserData: userdata.AppendString(nil, userdata.TypeComment, g),
			Exprs: append(compare(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, expr.CmpOpEq, data...), goTo(lockedChain)...)})
	}
}

// locked are the globs that the table holds.
func locked(conn *nftables.Conn, table *nftables.Table) ([]string, error) {
	loaded, err := hasTable(conn, lockTable)
	if err != nil || !loaded {
		return nil, err
	}
	rules, err := conn.GetRules(table, &nftables.Chain{Table: table, Name: lockChain})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	var out []string
	for _, r := range rules {
		if g, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok {
			out = append(out, g)
		}
	}
	return out, err
}

func counted() []expr.Any { return []expr.Any{&expr.Counter{}} }

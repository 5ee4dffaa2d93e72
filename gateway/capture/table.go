//go:build linux

package capture

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Names and numbers in the kernel that belong to sallyport.
const (
	tableName   = "sallyport" // nft table of family inet
	baseChain   = "prerouting"
	outputChain = "output"     // in a namespace alone
	mapName     = "interfaces" // interface name → goto its chain

	// basePriority comes before defragmentation and connection tracking: a
	// fragment is seen as what it is, and refused packets leave no state behind.
	basePriority = -450

	// logRate is how many packets a second of each class are logged, after a
	// first burst of logBurst. The others are refused and counted all the same.
	logRate, logBurst = 500, 500

	// A set of opened connections has at most openedMax, some 100 bytes each.
	openedFor = 30 * time.Second
	openedMax = 1 << 15

	// Behind one interface at most sourcesMax addresses of each version of IP
	// speak at a time. The kernel asks for each before it answers, and has 1024
	// places for those that it asks for, of all interfaces and namespaces.
	sourcesFor = time.Minute
	sourcesMax = 256
)

// batch collects rules for one transaction.
type batch struct {
	conn  *nftables.Conn
	table *nftables.Table
	chain *nftables.Chain // rules are appended to it
}

// loadRules replaces the rules of g.device in the network namespace of the
// calling thread, in one transaction, and begins its counters at 0. Rules of
// other interfaces stay. fresh drops everything that was in the table.
func loadRules(g gate, fresh bool) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	b := &batch{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}}
	conn.AddTable(b.table)
	if fresh {
		conn.DelTable(b.table)
		conn.AddTable(b.table)
	} else if err := b.forget(g); err != nil {
		return err
	}
	for c := range classes {
		conn.AddObj(&nftables.CounterObj{Table: b.table, Name: counterName(g.device, c)})
	}
	for _, name := range g.chains() {
		conn.AddChain(&nftables.Chain{Table: b.table, Name: name})
	}
	for _, f := range g.families {
		if err := conn.AddSet(b.opened(g, f), nil); err != nil {
			return err
		}
		if !g.pinned {
			continue
		}
		if err := conn.AddSet(b.sources(g, f), nil); err != nil {
			return err
		}
	}
	b.entryRules(g)
	b.allowedRules(g)
	b.keptRules(g)
	b.refuseRules(g)
	b.spoofRules(g)
	if g.shared {
		b.strayRules(g)
	}
	if !g.pinned {
		b.outputRules(g)
	}
	if err := b.dispatch(g); err != nil {
		return err
	}
	return conn.Flush()
}

// forget empties the chains of g that are there and removes its counters.
func (b *batch) forget(g gate) error {
	loaded, err := hasTable(b.conn, tableName)
	if err != nil || !loaded {
		return err
	}
	chains, err := b.conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return err
	}
	for _, c := range chains {
		if c.Table.Name == tableName && slices.Contains(g.chains(), c.Name) {
			b.conn.FlushChain(&nftables.Chain{Table: b.table, Name: c.Name})
		}
	}
	objects, err := b.conn.GetObjects(b.table)
	if err != nil {
		return err
	}
	for _, o := range objects {
		named, ok := o.(*nftables.CounterObj)
		for c := range classes {
			if ok && named.Name == counterName(g.device, c) {
				b.conn.DeleteObject(&nftables.CounterObj{Table: b.table, Name: named.Name})
			}
		}
	}
	return nil
}

func hasTable(conn *nftables.Conn, name string) (bool, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == name }), err
}

// dispatch sends packets of g.device to its chain. The interface is known by
// its name: made anew under the same name, it is still closed.
func (b *batch) dispatch(g gate) error {
	interfaces := b.interfaces()
	if err := b.conn.AddSet(interfaces, g.element()); err != nil {
		return err
	}
	accept, priority := nftables.ChainPolicyAccept, nftables.ChainPriority(basePriority)
	base := b.conn.AddChain(&nftables.Chain{Table: b.table, Name: baseChain, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: &priority, Policy: &accept})
	b.conn.FlushChain(base)
	b.chain = base
	if !g.pinned && !g.shared {
		b.usualRules(g)
	}
	b.rule([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Lookup{SourceRegister: 1, SetName: mapName, SetID: interfaces.ID, IsDestRegSet: true},
	})
	return nil
}

// interfaces is the map from names to chains. Its ID is good within a batch.
func (b *batch) interfaces() *nftables.Set {
	return &nftables.Set{Table: b.table, ID: 1, Name: mapName, IsMap: true,
		KeyType: nftables.TypeIFName, DataType: nftables.TypeVerdict}
}

// element is the one of the map that sends packets of g.device to its chain.
func (g gate) element() []nftables.SetElement {
	return []nftables.SetElement{{
		Key:         interfaceName(g.device),
		VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: g.entry()},
	}}
}

// opened is the set of connections of one version of IP that were diverted and
// spoke in the last openedFor. Its ID is good within a batch. When it is full the
// packets after a cut are reported like others without a connection.
func (b *batch) opened(g gate, f family) *nftables.Set {
	s := &nftables.Set{Table: b.table, ID: 2, Name: "spoke4_" + g.device,
		Dynamic: true, HasTimeout: true, Timeout: openedFor, Size: openedMax,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService, nftables.TypeInetService)}
	if f.domain == unix.AF_INET6 {
		s.ID, s.Name = 3, "spoke6_"+g.device
		s.KeyType = nftables.MustConcatSetType(nftables.TypeIP6Addr, nftables.TypeInetService, nftables.TypeInetService)
	}
	return s
}

// sources is the set of addresses of one version of IP that were sent from in
// the last sourcesFor. Its ID is good within a batch.
func (b *batch) sources(g gate, f family) *nftables.Set {
	s := &nftables.Set{Table: b.table, ID: 4, Name: "from4_" + g.device,
		Dynamic: true, HasTimeout: true, Timeout: sourcesFor, Size: sourcesMax, KeyType: nftables.TypeIPAddr}
	if f.domain == unix.AF_INET6 {
		s.ID, s.Name, s.KeyType = 5, "from6_"+g.device, nftables.TypeIP6Addr
	}
	return s
}

// oneOfFew matches packets from p as long as they do not come from too many of
// its addresses.
func (b *batch) oneOfFew(g gate, p netip.Prefix) []expr.Any {
	for _, f := range g.families {
		if (f.domain == unix.AF_INET6) == p.Addr().Is6() && !p.IsSingleIP() {
			return keepSource(f, b.sources(g, f))
		}
	}
	return nil
}

func (b *batch) in(chain string) { b.chain = &nftables.Chain{Table: b.table, Name: chain} }

func (b *batch) rule(parts ...[]expr.Any) {
	b.conn.AddRule(&nftables.Rule{Table: b.table, Chain: b.chain, Exprs: slices.Concat(parts...)})
}

func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

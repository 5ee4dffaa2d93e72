//go:build linux

package capture

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
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
)

// gate describes the rules of one interface.
type gate struct {
	device   string
	families []family
	ports    map[int]uint16 // domain → port of the TCP listener
	group    uint16         // of NFLOG
	mark     uint32         // set on what is diverted, for the routing rule; 0 none
	own      []netip.Prefix // destinations that stay the sandbox's, port 53 apart
	pinned   bool           // sources and macs are enforced
	sources  []netip.Prefix
	macs     [][6]byte // nil: any
}

// Chains of one interface.
func (g gate) entry() string   { return "in_" + g.device }     // what is it
func (g gate) allowed() string { return "from_" + g.device }   // its source is right
func (g gate) kept() string    { return "own_" + g.device }    // stays in the sandbox
func (g gate) refuse() string  { return "refuse_" + g.device } // count, log, refuse
func (g gate) spoof() string   { return "spoof_" + g.device }  // count, log, drop

func (g gate) chains() []string {
	return []string{g.entry(), g.allowed(), g.kept(), g.refuse(), g.spoof()}
}

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
	}
	b.entryRules(g)
	b.allowedRules(g)
	b.keptRules(g)
	b.refuseRules(g)
	b.spoofRules(g)
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
	loaded, err := hasTable(b.conn)
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

func hasTable(conn *nftables.Conn) (bool, error) {
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName }), err
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
	s := &nftables.Set{Table: b.table, ID: 2, Name: "opened4_" + g.device,
		Dynamic: true, HasTimeout: true, Timeout: openedFor, Size: openedMax,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInteger)}
	if f.domain == unix.AF_INET6 {
		s.ID, s.Name = 3, "opened6_"+g.device
		s.KeyType = nftables.MustConcatSetType(nftables.TypeIP6Addr, nftables.TypeInteger)
	}
	return s
}

// entryRules tell fragments, neighbour discovery and wrong sources apart.
func (b *batch) entryRules(g gate) {
	b.in(g.entry())
	b.rule(fragment4(), call(g.kept()))
	b.rule(fragment4(), goTo(g.refuse()))
	b.rule(nextHeader(expr.CmpOpEq, unix.IPPROTO_FRAGMENT), call(g.kept()))
	for _, kind := range neighbourDiscovery() {
		b.rule(nextHeader(expr.CmpOpEq, unix.IPPROTO_ICMPV6), hopLimit(255), icmpType(kind), accept())
	}
	// Listener reports are what every IPv6 host sends by itself to its link.
	for _, kind := range listenerReports() {
		b.rule(nextHeader(expr.CmpOpEq, unix.IPPROTO_HOPOPTS), hopLimit(1), protocol(unix.IPPROTO_ICMPV6), icmpType(kind), drop())
	}
	if !g.pinned {
		b.rule(goTo(g.allowed()))
		return
	}
	for _, p := range g.sources {
		if g.macs == nil {
			b.rule(source(p), goTo(g.allowed()))
		}
		for _, mac := range g.macs {
			b.rule(source(p), sender(mac), goTo(g.allowed()))
		}
	}
	// What has no address of its own yet, or speaks to its link alone, is no
	// spoof. It is refused all the same.
	for _, p := range []string{"0.0.0.0/32", "::/128", "fe80::/10"} {
		b.rule(source(netip.MustParsePrefix(p)), goTo(g.refuse()))
	}
	b.rule(goTo(g.spoof()))
}

// outputRules refuse fragments where a namespace sends them: on the way to lo
// the kernel would keep them, waiting for the rest, and nothing would be seen.
func (b *batch) outputRules(g gate) {
	accept, priority := nftables.ChainPolicyAccept, nftables.ChainPriority(basePriority)
	b.chain = b.conn.AddChain(&nftables.Chain{Table: b.table, Name: outputChain, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: &priority, Policy: &accept})
	for _, fragment := range [][]expr.Any{fragment4(), nextHeader(expr.CmpOpEq, unix.IPPROTO_FRAGMENT)} {
		b.rule(fragment, call(g.kept()))
		b.rule(fragment, goTo(g.refuse()))
	}
}

// allowedRules divert questions and new connections, and let packets of
// diverted connections through to their sockets.
func (b *batch) allowedRules(g gate) {
	b.in(g.allowed())
	// Options and extension headers have no honest use here.
	b.rule(optionsOf4(), call(g.kept()))
	b.rule(optionsOf4(), goTo(g.refuse()))
	b.rule(nextHeader(expr.CmpOpNeq, unix.IPPROTO_TCP), nextHeader(expr.CmpOpNeq, unix.IPPROTO_UDP),
		nextHeader(expr.CmpOpNeq, unix.IPPROTO_ICMPV6), call(g.kept()))
	b.rule(nextHeader(expr.CmpOpNeq, unix.IPPROTO_TCP), nextHeader(expr.CmpOpNeq, unix.IPPROTO_UDP),
		nextHeader(expr.CmpOpNeq, unix.IPPROTO_ICMPV6), goTo(g.refuse()))
	for _, p := range []string{"224.0.0.0/4", "255.255.255.255/32", "ff00::/8"} {
		b.rule(destination(netip.MustParsePrefix(p)), goTo(g.refuse()))
	}
	for _, f := range g.families {
		b.rule(version(f), protocol(unix.IPPROTO_UDP), port(dnsPort), divert(g, f, dnsPort), accept())
		b.rule(version(f), newConnection(), port(dnsPort), remember(f, b.opened(g, f)))
		b.rule(version(f), newConnection(), port(dnsPort), divert(g, f, dnsPort), accept())
	}
	b.rule(call(g.kept()))
	for _, f := range g.families {
		b.rule(version(f), newConnection(), remember(f, b.opened(g, f)))
		b.rule(version(f), newConnection(), divert(g, f, g.ports[f.domain]), accept())
	}
	b.rule(newConnection(), goTo(g.refuse())) // nobody listens
	ours := slices.Concat(protocol(unix.IPPROTO_TCP), socket(expr.SocketKeyTransparent, 1))
	for _, f := range g.families {
		b.rule(version(f), ours, remember(f, b.opened(g, f)))
	}
	b.rule(ours, setMark(g.mark), accept())
	if !g.pinned {
		// The other end is in the same namespace, at an address it gave itself.
		b.rule(protocol(unix.IPPROTO_TCP), socket(expr.SocketKeyWildcard, 0), accept())
	}
	// What the sandbox had on its way when the gateway cut a connection belongs
	// to that connection, which has its record.
	for _, f := range g.families {
		b.rule(version(f), protocol(unix.IPPROTO_TCP), remembered(f, b.opened(g, f)), reset())
	}
	b.rule(goTo(g.refuse()))
}

// keptRules accept what stays between processes of the sandbox.
func (b *batch) keptRules(g gate) {
	b.in(g.kept())
	for _, p := range g.own {
		b.rule(destination(p), accept())
	}
}

// refuseRules count, log and refuse, class by class.
func (b *batch) refuseRules(g gate) {
	b.in(g.refuse())
	for c := range classSpoof {
		var match []expr.Any
		if p := c.protocol(); p != 0 {
			match = protocol(p)
		}
		b.rule(match, count(g.device, c))
		b.rule(match, logTo(g.group, c))
		if c == classTCP {
			b.rule(match, reset())
			continue
		}
		b.rule(match, []expr.Any{&expr.Reject{
			Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}})
	}
}

func (b *batch) spoofRules(g gate) {
	b.in(g.spoof())
	b.rule(count(g.device, classSpoof))
	b.rule(logTo(g.group, classSpoof))
	b.rule(drop())
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

// divert hands a packet to the listener of f at port, if there is one; if not,
// the rule ends there and the packet goes on to be refused.
func divert(g gate, f family, port uint16) []expr.Any {
	return slices.Concat([]expr.Any{
		&expr.Immediate{Register: 1, Data: f.own.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.TProxy{Family: f.nfproto, TableFamily: unix.NFPROTO_INET, RegAddr: 1, RegPort: 2},
	}, setMark(g.mark))
}

func setMark(mark uint32) []expr.Any {
	if mark == 0 {
		return nil
	}
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}
}

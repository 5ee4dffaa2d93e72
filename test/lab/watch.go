//go:build linux

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Watch are addresses of the net at which nobody answers, and groups that nobody
// joins, with a count of the packets that arrive for them,
// whoever sent them.
type Watch struct {
	IP4, IP6       netip.Addr
	Group4, Group6 netip.Addr
	Link6          netip.Addr // on the net's own link
	Broadcast      netip.Addr // of the net, which watches share
	lab            *Lab
	table          *nftables.Table
}

func (w *Watch) all() []netip.Addr {
	return []netip.Addr{w.IP4, w.IP6, w.Group4, w.Group6, w.Link6, w.Broadcast}
}

// watchMost is how many watches there may be at once.
const watchMost = 100

// Watch takes a pair of addresses for one test, which gives them back.
func (l *Lab) Watch(t testing.TB) *Watch {
	t.Helper()
	n := byte(l.watches.Add(1) % watchMost)
	w := &Watch{lab: l, IP4: netip.AddrFrom4([4]byte{203, 0, 113, 100 + n}),
		IP6:    netip.MustParseAddr(fmt.Sprintf("2001:db8:1::1%02d", n)),
		Group4: netip.AddrFrom4([4]byte{239, 9, 9, 100 + n}), Group6: netip.MustParseAddr(fmt.Sprintf("ff0e::9:1%02d", n)),
		Link6: netip.MustParseAddr(fmt.Sprintf("fe80::9:1%02d", n)), Broadcast: netip.MustParseAddr("203.0.113.255"),
		table: &nftables.Table{Family: nftables.TableFamilyINet, Name: l.Unique("watch")}}
	own := []string{w.IP4.String() + "/24", w.IP6.String() + "/64", w.Link6.String() + "/64"}
	err := l.Net.Do(func() error { return configure(netName, own...) })
	if err == nil {
		err = l.snoop.with(w.load)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(
			l.snoop.with(func(c *nftables.Conn) error { c.DelTable(w.table); return c.Flush() }),
			l.Net.Do(func() error { return takeAddresses(netName, own...) }))
		if err != nil {
			t.Error(err)
		}
	})
	return w
}

// load counts and drops: an answer would be a packet of the net's own.
func (w *Watch) load(c *nftables.Conn) error {
	c.AddTable(w.table)
	chain := c.AddChain(&nftables.Chain{Name: "arrivals", Table: w.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	for _, a := range w.all() {
		family, offset := byte(unix.NFPROTO_IPV4), uint32(16) // of the destination in the header
		if a.Is6() {
			family, offset = unix.NFPROTO_IPV6, 24
		}
		c.AddRule(&nftables.Rule{Table: w.table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(a.BitLen() / 8)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: a.AsSlice()},
			&expr.Counter{},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	}
	return c.Flush()
}

// Packets returns how many packets arrived.
func (w *Watch) Packets(t testing.TB) (n uint64) {
	t.Helper()
	counters := 0
	err := w.lab.snoop.with(func(c *nftables.Conn) error {
		rules, err := c.GetRules(w.table, &nftables.Chain{Name: "arrivals", Table: w.table})
		for _, r := range rules {
			for _, e := range r.Exprs {
				if k, ok := e.(*expr.Counter); ok {
					n, counters = n+k.Packets, counters+1
				}
			}
		}
		return err
	})
	if err != nil || counters != len(w.all()) {
		t.Fatalf("%d counters of the watch: %v", counters, err)
	}
	return n
}

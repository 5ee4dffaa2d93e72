//go:build linux

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// snoop counts what arrives in the net from another source than the gateway.
type snoop struct{ net *Namespace }

const snoopTable = "snoop"

// newSnoop loads the counters.
func newSnoop(n *Namespace) (*snoop, error) {
	s := &snoop{net: n}
	return s, s.with(func(c *nftables.Conn) error {
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: snoopTable})
		priority := nftables.ChainPriorityRaw
		chain := c.AddChain(&nftables.Chain{Name: "arrivals", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: priority})
		for _, m := range [][]expr.Any{
			append(source(unix.NFPROTO_IPV4, netip.MustParsePrefix(Uplink+"/32"), expr.CmpOpNeq), &expr.Counter{}),
			append(notLocal(source(unix.NFPROTO_IPV6, netip.MustParsePrefix(Uplink6+"/128"), expr.CmpOpNeq)), &expr.Counter{}),
		} {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(arrivesAt(netName), m...)})
		}
		return c.Flush()
	})
}

func (s *snoop) with(f func(*nftables.Conn) error) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(s.net.handle)))
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return f(c)
}

// packets returns how many have been counted.
func (s *snoop) packets() (n uint64, err error) {
	err = s.with(func(c *nftables.Conn) error {
		table := &nftables.Table{Family: nftables.TableFamilyINet, Name: snoopTable}
		rules, err := c.GetRules(table, &nftables.Chain{Name: "arrivals", Table: table})
		if err != nil {
			return err
		}
		counters := 0
		for _, r := range rules {
			for _, e := range r.Exprs {
				if k, ok := e.(*expr.Counter); ok {
					n, counters = n+k.Packets, counters+1
				}
			}
		}
		if counters != 2 {
			return fmt.Errorf("the net has %d counters, not 2", counters)
		}
		return nil
	})
	return n, err
}

func arrivesAt(link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name},
	}
}

// source compares the source address with a prefix.
func source(family byte, p netip.Prefix, op expr.CmpOp) []expr.Any {
	offset, size := uint32(12), uint32(4) // of the source in the header of IPv4
	if family == unix.NFPROTO_IPV6 {
		offset, size = 8, 16
	}
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

// notLocal leaves neighbour discovery out, which the gateway's host does with
// link-local addresses.
func notLocal(m []expr.Any) []expr.Any {
	m = append(m, source(unix.NFPROTO_IPV6, netip.MustParsePrefix("fe80::/10"), expr.CmpOpNeq)...)
	return append(m, source(unix.NFPROTO_IPV6, netip.MustParsePrefix("::/128"), expr.CmpOpNeq)...)
}

// SendStray sends one packet past every gateway, from an address of the
// gateway's host that is not its own in the net: what a leak would look like.
func (l *Lab) SendStray() error {
	return l.GW.Do(func() error {
		if err := configure("lo", "10.66.255.2/32"); err != nil {
			return err
		}
		d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP("10.66.255.2")}}
		c, err := d.Dial("udp", net.JoinHostPort(Spare, "9"))
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("stray")); err != nil {
			return err
		}
		Within(waitEvents, func() bool { n, err := l.Strays(); return err == nil && n > 0 })
		return nil
	})
}

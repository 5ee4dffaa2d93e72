//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// publishedMark is set on answers of a published port, and leads them past
	// closedTable. Nothing else sets it, so that with the rules gone the lock
	// is shut.
	publishedMark = 0x53500002
	// unpublishedMark is set on packets that look like an answer and are none.
	unpublishedMark = 0x53500003
	// publishedPriority of the routing rule comes before closedPriority.
	publishedPriority = 529
	// publishedHook comes after connection tracking, which knows answers.
	publishedHook = -150
	// tableMain is where the host's routes are.
	tableMain = unix.RT_TABLE_MAIN
)

// BridgeOptions describes a bridge of a container engine, on which the
// containers have the gateway as their default route.
type BridgeOptions struct {
	InterfaceOptions
	// Peers lets the containers of the bridge speak to one another, past the
	// gateway. Without it each is alone with the gateway.
	Peers bool
}

// IsBridge says whether an interface of the calling thread's namespace is a
// bridge.
func IsBridge(name string) bool {
	link, err := netlink.LinkByName(name)
	return err == nil && link.Type() == "bridge"
}

// OpenBridge captures all traffic that arrives at a bridge, as OpenInterface
// does, and keeps its ports apart. Connections that come in from outside, by a
// port that the engine publishes, are none of the gateway's: their answers
// pass. IsolatePorts is to be called again whenever a port is added.
func OpenBridge(o BridgeOptions) (*Sockets, error) {
	if o.Namespace != "" {
		return nil, fmt.Errorf("interface %q: a bridge stays where its engine has it", o.Interface)
	}
	if !o.Peers {
		if err := IsolatePorts(o.Interface); err != nil {
			return nil, err
		}
	}
	s, err := OpenInterface(o.InterfaceOptions)
	if err != nil {
		return nil, err
	}
	if err := o.publish(); err != nil {
		return nil, errors.Join(fmt.Errorf("interface %q: published ports: %w", o.Interface, err), s.Close())
	}
	if err := BridgeFiltering(); err != nil {
		return nil, errors.Join(fmt.Errorf("interface %q: %w", o.Interface, err), s.Close())
	}
	return s, nil
}

// BridgeFiltering returns an error if the kernel hands bridged packets to the
// rules for routed ones (br_netfilter). It takes those to the host as bridged
// first, and the listener that the rules give them to is lost when they are
// routed: nothing would work. What there is of rules refuses everything.
func BridgeFiltering() error {
	for _, f := range []family{ipv4(), ipv6()} {
		name := "net.bridge.bridge-nf-call-iptables"
		if f.domain == unix.AF_INET6 {
			name = "net.bridge.bridge-nf-call-ip6tables"
		}
		state, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if err == nil && string(state) != "0\n" {
			return fmt.Errorf("%s is 1, with which nothing on a bridge can be captured; set it to 0 (the gateway keeps the ports of the bridge apart by itself)", name)
		}
	}
	return nil
}

// IsolatePorts forbids the ports of a bridge to send to one another. They can
// send to the bridge itself alone.
func IsolatePorts(bridge string) error {
	b, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("interface %q: %w", bridge, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("links: %w", err)
	}
	var errs []error
	for _, l := range links {
		if l.Attrs().MasterIndex != b.Attrs().Index {
			continue
		}
		if info, err := netlink.LinkGetProtinfo(l); err == nil && info.Isolated {
			continue
		}
		err := netlink.LinkSetIsolated(l, true)
		if err != nil && !errors.Is(err, syscall.ENODEV) { // gone meanwhile
			errs = append(errs, fmt.Errorf("port %q of %q: isolate: %w", l.Attrs().Name, bridge, err))
		}
	}
	return errors.Join(errs...)
}

// publish adds what answers of published ports need to the rules of the
// interface.
func (o BridgeOptions) publish() error {
	families := versions()
	for _, f := range families {
		if err := addRule(publishedRule(f)); err != nil {
			return err
		}
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	b := &batch{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}}
	g := gate{device: o.Interface, families: families}
	b.answerRules(g)
	b.letAnswers(g)
	return conn.Flush()
}

func publishedRule(f family) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Mark, r.Table, r.Priority = f.domain, publishedMark, tableMain, publishedPriority
	return r
}

// letAnswers takes what may be an answer out of the chain that refuses: there
// connection tracking has not seen the packet yet. The chain of answerRules
// sends it back, marked, if it is none.
func (b *batch) letAnswers(g gate) {
	b.in(g.refuse())
	for _, f := range g.families {
		b.first(wholePacket(f, unix.IPPROTO_UDP), unmarked(unpublishedMark), accept())
		b.first(wholePacket(f, unix.IPPROTO_TCP), noNewConnection(), unmarked(unpublishedMark), accept())
	}
}

// answerRules let answers pass and refuse what only looked like one.
func (b *batch) answerRules(g gate) {
	acceptAll, priority := nftables.ChainPolicyAccept, nftables.ChainPriority(publishedHook)
	b.chain = b.conn.AddChain(&nftables.Chain{Table: b.table, Name: publishedChain(g.device), Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: &priority, Policy: &acceptAll})
	b.conn.FlushChain(b.chain)
	b.rule(compare(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, expr.CmpOpNeq, interfaceName(g.device)...), accept())
	b.rule(marked(divertMark), accept())
	for _, p := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		b.rule(protocol(p), answer(), translated(), setMark(publishedMark), accept())
		b.rule(protocol(p), answer(), toHost(), setMark(publishedMark), accept()) // of the engine's own proxy
		b.rule(protocol(p), setMark(unpublishedMark), goTo(g.refuse()))
	}
}

func publishedChain(device string) string { return "answers_" + device }

// first puts a rule before all others of its chain.
func (b *batch) first(parts ...[]expr.Any) {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	b.conn.InsertRule(&nftables.Rule{Table: b.table, Chain: b.chain, Exprs: all})
}

// wholePacket matches packets of a protocol that are no fragments and have no
// extension headers.
func wholePacket(f family, p uint8) []expr.Any {
	if f.domain == unix.AF_INET6 {
		return nextHeader(expr.CmpOpEq, p)
	}
	parts := append(version(f), masked(networkHeader(6, 2), []byte{0x3f, 0xff})...)
	parts = append(parts, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0, 0}})
	return append(parts, protocol(p)...)
}

// noNewConnection matches TCP segments that newConnection does not.
func noNewConnection() []expr.Any {
	parts := newConnection()
	parts[len(parts)-1] = &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: parts[len(parts)-1].(*expr.Cmp).Data}
	return parts
}

func marked(mark uint32) []expr.Any {
	return compare(&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(mark)...)
}

func unmarked(mark uint32) []expr.Any {
	return compare(&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, expr.CmpOpNeq, binaryutil.NativeEndian.PutUint32(mark)...)
}

// answer matches packets in the direction of the answers of a connection that
// is known.
func answer() []expr.Any {
	const reply = 1
	parts := hasBits(expr.CtKeySTATE, expr.CtStateBitESTABLISHED|expr.CtStateBitRELATED)
	return append(parts, compare(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1}, expr.CmpOpEq, reply)...)
}

// translated matches connections whose destination was changed on the way in.
func translated() []expr.Any {
	const destinationChanged = 1 << 5 // IPS_DST_NAT
	return hasBits(expr.CtKeySTATUS, destinationChanged)
}

func hasBits(key expr.CtKey, bits uint32) []expr.Any {
	parts := masked(&expr.Ct{Key: key, Register: 1}, binaryutil.NativeEndian.PutUint32(bits))
	return append(parts, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)})
}

// toHost matches packets to an address of the host itself.
func toHost() []expr.Any {
	return compare(&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, expr.CmpOpEq,
		binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)...)
}

// RemoveBridges takes away what OpenBridge has added besides the rules that
// RemoveRules removes. Nothing there is not an error.
func RemoveBridges() error {
	var errs []error
	for _, f := range []family{ipv4(), ipv6()} {
		err := netlink.RuleDel(publishedRule(f))
		if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EAFNOSUPPORT) {
			errs = append(errs, fmt.Errorf("routing rule of published ports: %w", err))
		}
	}
	return errors.Join(errs...)
}

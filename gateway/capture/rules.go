//go:build linux

package capture

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// gate describes the rules of one interface.
type gate struct {
	device   string
	families []family
	ports    map[int]uint16 // domain → port of the TCP listener
	group    uint16         // of NFLOG
	mark     uint32         // set on what is diverted, for the routing rule; 0 none
	own      []netip.Prefix // destinations that stay the sandbox's, port 53 apart
	gateways []netip.Prefix // IPv6 addresses of ours that the sandbox asks for
	pinned   bool           // sources and macs are enforced
	sources  []sourceOf
	shared   bool // its sandbox is in the gateway's own namespace
}

// sourceOf is where a sandbox may send from: addresses, and the Ethernet
// addresses that go with them.
type sourceOf struct {
	prefix netip.Prefix
	macs   [][6]byte // nil: any
}

// Chains of one interface.
func (g gate) entry() string   { return "in_" + g.device }     // what is it
func (g gate) allowed() string { return "from_" + g.device }   // its source is right
func (g gate) kept() string    { return "own_" + g.device }    // stays in the sandbox
func (g gate) refuse() string  { return "refuse_" + g.device } // count, log, refuse
func (g gate) spoof() string   { return "spoof_" + g.device }  // count, log, drop

func (g gate) strays() string { return "strays_" + g.device } // count, log, drop: of a namespace that is shared

func (g gate) chains() []string {
	all := []string{g.entry(), g.allowed(), g.kept(), g.refuse(), g.spoof()}
	if g.shared {
		all = append(all, g.strays())
	}
	return all
}

// entryRules tell fragments, neighbour discovery and wrong sources apart.
func (b *batch) entryRules(g gate) {
	b.in(g.entry())
	b.rule(fragment4(), call(g.kept()))
	b.rule(fragment4(), goTo(g.refuse()))
	b.rule(nextHeader(expr.CmpOpEq, unix.IPPROTO_FRAGMENT), call(g.kept()))
	// Not to any other address: a host that forwards would carry it out.
	link := append([]netip.Prefix{netip.MustParsePrefix("ff02::/16"), netip.MustParsePrefix("fe80::/10")}, g.gateways...)
	for _, to := range link {
		for _, kind := range neighbourDiscovery() {
			b.rule(nextHeader(expr.CmpOpEq, unix.IPPROTO_ICMPV6), hopLimit(255), destination(to), icmpType(kind), accept())
		}
	}
	// Listener reports are what every IPv6 host sends by itself to its link.
	for _, kind := range listenerReports() {
		b.rule(nextHeader(expr.CmpOpEq, unix.IPPROTO_HOPOPTS), hopLimit(1), destination(link[0]),
			protocol(unix.IPPROTO_ICMPV6), icmpType(kind), drop())
	}
	if !g.pinned {
		b.rule(goTo(g.allowed()))
		return
	}
	// What has no address of its own yet is no spoof. It is refused all the same.
	for _, p := range []string{"0.0.0.0/32", "::/128"} {
		b.rule(source(netip.MustParsePrefix(p)), goTo(g.refuse()))
	}
	// What nobody sends from, the kernel would drop later without a word.
	for _, p := range []string{"0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::1/128", "ff00::/8"} {
		b.rule(source(netip.MustParsePrefix(p)), goTo(g.spoof()))
	}
	b.rule(fromHost(), goTo(g.spoof()))
	for _, p := range g.sources {
		if p.macs == nil {
			b.rule(source(p.prefix), b.oneOfFew(g, p.prefix), goTo(g.allowed()))
		}
		for _, mac := range p.macs {
			b.rule(source(p.prefix), sender(mac), b.oneOfFew(g, p.prefix), goTo(g.allowed()))
		}
	}
	// What speaks to its link alone is none either.
	b.rule(source(netip.MustParsePrefix("fe80::/10")), goTo(g.refuse()))
	b.rule(goTo(g.spoof()))
}

// usualRules decide at once about most packets of a namespace, those of open
// TCP connections and answers, as the chains behind would: a thousand sandboxes
// take turns in the caches, and each rule that is read costs a fetch from memory.
func (b *batch) usualRules(g gate) {
	for _, f := range g.families {
		b.rule(version(f), exactly(f.own), otherPort(dnsPort), accept())
		b.rule(plainTCP(f), unicast(f), notNewConnection(), socket(expr.SocketKeyTransparent, 1), remember(f, b.opened(g, f)), accept())
	}
}

// outputRules refuse fragments where a namespace sends them: on the way to lo
// the kernel would keep them, waiting for the rest, and nothing would be seen.
func (b *batch) outputRules(g gate) {
	b.base(outputChain, nftables.ChainTypeFilter, nftables.ChainHookOutput, basePriority)
	b.rule(version(ipv4()), whole4(), accept()) // most
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
		b.rule(version(f), ours, remember(f, b.opened(g, f)), setMark(g.mark), accept())
	}
	b.rule(ours, setMark(g.mark), accept()) // of which there is no place to remember it
	if !g.pinned {
		// The other end is in the same namespace, at an address it gave itself.
		b.rule(protocol(unix.IPPROTO_TCP), socket(expr.SocketKeyWildcard, 0), accept())
	}
	if g.pinned {
		b.rule(answeredElsewhere(g.device), goTo(g.refuse()))
	}
	// What the sandbox had on its way when the gateway cut a connection belongs
	// to that connection, which has its record.
	// It may also be the end of a handshake of which the kernel keeps nothing: one
	// sandbox can fill the queue of a listener that others share, and then it
	// answers with cookies. The listener knows its cookies and resets the rest.
	for _, f := range g.families {
		spoke := slices.Concat(version(f), protocol(unix.IPPROTO_TCP), remembered(f, b.opened(g, f)))
		b.rule(spoke, port(dnsPort), divert(g, f, dnsPort), accept())
		b.rule(spoke, otherPort(dnsPort), divert(g, f, g.ports[f.domain]), accept())
		b.rule(spoke, reset()) // nobody listens
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

// refuseRules count, log and refuse, class by class. A refusal has the packet in
// it, and goes to the source that the packet claims: it is sent to the sandbox's
// own link or not at all.
func (b *batch) refuseRules(g gate) {
	b.in(g.refuse())
	b.tell(g, func(c class, match []expr.Any) {
		if g.pinned {
			b.rule(match, answeredElsewhere(g.device), drop())
		}
		if c == classTCP {
			b.rule(match, reset())
			return
		}
		b.rule(match, []expr.Any{&expr.Reject{
			Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}})
	})
}

// tell counts and logs packets class by class, and then does with each what is
// to be done.
func (b *batch) tell(g gate, then func(c class, match []expr.Any)) {
	for c := range classSpoof {
		var match []expr.Any
		if p := c.protocol(); p != 0 {
			match = protocol(p)
		}
		b.rule(match, count(g.device, c))
		b.rule(match, logTo(g.group, c))
		then(c, match)
	}
}

func (b *batch) spoofRules(g gate) {
	b.in(g.spoof())
	b.rule(count(g.device, classSpoof))
	b.rule(logTo(g.group, classSpoof))
	b.rule(drop())
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

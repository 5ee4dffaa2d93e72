//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	divertChain  = "divert"  // at the output of a namespace that is shared
	leavingChain = "leaving" // where its packets go out
	oursChain    = "ours"    // accepts what is none of the sandbox's
	// divertHook comes after connection tracking, which knows answers.
	divertHook = -150
)

// owners are the IDs by which the gateway's own packets are known.
type owners struct{ uid, gid int }

// check refuses those that anybody who is root has.
func (o owners) check() error {
	if o.uid == 0 && o.gid == 0 {
		return errors.New("shared namespace: the gateway runs as root and with root's group; it needs a user or group of its own, by which its packets are known")
	}
	return nil
}

// divertOthers sends questions and connections that leave back to lo, where
// the rules wait for them, unless they are the gateway's own or an answer to
// what came in. All else is refused where it is sent, so that its sender hears
// of it: at lo the kernel would not know where to send the message. What the
// kernel sends out all the same, since its socket is bound to a device or its
// destination is of the link, is stopped where it leaves.
func divertOthers(g gate, o owners) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	b := &batch{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}}
	b.ourRules(o)
	b.base(divertChain, nftables.ChainTypeRoute, nftables.ChainHookOutput, divertHook)
	b.rule(toHost(), accept())
	b.rule(call(oursChain))
	for _, p := range []string{"224.0.0.0/4", "255.255.255.255/32", "ff00::/8"} {
		b.rule(destination(netip.MustParsePrefix(p)), goTo(g.refuse()))
	}
	b.rule(toBroadcast(), goTo(g.refuse()))
	b.rule(protocol(unix.IPPROTO_UDP), port(dnsPort), setMark(divertMark), accept())
	b.rule(protocol(unix.IPPROTO_TCP), setMark(divertMark), accept())
	b.rule(goTo(g.refuse()))
	b.base(leavingChain, nftables.ChainTypeFilter, nftables.ChainHookPostrouting, divertHook)
	b.sentHere()
	b.rule(goTo(g.strays()))
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nft chain %s: %w", divertChain, err)
	}
	return nil
}

// LockShared closes the network namespace of the caller to everybody in it but
// the processes that have its user and group, in the table of the lock: while
// no capture diverts what they send, it is refused. RemoveRules undoes it.
func LockShared() error {
	o := owners{uid: os.Geteuid(), gid: os.Getegid()}
	if err := o.check(); err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	b := &batch{conn: conn, table: conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: lockTable})}
	b.ourRules(o)
	b.base(divertChain, nftables.ChainTypeFilter, nftables.ChainHookOutput, divertHook+10)
	b.rule(marked(divertMark), accept())
	b.rule(toHost(), accept())
	b.rule(call(oursChain))
	b.rule(protocol(unix.IPPROTO_TCP), counted(), reset())
	b.rule(counted(), []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}})
	b.base(leavingChain, nftables.ChainTypeFilter, nftables.ChainHookPostrouting, divertHook+10)
	b.sentHere()
	b.rule(counted(), drop())
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nft table %s: %w", lockTable, err)
	}
	return nil
}

// base begins a chain at a hook, which accepts what its rules leave.
func (b *batch) base(name string, kind nftables.ChainType, hook *nftables.ChainHook, at nftables.ChainPriority) {
	acceptAll := nftables.ChainPolicyAccept
	b.chain = b.conn.AddChain(&nftables.Chain{Table: b.table, Name: name, Type: kind, Hooknum: hook, Priority: &at, Policy: &acceptAll})
	b.conn.FlushChain(b.chain)
}

// ourRules accept what the gateway sends, answers to what came in, and what the
// kernel itself sends to be on its link: no process owns that.
func (b *batch) ourRules(o owners) {
	b.chain = b.conn.AddChain(&nftables.Chain{Table: b.table, Name: oursChain})
	b.conn.FlushChain(b.chain)
	b.rule(owner(expr.MetaKeySKUID, o.uid), owner(expr.MetaKeySKGID, o.gid), accept())
	b.rule(protocol(unix.IPPROTO_ICMPV6), owned(), []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}})
	for _, kind := range append(neighbourDiscovery(), listenerReports()...) {
		b.rule(protocol(unix.IPPROTO_ICMPV6), icmpType(kind), accept())
	}
	b.rule(answer(), accept())
}

// sentHere leaves in a chain where packets go out those that processes of the
// namespace send out of it.
func (b *batch) sentHere() {
	b.rule(compare(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, expr.CmpOpEq, interfaceName(loopback)...), accept())
	forwarded := compare(&expr.Meta{Key: expr.MetaKeyIIF, Register: 1}, expr.CmpOpNeq, 0, 0, 0, 0)
	b.rule(forwarded, accept())
	b.rule(call(oursChain))
}

// strayRules count, log and drop: where packets go out there is no refusing.
func (b *batch) strayRules(g gate) {
	b.in(g.strays())
	b.tell(g, func(_ class, match []expr.Any) { b.rule(match, drop()) })
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

// toBroadcast matches packets to everybody on a link.
func toBroadcast() []expr.Any {
	return compare(&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, expr.CmpOpEq,
		binaryutil.NativeEndian.PutUint32(unix.RTN_BROADCAST)...)
}

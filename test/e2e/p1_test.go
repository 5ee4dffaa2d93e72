//go:build linux

package e2e_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"sallyport/test/lab"
)

// state is a state of the gateway in which nothing may leave.
type state struct {
	name string
	set  func(t *testing.T)
}

// TestP1OnlyWayOut: nothing leaves a sandbox whose policy allows nothing, and
// nothing leaves any sandbox while its gateway is stopped, killed, cannot
// start, or was never there, even when root in the sandbox takes away every
// rule. The host forwards. NET-01, NET-06, NET-07.
func TestP1OnlyWayOut(t *testing.T) {
	t.Run("control", p1Control)
	t.Run("netns", p1Namespace)
	t.Run("interface", p1Interface)
	t.Run("never started", p1NeverStarted)
	for user, uid := range users() {
		t.Run("run as "+user, func(t *testing.T) { p1Run(t, uid) })
	}
}

// p1Control holds that the attack gets through and is counted where nothing
// stands in its way, or the rest would prove nothing.
func p1Control(t *testing.T) {
	l := begin(t)
	w := l.Watch(t)
	// What is sent before a link knows an address waits, and only so much of it.
	knock(l.GW, "udp", w.IP4, 9)
	knock(l.GW, "udp", w.IP6, 9)
	if !lab.Within(patience, func() bool { return w.Packets(t) >= 2 }) {
		t.Fatal("the host has no way to the watch")
	}
	attackWith(t, l.GW, w, everyProtocol(w, netip.MustParseAddr(lab.Uplink6)))
	const datagrams, connections, protocols = 20, 20, 2 * 200
	if !lab.Within(patience, func() bool { return w.Packets(t) >= datagrams+connections+protocols }) {
		t.Fatalf("only %d packets of the gateway's host were counted", w.Packets(t))
	}
}

// inEvery sets each state in turn, attacks, and holds that nothing arrived.
func inEvery(t *testing.T, ns *lab.Namespace, f *frames, states []state) {
	w := world.lab.Watch(t)
	for _, s := range states {
		s.set(t)
		attack(t, ns, w, f)
		if n := w.Packets(t); n != 0 {
			t.Fatalf("%s: %d packets arrived in the net", s.name, n)
		}
	}
}

// flush takes every rule and route away that root in ns can.
func flush(t *testing.T, ns *lab.Namespace) {
	t.Helper()
	for _, line := range []string{"nft flush ruleset", "ip rule flush", "ip -6 rule flush", "ip route flush table all", "ip -6 route flush table all"} {
		cmd := exec.Command("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; "+line)
		must(t, ns.Start(cmd))
		_ = cmd.Wait() // some leave nothing to flush
	}
	out, err := output(ns, "nft", "list", "ruleset")
	if err != nil || len(out) > 0 {
		t.Fatalf("rules are left in the sandbox: %s (%v)", out, err)
	}
}

func output(ns *lab.Namespace, argv ...string) (out []byte, err error) {
	_ = ns.Do(func() error { out, err = exec.Command(argv[0], argv[1:]...).CombinedOutput(); return nil })
	return out, err
}

const p1Policy = `
sandbox "s1" {
  ipv6 = true
  %s
}
`

// daemonStates are the states that a daemon goes through; alive says whether
// the sandbox is served again.
func daemonStates(g *lab.Gateway, alive func(t *testing.T), flushed func(t *testing.T)) []state {
	policy := filepath.Join(g.PolicyDir(), "p.hcl")
	text, _ := os.ReadFile(policy) // written by the test
	fails := func(t *testing.T) {
		t.Helper()
		must(t, g.Launch())
		if code, err := g.Exit(lab.StartTime); code != 78 || err != nil {
			t.Fatalf("the gateway ended with %d (%v), not 78:\n%s", code, err, g.Stderr())
		}
	}
	return []state{
		{"no rule allows anything", alive},
		{"stopped", func(t *testing.T) { must(t, g.Signal(syscall.SIGSTOP)) }},
		{"going on", func(t *testing.T) { must(t, g.Signal(syscall.SIGCONT)); alive(t) }},
		{"killed", func(t *testing.T) { must(t, g.Kill()) }},
		{"broken policy", func(t *testing.T) { must(t, os.WriteFile(policy, []byte("sandbox {"), 0o644)); fails(t) }},
		{"empty policy", func(t *testing.T) { must(t, os.WriteFile(policy, nil, 0o644)); fails(t) }},
		{"missing policy", func(t *testing.T) { must(t, os.Remove(policy)); fails(t) }},
		{"back again", func(t *testing.T) { must(t, os.WriteFile(policy, text, 0o644)); must(t, g.Start()); alive(t) }},
		{"ended in order", func(t *testing.T) { must(t, g.Stop()) }},
		{"back for the second time", func(t *testing.T) { must(t, g.Start()); alive(t) }},
		{"flushed while it is up", flushed},
		{"flushed and killed", func(t *testing.T) { must(t, g.Kill()) }},
		{"flushed again while it is down", flushed},
		{"back over what is left", func(t *testing.T) { must(t, g.Start()) }},
		{"killed for the last time", func(t *testing.T) { must(t, g.Kill()) }},
	}
}

// answered holds that the sandbox's questions are answered.
func answered(s *lab.Sandbox) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		if !lab.Within(lab.StartTime, func() bool { _, err := s.Ask("sallyport.internal", dns.TypeA); return err == nil }) {
			t.Fatalf("no question is answered:\n%s", s.Gateway.Stderr())
		}
	}
}

func p1Namespace(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one(fmt.Sprintf(p1Policy, ""))})
	s := g.Attach(t, "s1")
	inEvery(t, s.NS, nil, daemonStates(g, answered(s), func(t *testing.T) { flush(t, s.NS) }))
}

func p1Interface(t *testing.T) {
	l := begin(t)
	const n = 41
	g := l.Gateway(t, lab.GatewayOptions{Interfaces: []string{fmt.Sprintf("sb%d", n)},
		Policy: one(fmt.Sprintf(p1Policy, fmt.Sprintf(`match { cidrs = ["10.66.%d.0/24", "fd66:%d::/64"] }`, n, n)))})
	s := g.Interface(t, "s1", n)
	f := &frames{link: "eth0", ip4: netip.MustParseAddr(fmt.Sprintf("10.66.%d.2", n)), ip6: netip.MustParseAddr(fmt.Sprintf("fd66:%d::2", n))}
	must(t, l.GW.Do(func() error {
		link, err := net.InterfaceByName(fmt.Sprintf("sb%d", n))
		if err == nil {
			f.mac = link.HardwareAddr
		}
		return err
	}))
	inEvery(t, s.NS, f, daemonStates(g, answered(s), func(t *testing.T) {
		// Its own rules are on the other side of the link, out of its reach.
		if out, err := output(s.NS, "nft", "flush", "ruleset"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}))
}

func p1NeverStarted(t *testing.T) {
	l := begin(t)
	ns, err := l.Namespace(l.Unique("lonely"))
	must(t, err)
	inEvery(t, ns, nil, []state{{"never started", func(*testing.T) {}}})
}

func p1Run(t *testing.T, uid int) {
	l := begin(t)
	b := l.Begin(t, withKey(uid, fmt.Sprintf("sandbox \"dev\" {\n  ipv6 = true\n}\n"), "sleep", "300"))
	ns := b.Namespace(t, l)
	inEvery(t, ns, nil, []state{
		{"no rule allows anything", func(*testing.T) {}},
		{"stopped", func(t *testing.T) { must(t, b.Kill(syscall.SIGSTOP)) }},
		{"going on", func(t *testing.T) { must(t, b.Kill(syscall.SIGCONT)) }},
		{"flushed", func(t *testing.T) { flush(t, ns) }},
		{"killed", func(t *testing.T) { must(t, b.Kill(syscall.SIGKILL)); b.Wait(t) }},
	})
}

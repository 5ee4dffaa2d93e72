//go:build linux

package closed_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sallyport/audit"
	"sallyport/gateway/capture"
	"sallyport/test/closed"
	"sallyport/test/lab"
)

// ip runs commands of iproute2 on the gateway's host or in a namespace.
func ip(t *testing.T, n *lab.Namespace, lines ...string) {
	t.Helper()
	for _, line := range lines {
		must(t, n.Do(func() error {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
			return nil
		}))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T, l *lab.Lab, name string) *lab.Namespace {
	t.Helper()
	ns, err := l.Namespace(name)
	must(t, err)
	return ns
}

// addresses of a sandbox by its number.
func address4(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.66.%d.2", n)) }
func address6(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("fd66:%d::2", n)) }

// policy has one sandbox, by its number unless that is 0.
func policy(name string, n int) map[string]string {
	match := ""
	if n > 0 {
		match = fmt.Sprintf(`match { cidrs = ["10.66.%d.0/24", "fd66:%d::/64"] }`, n, n)
	}
	return map[string]string{"p.hcl": fmt.Sprintf("sandbox %q {\n  ipv6 = true\n  %s\n}\n", name, match)}
}

// link makes a namespace whose link to the gateway's host is its default route,
// whoever holds it.
func link(t *testing.T, l *lab.Lab, name string, n int) *lab.Namespace {
	t.Helper()
	ns := namespace(t, l, name)
	ip(t, l.GW, fmt.Sprintf("link add %s type veth peer name eth0 netns %s", name, ns.Name),
		fmt.Sprintf("addr add 10.66.%d.1/24 dev %s", n, name), fmt.Sprintf("addr add fd66:%d::1/64 dev %s nodad", n, name), "link set "+name+" up")
	route(t, ns, n)
	return ns
}

// route gives the link of a namespace its addresses and the default route.
func route(t *testing.T, ns *lab.Namespace, n int) {
	t.Helper()
	ip(t, ns, fmt.Sprintf("addr add 10.66.%d.2/24 dev eth0", n), fmt.Sprintf("addr add fd66:%d::2/64 dev eth0 nodad", n), "link set eth0 up",
		fmt.Sprintf("route add default via 10.66.%d.1", n), fmt.Sprintf("-6 route add default via fd66:%d::1", n))
}

// netns is a namespace with nothing but lo.
func netns(t *testing.T, l *lab.Lab) *closed.Sandbox {
	ns := namespace(t, l, "job")
	g := l.UnstartedGateway(t, lab.GatewayOptions{Policy: policy("job", 0), More: fmt.Sprintf("capture \"job\" {\n  netns = %q\n  sandbox = \"job\"\n}\n", ns.Name)})
	return closed.Of(g, closed.Sandbox{Capture: "netns", Name: "job", NS: ns, Watch: l.Watch(t), Rules: []*lab.Namespace{ns},
		From4: netip.MustParseAddr("127.0.0.1"), From6: netip.MustParseAddr("::1")})
}

// veth is what is behind a veth.
func veth(t *testing.T, l *lab.Lab) *closed.Sandbox {
	const n = 98
	g := l.UnstartedGateway(t, lab.GatewayOptions{Policy: policy("veth", n), Interfaces: []string{"nv*"}})
	return closed.Of(g, closed.Sandbox{Capture: "interface", Name: "veth", NS: link(t, l, "nv1", n), Watch: l.Watch(t), Rules: []*lab.Namespace{l.GW},
		From4: address4(n), From6: address6(n), Open: true})
}

// bridge is what is at a port of a bridge.
func bridge(t *testing.T, l *lab.Lab) *closed.Sandbox {
	const n = 97
	g := l.UnstartedGateway(t, lab.GatewayOptions{Policy: policy("port", n), Interfaces: []string{"br-late"}})
	shell(t, l, "for f in /proc/sys/net/bridge/bridge-nf-call-ip*tables; do test ! -e $f || echo 0 >$f; done")
	ip(t, l.GW, "link add br-late type bridge")
	ns := link(t, l, "port1", n)
	ip(t, l.GW, "addr flush dev port1", "link set port1 master br-late", fmt.Sprintf("addr add 10.66.%d.1/24 dev br-late", n),
		fmt.Sprintf("addr add fd66:%d::1/64 dev br-late nodad", n), "link set br-late up")
	return closed.Of(g, closed.Sandbox{Capture: "bridge", Name: "port", NS: ns, Watch: l.Watch(t), Rules: []*lab.Namespace{l.GW},
		From4: address4(n), From6: address6(n), Open: true})
}

// tap is a namespace that speaks through a tap as a machine does: what it sends
// is written to the tap by a process, and what comes out of it is read. It was
// made on the host, by hand.
func tap(t *testing.T, l *lab.Lab) *closed.Sandbox {
	const n = 96
	name := fmt.Sprintf("tp%d", os.Getpid()%100000)
	inside := "/run/sallyport/net/" + name
	t.Cleanup(func() { // also after a failure half way
		must(t, l.GW.Do(func() error { return capture.ReleaseInterface(name, inside) }))
	})
	g := l.UnstartedGateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": fmt.Sprintf(
		"sandbox \"vm\" {\n  ipv6 = true\n  match {\n    interfaces = [%q]\n    cidrs = [\"10.66.%d.2/32\", \"fd66:%d::2/128\"]\n    macs = [%q]\n  }\n}\n", name, n, n, guestMAC)},
		More: fmt.Sprintf("capture \"vm\" {\n  tap = [%q]\n  address = [\"10.66.%d.1/24\", \"fd66:%d::1/64\"]\n}\n", name, n, n)})
	guest := namespace(t, l, "guest")
	plug(t, l.GW, name, guest)
	ip(t, l.GW, fmt.Sprintf("addr add 10.66.%d.1/24 dev %s", n, name), fmt.Sprintf("addr add fd66:%d::1/64 dev %s nodad", n, name), "link set "+name+" up")
	route(t, guest, n)
	s := closed.Of(g, closed.Sandbox{Capture: "tap", Name: "vm", NS: guest, Watch: l.Watch(t), From4: address4(n), From6: address6(n)})
	start := s.Start
	s.Start = func() error { // the first moves the tap
		err := start()
		if err == nil && len(s.Rules) == 0 {
			s.Rules = []*lab.Namespace{l.NamespaceAt(t, inside)}
		}
		return err
	}
	return s
}

// TestCaptures: what becomes of the gateways of a host that forwards, and then,
// NET-06, every other protocol.
func TestCaptures(t *testing.T) {
	l := lab.New(t)
	list := []*closed.Sandbox{netns(t, l), veth(t, l), bridge(t, l), tap(t, l)}
	t.Run("nothing leaves", func(t *testing.T) { closed.Hold(t, l, list) })
	// A run makes its sandbox, so there is none before it; what it has captured
	// stays shut when it ends, in any way.
	t.Run("nothing leaves a run", func(t *testing.T) { closed.HoldRun(t, run(t, l)) })
	t.Run("nothing leaves a run that was stopped", func(t *testing.T) {
		s := run(t, l)
		must(t, s.End(syscall.SIGTERM))
		closed.NothingArrives(t, []*closed.Sandbox{s})
	})
	t.Run("every other protocol is refused and recorded", func(t *testing.T) { refused(t, l, append(list, run(t, l))) })
}

// refused starts what there is to start.
func refused(t *testing.T, l *lab.Lab, list []*closed.Sandbox) {
	for _, s := range list {
		if s.Watch = l.Watch(t); s.Start != nil {
			must(t, s.Start())
			s.Served(t)
		}
	}
	closed.Refused(t, list)
}

// run is the network of a command.
func run(t *testing.T, l *lab.Lab) *closed.Sandbox {
	b := l.Begin(t, lab.RunOptions{UID: lab.Nobody, Policy: policy("one", 0)["p.hcl"], Sandbox: "one", Argv: []string{"sleep", "600"}})
	ns := b.Namespace(t, l)
	return &closed.Sandbox{Capture: "run", Name: "one", NS: ns, Watch: l.Watch(t), Rules: []*lab.Namespace{ns},
		From4: netip.MustParseAddr("127.0.0.1"), From6: netip.MustParseAddr("::1"), PID: b.PID, Who: syscall.Credential{Uid: lab.Nobody, Gid: lab.Nobody},
		Events: func(f audit.Filter) (out []*audit.Event) {
			for _, e := range b.Events(t) {
				if f.Match(e) {
					out = append(out, e)
				}
			}
			return out
		},
		End:  func(sig syscall.Signal) error { err := b.Kill(sig); b.Wait(t); return err },
		Said: func() string { return "a run's log is read when it has ended" },
	}
}

// pod is the gateway's own namespace, where others than it are root without its
// group.
func pod(t *testing.T, l *lab.Lab) *closed.Sandbox {
	wrapper := filepath.Join(t.TempDir(), "sallyport")
	must(t, os.WriteFile(wrapper, fmt.Appendf(nil, "#!/bin/sh\nexec setpriv --regid 7955 --clear-groups %s \"$@\"\n", l.Binary), 0o755))
	l.Binary = wrapper
	g := l.UnstartedGateway(t, lab.GatewayOptions{Policy: policy("pod", 0), More: "capture \"pod\" {\n  shared = true\n  sandbox = \"pod\"\n}\n"})
	return closed.Of(g, closed.Sandbox{Capture: "shared", Name: "pod", NS: l.GW, Watch: l.Watch(t), Rules: []*lab.Namespace{l.GW}, Tables: []string{"sallyport"},
		From4: netip.MustParseAddr(lab.Uplink), From6: netip.MustParseAddr(lab.Uplink6), Open: true, Who: syscall.Credential{Gid: 7955}})
}

// TestPod: those beside the gateway. Who deletes both of its tables there has
// NET_ADMIN, and is not held.
func TestPod(t *testing.T) {
	l := lab.New(t)
	list := []*closed.Sandbox{pod(t, l)}
	t.Run("nothing leaves", func(t *testing.T) { closed.Hold(t, l, list) })
	t.Run("every other protocol is refused and recorded", func(t *testing.T) { refused(t, l, list) })
}

//go:build linux

package containers

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"sallyport/test/closed"
	"sallyport/test/lab"
)

// network is the network namespace of a container.
func (e *engine) network(t *testing.T, id string) *lab.Namespace {
	t.Helper()
	pid, err := strconv.Atoi(e.docker(t, "inspect", "-f", "{{.State.Pid}}", id))
	if err != nil {
		t.Fatal(err)
	}
	return world.lab.NamespaceOf(t, pid)
}

// alone is a container without a network, and the gateway that will watch its
// engine.
func alone(t *testing.T, e *engine) *closed.Sandbox {
	t.Helper()
	policy := strings.Replace(ciPolicy, "labels =", "ipv6 = true\n  labels =", 1)
	g := world.lab.UnstartedGateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": world.lab.MustPolicy(t, policy, secretValue)},
		More: fmt.Sprintf("capture \"containers\" {\n  engine = %q\n  socket = %q\n}\n", e.kind, e.socket())})
	ns := e.network(t, e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci"))
	return closed.Of(g, closed.Sandbox{Capture: "without a network, " + e.kind, Name: "ci", NS: ns, Watch: world.lab.Watch(t), Rules: []*lab.Namespace{ns},
		From4: netip.MustParseAddr("127.0.0.1"), From6: netip.MustParseAddr("::1")})
}

// bridged is a container on a network of Docker, whose own resolver needs rules
// in the container that put fragments together.
func bridged(t *testing.T, e *engine, n int) *closed.Sandbox {
	t.Helper()
	b := unstartedBridge(t, e, n, "")
	ns := e.network(t, e.run(t, "--network", b.name(), "--ip", b.host(10)))
	return closed.Of(b.gateway, closed.Sandbox{Capture: "on a bridge", Name: "ci", NS: ns, Watch: world.lab.Watch(t), Rules: []*lab.Namespace{world.lab.GW},
		From4: netip.MustParseAddr(b.host(10)), From6: address6(t, ns), Open: true, Whole: true})
}

// address6 is what the engine gave the container.
func address6(t *testing.T, ns *lab.Namespace) netip.Addr {
	t.Helper()
	for _, a := range closed.Addresses(t, ns) {
		if a.Is6() && a.IsPrivate() {
			return a
		}
	}
	t.Fatal("the container has no address of IPv6")
	return netip.Addr{}
}

// TestNothingLeavesContainers: what becomes of the gateway of real containers.
func TestNothingLeavesContainers(t *testing.T) {
	closed.Hold(t, world.lab, []*closed.Sandbox{alone(t, world.engine), alone(t, world.podman), bridged(t, world.engine, 78)})
}

// TestEveryOtherProtocolOfContainers is refused and recorded.
func TestEveryOtherProtocolOfContainers(t *testing.T) {
	list := []*closed.Sandbox{alone(t, world.podman), bridged(t, world.engine, 79)}
	for _, s := range list {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		s.Served(t)
	}
	closed.Refused(t, list)
}

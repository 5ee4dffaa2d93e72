//go:build linux

package containers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// buildProber builds what runs in the containers.
func buildProber(t testing.TB) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "prober")
	cmd := exec.Command("go", "build", "-o", binary, "sallyport/test/containers/prober")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// TestPacketsThatAreNotTCPOrDNS: each kind is refused fast and recorded, with
// where it went and what it was; none gets out.
func TestPacketsThatAreNotTCPOrDNS(t *testing.T) {
	prober := buildProber(t)
	mount := []string{"-v", prober + ":/prober:ro", "--cap-add", "NET_RAW"}
	none := gatewayOf(t, world.engine, strings.Replace(ciPolicy, "labels =", "ipv6 = true\n  labels =", 1))
	n := bridge(t, world.engine, 77, "")
	alone := world.engine.run(t, append(mount, "--network", "none", "--label", "sallyport.sandbox=ci")...)
	attached(t, none, alone, 1)
	for name, c := range map[string]struct {
		id string
		g  *lab.Gateway
	}{
		"without a network": {alone, none},
		"on a bridge":       {n.container(t, 10, mount...), n.gateway},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := world.lab.Strays()
			if err != nil {
				t.Fatal(err)
			}
			out, err := world.engine.exec(c.id, "/prober", lab.Raw, lab.Origin6)
			if err != nil {
				t.Fatal(err)
			}
			fast(t, out)
			for _, want := range []struct{ proto, reason, dst string }{
				{"sctp", "proto_blocked", lab.Raw}, {"gre", "proto_blocked", lab.Raw}, {"esp", "proto_blocked", lab.Raw},
				{"proto-253", "proto_blocked", lab.Raw}, {"sctp", "proto_blocked", lab.Origin6}, {"udp", "udp_blocked", lab.Raw},
				{"", "", lab.Origin6}, {"udp", "udp_blocked", "239.1.2.3"}, {"udp", "quic_blocked", lab.Raw}, {"udp", "dot_blocked", lab.Raw},
			} {
				await(t, c.g, fmt.Sprintf("%+v in\n%s", want, out), func(e *audit.Event) bool {
					return e.Kind == audit.KindPacket && e.Dst != nil && e.Dst.IP == want.dst && e.Sandbox != nil && e.Sandbox.Name == "ci" &&
						(want.proto == "" || e.Proto == want.proto && e.Reason == want.reason)
				})
			}
			const datagrams = 20000
			if out, err := world.engine.exec(c.id, "/prober", lab.Spare, lab.Origin6, strconv.Itoa(datagrams)); err != nil {
				t.Fatalf("%s %v", out, err)
			}
			var counted uint64
			if !lab.Within(15*time.Second, func() bool { counted = flooded(c.g); return counted >= datagrams }) || counted != datagrams {
				t.Errorf("%d datagrams were sent and %d counted", datagrams, counted)
			}
			if records := len(c.g.Events(audit.Filter{Kind: "packet"})); records > 2000 {
				t.Errorf("%d records were written", records)
			}
			if after, err := world.lab.Strays(); err != nil || after != before {
				t.Errorf("%d packets reached the net: %v", after-before, err)
			}
		})
	}
}

// fast holds that what waits for an answer was refused within 200 ms.
func fast(t *testing.T, out string) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^(quic|dot): refused after (\d+) ms`).FindAllStringSubmatch(out, -1)
	if len(found) != 2 {
		t.Errorf("not refused:\n%s", out)
	}
	for _, f := range found {
		if ms, err := strconv.Atoi(f[2]); err != nil || ms > 200 {
			t.Errorf("%s was refused after %s ms", f[1], f[2])
		}
	}
}

// flooded is how many datagrams of the flood were recorded as the sandbox's.
// Those that the kernel counted and did not log have no address.
func flooded(g *lab.Gateway) uint64 {
	var n uint64
	for _, e := range g.Events(audit.Filter{Kind: "packet"}) {
		if e.Proto == "udp" && (e.Dst == nil || e.Dst.IP == lab.Spare) && e.Sandbox != nil && e.Sandbox.Name == "ci" {
			n += max(e.Count, 1)
		}
	}
	return n
}

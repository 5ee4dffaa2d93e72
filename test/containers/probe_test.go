//go:build linux

package containers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/test/lab"
)

// probePolicy has what the probe makes attempts of.
const probePolicy = `
secret "API_KEY" {
  hosts = ["good.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "ci" {
  ipv6 = true
  allow "good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "other.test" { addresses = DOCS }
  allow "plain.test" {
    schemes   = ["http"]
    addresses = DOCS
  }
}
`

// TestProbeOfContainers attacks a container of each engine from inside, as
// "sallyport probe --pid" does with the process that the engine names.
func TestProbeOfContainers(t *testing.T) {
	static := filepath.Join(t.TempDir(), "sallyport") // as released: a container has no libraries for it
	build := exec.Command("go", "build", "-o", static, "sallyport/cmd/sallyport")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v %s", err, out)
	}
	engines(t, func(t *testing.T, e *engine) {
		g := gatewayOf(t, e, probePolicy)
		id := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
		attached(t, g, id, 1)
		probed(t, g, static, e.docker(t, "inspect", "-f", "{{.State.Pid}}", id))
	})
}

// probed holds that every attempt ended as promised and has its record.
func probed(t *testing.T, g *lab.Gateway, program, pid string) {
	t.Helper()
	cmd := exec.Command(program, "probe", "--json", "--policy", g.PolicyDir(), "--state", g.State, "--sandbox", "ci", "--pid", pid)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := g.Lab.GW.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Errorf("probe: %v: %s", err, &stderr)
	}
	var reasons []string
	for dec := json.NewDecoder(strings.NewReader(stdout.String())); dec.More(); {
		var a struct {
			Title, Saw, Record, Reason string
			Held, OK                   bool
		}
		if err := dec.Decode(&a); err != nil {
			t.Fatalf("%v in\n%s", err, &stdout)
		}
		if !a.OK {
			t.Errorf("%s: held %v, saw %q, record %q %s", a.Title, a.Held, a.Saw, a.Record, a.Reason)
		}
		reasons = append(reasons, a.Reason)
	}
	for _, want := range []string{"authority_mismatch", "host_not_allowed", "icmp_blocked", "ip_literal", "placeholder_leak", "quic_blocked", "smuggling", "udp_blocked"} {
		if !slices.Contains(reasons, want) {
			t.Errorf("no attempt was refused as %s: %v", want, reasons)
		}
	}
}

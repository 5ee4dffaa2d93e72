//go:build linux

// Package e2e_test proves the promises of the product from outside: real
// namespaces, real clients, recording origins, as root and as an ordinary user.
package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// value is what the secret API_KEY stands for. No sandbox may ever see it.
const value = "REAL-5d1c7be09a42f3868e-value"

// world is what all tests share. TestMain sets it.
var world struct {
	lab   *lab.Lab
	probe string // a static program that is run in sandboxes
	tools string // its folder, which is shared with them
}

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set("6") // the tests mostly wait
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// A crash may leave a core file, as far as the test is concerned.
	all := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &all); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	world.lab, world.tools = l, filepath.Join(l.Dir, "tools")
	code := 1
	if err := buildProbe(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	} else {
		code = m.Run()
	}
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	return code
}

func buildProbe() error {
	world.probe = filepath.Join(world.tools, "probe")
	if err := os.Mkdir(world.tools, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", world.probe, "sallyport/test/e2e/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the probe: %w\n%s", err, out)
	}
	return nil
}

// begin marks a test as one that runs beside others and holds, at its end,
// that nothing reached the net past the gateway.
func begin(t *testing.T) *lab.Lab {
	t.Helper()
	t.Parallel()
	return alone(t)
}

// alone is begin for a test that must not run beside others.
func alone(t *testing.T) *lab.Lab {
	t.Helper()
	t.Cleanup(func() {
		if n, err := world.lab.Strays(); n != 0 || err != nil {
			t.Errorf("%d packets reached the net past the gateway (%v)", n, err)
		}
	})
	return world.lab
}

// users are those under whom everything is run.
func users() map[string]int { return map[string]int{"root": 0, "nobody": lab.Nobody} }

// fill writes the networks of the lab into a policy.
func fill(text string) string { return strings.ReplaceAll(text, "DOCS", lab.Documentation) }

// one is a policy of one file.
func one(text string) map[string]string { return map[string]string{"p.hcl": fill(text)} }

// keyed is a policy under which sandbox "dev" may speak HTTPS with every name
// below domain and send API_KEY there.
func keyed(domain string) string {
	return fill(`
secret "API_KEY" {
  hosts = ["*.` + domain + `"]
  source "env" { name = "REAL_KEY" }
}
sandbox "dev" {
  allow "*.` + domain + `" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`)
}

// withKey describes a run under the policy text as uid.
func withKey(uid int, policy string, argv ...string) lab.RunOptions {
	return lab.RunOptions{UID: uid, Policy: policy, Sandbox: "dev", Argv: argv,
		Flags: []string{"--share", world.tools, "--quiet"}, Env: []string{"REAL_KEY=" + value}}
}

// origin is the log of a name.
func origin(name string) *lab.Vhost { return world.lab.Origins.Host(name) }

// silent holds that nothing came for the names.
func silent(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if v := origin(n); !v.Silent() {
			t.Errorf("%s received %q", n, v.Raw())
		}
	}
}

// patience is how long a machine that is busy may take for what has no bound.
const patience = 30 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reasons lists the reasons of denials.
func reasons(events []*audit.Event) []string {
	var out []string
	for _, e := range events {
		if e.Phase == audit.PhaseDecision && e.Verdict == "deny" {
			out = append(out, e.Reason)
		}
	}
	return out
}

// has says whether a decision of that line is among events.
func has(events []*audit.Event, line string) bool {
	return slices.ContainsFunc(events, func(e *audit.Event) bool { return e.Phase == audit.PhaseDecision && lab.Line(e) == line })
}

// verified holds that the chain of a log is whole.
func verified(t *testing.T, dir string) audit.Report {
	t.Helper()
	r, err := audit.Verify(dir)
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	return r
}

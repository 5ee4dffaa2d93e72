//go:build linux

package proxy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/test/lab"
)

const probePolicy = `
secret "API_KEY" {
  hosts = ["good.test"]
  source "env" { name = "REAL_KEY" }
}
sandbox "SANDBOX" {
  ipv6 = true
  MATCH
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
sandbox "neighbour" {
  match { cidrs = ["10.66.250.0/24"] }
}
`

// attempt is one line of the probe.
type attempt struct {
	Promise, Title, Saw, Record, Reason string
	Held, OK                            bool
}

// probe attacks a sandbox and returns what came of it.
func probe(t *testing.T, g *lab.Gateway, args ...string) []attempt {
	t.Helper()
	return probeWith(t, g.Lab.Binary, g, args...)
}

func probeWith(t *testing.T, binary string, g *lab.Gateway, args ...string) []attempt {
	t.Helper()
	args = append([]string{"probe", "--json", "--policy", g.PolicyDir(), "--state", g.State}, args...)
	var stderr strings.Builder
	cmd := exec.Command(binary, args...)
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "REAL_KEY="+value)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Lab.GW.Start(cmd); err != nil {
		t.Fatal(err)
	}
	var list []attempt
	for dec := json.NewDecoder(out); dec.More(); {
		var a attempt
		if err := dec.Decode(&a); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	err = cmd.Wait()
	for _, a := range list {
		if !a.OK {
			t.Errorf("%s: held %v, saw %q, record %q %s", a.Title, a.Held, a.Saw, a.Record, a.Reason)
		}
	}
	if err != nil || len(list) < 10 {
		t.Errorf("%d attempts, %v: %s", len(list), err, &stderr)
	}
	return list
}

// reasons of attempts, without repeats.
func reasons(list []attempt) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.Reason)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func fill(sandbox, match string) string {
	return strings.NewReplacer("DOCS", lab.Documentation, "SANDBOX", sandbox, "MATCH", match).Replace(probePolicy)
}

// TestProbeOfEveryCapture attacks a sandbox of each kind of capture from
// inside: everything holds and everything has its record.
func TestProbeOfEveryCapture(t *testing.T) {
	l := lab.New(t)
	want := []string{"authority_mismatch", "host_not_allowed", "icmp_blocked", "ip_literal", "placeholder_leak", "quic_blocked", "smuggling", "udp_blocked"}
	holds := func(t *testing.T, list []attempt, want ...string) {
		t.Helper()
		got := reasons(list)
		for _, r := range want {
			if !slices.Contains(got, r) {
				t.Errorf("no attempt was refused as %s: %v", r, got)
			}
		}
	}
	t.Run("netns", func(t *testing.T) {
		g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": fill("ci", "")}, Env: []string{"REAL_KEY=" + value}})
		s := g.Attach(t, "ci")
		holds(t, probe(t, g, "--sandbox", "ci", "--netns", s.NS.Path()), want...)
	})
	t.Run("interface", func(t *testing.T) {
		const n = 77
		g := l.Gateway(t, lab.GatewayOptions{Interfaces: []string{fmt.Sprintf("sb%d", n)}, Env: []string{"REAL_KEY=" + value},
			Policy: map[string]string{"p.hcl": fill("if", fmt.Sprintf(`match { cidrs = ["10.66.%d.0/24", "fd66:%d::/64"] }`, n, n))}})
		s := g.Interface(t, "if", n)
		holds(t, probe(t, g, "--sandbox", "if", "--netns", s.NS.Path()), want...)
	})
	t.Run("container", func(t *testing.T) {
		g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": fill("box", "")}, Env: []string{"REAL_KEY=" + value}})
		pid := container(t, l)
		attach := exec.Command(l.Binary, "sandbox", "attach", "--socket", g.Socket(), "--sandbox", "box", "--pid", fmt.Sprint(pid))
		if out, err := attach.CombinedOutput(); err != nil {
			t.Fatalf("attach: %v %s", err, out)
		}
		static := filepath.Join(t.TempDir(), "sallyport") // as released: a container has no libraries for it
		build := exec.Command("go", "build", "-o", static, "sallyport/cmd/sallyport")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v %s", err, out)
		}
		holds(t, probeWith(t, static, g, "--sandbox", "box", "--pid", fmt.Sprint(pid)), want...)
	})
	t.Run("proxy", func(t *testing.T) {
		g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": fill("ci", "")}, Env: []string{"REAL_KEY=" + value},
			More: fmt.Sprintf("capture \"proxy\" { listen = %q }\n", anyProxy)})
		holds(t, probe(t, g, "--sandbox", "ci", "--proxy", anyProxy), "authority_mismatch", "connect_refused", "dot_blocked", "host_not_allowed",
			"ip_literal", "placeholder_leak", "port_not_allowed", "scheme_not_allowed", "smuggling", "udp_blocked", "unknown_sandbox")
	})
	t.Run("what has no record is told", func(t *testing.T) {
		lonely, err := l.Namespace(l.Unique("lonely"))
		if err != nil {
			t.Fatal(err)
		}
		g := l.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": fill("ci", "")}, Env: []string{"REAL_KEY=" + value}})
		cmd := exec.Command(l.Binary, "probe", "--policy", g.PolicyDir(), "--state", g.State, "--sandbox", "ci", "--netns", lonely.Path())
		cmd.Env = append(os.Environ(), "REAL_KEY="+value)
		out, err := cmd.CombinedOutput() // in a namespace that nobody serves
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "did not end as promised") || !strings.Contains(string(out), "sandbox attach") {
			t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), out)
		}
	})
}

// container starts a process in namespaces and a root of its own, as a
// container engine does, and returns its ID.
func container(t *testing.T, l *lab.Lab) int {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"proc", "bin", "etc", "old"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: run test/deps.sh", err)
	}
	b, err := os.ReadFile(busybox)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "bin", "busybox"), b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	const script = `mount --make-rprivate / && mount --bind "$1" "$1" && cd "$1" && pivot_root . old &&
exec /bin/busybox sh -c '/bin/busybox mount -t proc proc /proc && /bin/busybox umount -l /old && echo up && exec /bin/busybox sleep 300'`
	cmd := exec.Command("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; "+script, "sh", root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.GW.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // ends with its namespace
		_ = cmd.Wait()
	})
	up := make(chan struct{})
	go func() {
		_, _ = out.Read(make([]byte, 8))
		close(up)
	}()
	select {
	case <-up:
	case <-time.After(10 * time.Second):
		t.Fatal("the container does not start")
	}
	return cmd.Process.Pid
}

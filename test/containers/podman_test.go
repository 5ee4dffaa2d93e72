//go:build linux

package containers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/test/lab"
)

// startPodman starts Podman's service, which answers as Docker does, with
// folders of its own.
func startPodman(l *lab.Lab, flags ...string) (*engine, error) {
	return (&engine{lab: l, kind: "podman", flags: flags}).begin()
}

// podmanConf is what differs from Podman's defaults: nothing of systemd, and no
// limit higher than a machine's own, which it takes privilege to exceed. (4.3
// gives the soft limit as the hard one: they are the same here.)
const podmanConf = `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
`

// podman is the command line of Podman's service.
func (e *engine) podman() (argv, env []string, err error) {
	program, err := exec.LookPath("podman")
	if err != nil {
		return nil, nil, errors.New("podman is missing: these tests need Debian's package podman")
	}
	conf := filepath.Join(e.dir, "containers.conf")
	if err := os.WriteFile(conf, []byte(podmanConf), 0o600); err != nil {
		return nil, nil, err
	}
	argv = []string{program, "--root", filepath.Join(e.dir, "data"), "--runroot", filepath.Join(e.dir, "run"),
		"--tmpdir", filepath.Join(e.dir, "tmp"), "--storage-driver", "vfs"}
	return append(argv, "system", "service", "--time", "0", "unix://"+e.socket()), []string{"CONTAINERS_CONF=" + conf}, nil
}

// podmanHere runs Podman itself, past its service.
func (e *engine) podmanHere(args ...string) (string, error) {
	argv, env, err := e.podman()
	if err != nil {
		return "", err
	}
	argv = argv[:slices.Index(argv, "system")]
	cmd := exec.Command(argv[0], append(append(argv[1:], e.flags...), args...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestPodmanServiceEnds: Podman's containers run on without its service, and so
// do their sandboxes; what happened meanwhile is noticed when it is back.
func TestPodmanServiceEnds(t *testing.T) {
	e := ownPodman(t)
	g := gatewayOf(t, e, ciPolicy)
	labelled := []string{"run", "-d", "--network", "none", "--label", "sallyport.sandbox=ci", image, "/bin/sleep", "3600"}
	stays := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
	stops := e.run(t, "--network", "none", "--label", "sallyport.sandbox=ci")
	first := attached(t, g, stays, 1).Sandbox.ID
	gone := attached(t, g, stops, 1).Sandbox.ID
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := e.podmanHere("exec", stays, "/bin/curl", "-s", "-m", "5", "http://sallyport.internal/ca.pem"); err != nil || !strings.Contains(out, "BEGIN") {
		t.Errorf("without the engine's service: %q %v", out, err)
	}
	if out, err := e.podmanHere("kill", stops); err != nil {
		t.Fatalf("kill: %s", out)
	}
	out, err := e.podmanHere(labelled...)
	if err != nil {
		t.Fatalf("run: %s", out)
	}
	comes := strings.TrimSpace(out)
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	attached(t, g, comes, 1)
	await(t, g, "end of what stopped", func(v *audit.Event) bool {
		return v.Sandbox != nil && v.Sandbox.ID == gone && v.Message == "container stopped"
	})
	if l := lives(g, stays); len(l) != 1 || l[0].Sandbox.ID != first {
		t.Errorf("what ran on had %d lives", len(l))
	}
}

// TestPodmanHooks: with the hooks of the examples a container of Podman has its
// network at its first instruction, with and without the label; it is one
// sandbox, and ends with the container.
func TestPodmanHooks(t *testing.T) {
	dir := t.TempDir()
	e := ownPodman(t, "--hooks-dir", dir)
	g := gatewayOf(t, e, ciPolicy)
	for _, name := range []string{"sallyport-attach.json", "sallyport-detach.json"} {
		b, err := os.ReadFile(filepath.Join(hooks, name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), "/usr/bin/sallyport", world.lab.Binary)
		text = strings.ReplaceAll(text, `"--oci"`, fmt.Sprintf(`"--oci", "--socket", %q`, g.Socket()))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := []string{"run", "--network", "none", "--annotation"}
	for n, args := range [][]string{{"sallyport.sandbox=ci"}, {"sallyport.sandbox=ci", "--label", "sallyport.sandbox=ci"}} {
		out, err := e.podmanHere(append(append(append(run, args...), "--rm", image), once()...)...)
		if err != nil || !strings.Contains(out, "BEGIN CERTIFICATE") {
			t.Fatalf("first instruction: %q %v\n%s", out, err, g.Stderr())
		}
		ids := attachedIDs(g, n+1)
		if len(ids) != n+1 {
			t.Fatalf("%d containers were the sandboxes %q", n+1, ids)
		}
		await(t, g, "end", func(v *audit.Event) bool {
			return v.Sandbox != nil && v.Sandbox.ID == ids[n] && (v.Message == "detached" || v.Message == "container stopped")
		})
	}
	if out, err := e.podmanHere(append(append(run, "sallyport.sandbox=nobody", "--rm", image), once()...)...); err == nil {
		t.Errorf("unknown sandbox: %q", out)
	}
}

// ownPodman starts an engine for one test.
func ownPodman(t *testing.T, flags ...string) *engine {
	t.Helper()
	e, err := startPodman(world.lab, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

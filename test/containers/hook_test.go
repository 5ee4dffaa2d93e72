//go:build linux

package containers

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/test/lab"
)

const hooks = "../../examples/oci-hook"

// once is what a container does as its first instruction, without a second
// try.
func once() []string {
	return []string{"/bin/curl", "-s", "-m", "5", "http://sallyport.internal/ca.pem"}
}

// TestRuntimeAttachesFirst: with the runtime of the examples a container's
// first instruction has its network, and one that cannot be attached does not
// start.
func TestRuntimeAttachesFirst(t *testing.T) {
	e, g := hooked(t, world.lab.Binary)
	args := []string{"run", "--runtime", "sallyport", "--network", "none", "--label"}
	for range 3 {
		out, err := e.try(append(append(args, "sallyport.sandbox=ci", "--rm", image), once()...)...)
		if err != nil || !strings.Contains(out, "BEGIN CERTIFICATE") {
			t.Errorf("first instruction: %q %v", out, err)
		}
	}
	for _, id := range attachedIDs(g, 3) {
		await(t, g, "end of "+id, func(e *audit.Event) bool {
			return e.Sandbox != nil && e.Sandbox.ID == id && e.Message == "container stopped"
		})
	}
	out, err := e.try(append(append(args, "sallyport.sandbox=nobody", "--name", "refused", image), once()...)...)
	if err == nil || !strings.Contains(err.Error(), "no sandbox 'nobody'") {
		t.Errorf("unknown sandbox: %q %v", out, err)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := e.try(append(append(args, "sallyport.sandbox=ci", image), once()...)...); err == nil {
		t.Errorf("without a gateway it started: %s", out)
	}
}

// attachedIDs are the sandboxes that were attached, of which at least n are
// waited for.
func attachedIDs(g *lab.Gateway, n int) (ids []string) {
	lab.Within(patience, func() bool {
		ids = nil
		for _, e := range g.Events(audit.Filter{Kind: "sandbox"}) {
			if e.Sandbox != nil && strings.HasPrefix(e.Message, "attached") {
				ids = append(ids, e.Sandbox.ID)
			}
		}
		return len(ids) >= n
	})
	return ids
}

// hookFile is a hook of Podman and CRI-O.
type hookFile struct {
	Hook struct {
		Path string
		Args []string
	}
	When   struct{ Annotations map[string]string }
	Stages []string
}

// readHook reads a hook of the examples and points it at the gateway under
// test.
func readHook(t testing.TB, g *lab.Gateway, name string) (hookFile, map[string]any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(hooks, name))
	if err != nil {
		t.Fatal(err)
	}
	var h hookFile
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&h); err != nil {
		t.Fatal(err)
	}
	return h, map[string]any{"path": g.Lab.Binary, "args": append(h.Hook.Args, "--socket", g.Socket())}
}

// TestHooksOfTheExamples: runc, with the hooks of the examples, attaches a
// container before its first instruction and ends its sandbox after it; no
// engine is needed.
func TestHooksOfTheExamples(t *testing.T) {
	text := world.lab.MustPolicy(t, ciPolicy, secretValue)
	g := world.lab.Gateway(t, lab.GatewayOptions{Policy: map[string]string{"p.hcl": text}})
	attach, create := readHook(t, g, "sallyport-attach.json")
	detach, stop := readHook(t, g, "sallyport-detach.json")
	if strings.Join(attach.Stages, "") != "createRuntime" || strings.Join(detach.Stages, "") != "poststop" {
		t.Fatalf("stages %q and %q", attach.Stages, detach.Stages)
	}
	for name, c := range map[string]struct {
		sandbox string
		ok      bool
	}{"a sandbox of the policy": {"ci", true}, "unknown": {"nobody", false}} {
		t.Run(name, func(t *testing.T) {
			out, err := runBundle(t, c.sandbox, map[string]any{"createRuntime": []any{create}, "poststop": []any{stop}})
			if got := err == nil && strings.Contains(out, "BEGIN CERTIFICATE"); got != c.ok {
				t.Errorf("%q %v", out, err)
			}
		})
	}
	ids := attachedIDs(g, 1)
	if len(ids) != 1 {
		t.Fatalf("attached: %q", ids)
	}
	await(t, g, "end", func(e *audit.Event) bool {
		return e.Sandbox != nil && e.Sandbox.ID == ids[0] && e.Message == "detached"
	})
}

// runBundle runs once() with runc, in a bundle of the image's files.
func runBundle(t testing.TB, sandbox string, hooks map[string]any) (string, error) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil {
		runc = "/usr/sbin/runc"
	}
	dir := t.TempDir()
	if err := unpack(filepath.Join(dir, "rootfs")); err != nil {
		t.Fatal(err)
	}
	spec := exec.Command(runc, "spec")
	spec.Dir = dir
	if out, err := spec.CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v: %s", err, out)
	}
	file := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	process := config["process"].(map[string]any)
	process["terminal"], process["args"] = false, once()
	config["hooks"], config["annotations"] = hooks, map[string]string{"sallyport.sandbox": sandbox}
	if b, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	// resolv.conf of the image: any resolver will do.
	if err := os.MkdirAll(filepath.Join(dir, "rootfs/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rootfs/etc/resolv.conf"), []byte("nameserver 192.0.2.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(runc, "--root", filepath.Join(dir, "state"), "run", "--bundle", dir, world.lab.Unique("sp-hook-"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// unpack writes the image's files to a folder.
func unpack(dir string) error {
	var b bytes.Buffer
	if err := rootfs(&b); err != nil {
		return err
	}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, content, 0o755)
			}
		}
		if err != nil {
			return err
		}
	}
}

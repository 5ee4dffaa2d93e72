package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/policy"
)

// pushedAt is a daemon in dir whose policy is pushed.
func pushedAt(t *testing.T, dir string) (d *daemonProcess, stop func()) {
	t.Helper()
	file := &daemonFile{Push: true, Control: &controlBlock{Socket: filepath.Join(dir, "c.sock")}}
	s := settings{state: filepath.Join(dir, "state"), own: filepath.Join(dir, "state"), log: hclog.NewNullLogger()}
	push, err := file.pushed(&s)
	if err != nil {
		t.Fatal(err)
	}
	st, err := build(s)
	if err != nil {
		t.Fatal(err)
	}
	d = &daemonProcess{stack: st, file: file, runtime: dir, push: push}
	if err := d.origin(); err != nil {
		t.Fatal(err)
	}
	if diags := st.reload(); diags.HasErrors() {
		t.Fatal(diags.Err())
	}
	d.captures.st, d.captures.runtime, d.captures.open = st, dir, map[string]*openCapture{}
	if err := d.openControl(); err != nil {
		t.Fatal(err)
	}
	served := background(hclog.NewNullLogger(), "control", d.control.serve)
	return d, func() {
		served()
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

func apply(t *testing.T, d *daemonProcess, in apiApply) (code int, out apiApplied, failed apiError) {
	t.Helper()
	var both struct {
		apiApplied
		apiError
		Generation uint64 `json:"generation"`
	}
	code = ask(t, d, http.MethodPost, "/v1/policy/apply", in, &both)
	both.apiApplied.Generation, both.apiError.Generation = both.Generation, both.Generation
	return code, both.apiApplied, both.apiError
}

func generation(n uint64) *uint64 { return &n }

// TestPolicyIsPushed puts policies in force over the control socket, refuses
// what is not to be, and starts again.
func TestPolicyIsPushed(t *testing.T) {
	dir := t.TempDir()
	d, stop := pushedAt(t, dir)
	if set := d.gateway.Policy(); set.Generation() != 1 || len(set.Sandboxes()) != 0 {
		t.Fatalf("before the first push: generation %d, sandboxes %q", set.Generation(), set.Sandboxes())
	}
	one := map[string]string{"policy.d/ci.hcl": "sandbox \"ci\" {\n  allow \"one.test\" {}\n}\n"}
	two := map[string]string{"ci.hcl": "sandbox \"ci\" {\n  allow \"one.test\" {}\n  allow \"two.test\" {}\n}\n"}
	code, out, _ := apply(t, d, apiApply{Files: one, CheckGeneration: generation(1), Commit: "abc123"})
	if code != http.StatusOK || !out.Applied || out.Generation != 2 || out.Widenings != 1 || d.gateway.Policy().Sandbox("ci") == nil {
		t.Fatalf("first push: %d %+v", code, out)
	}
	code, _, failed := apply(t, d, apiApply{Files: two, CheckGeneration: generation(1)})
	if code != http.StatusConflict || failed.Generation != 2 {
		t.Errorf("a generation that has passed: %d %+v", code, failed)
	}
	if code, out, _ = apply(t, d, apiApply{Files: two, RefuseWidenings: true}); code != http.StatusOK || out.Applied || out.Widenings != 1 {
		t.Errorf("a widening: %d %+v", code, out)
	}
	for name, files := range map[string]map[string]string{
		"a broken file": {"ci.hcl": "sandbox \"ci\" {\n  allow \"**\" {}\n}\n"},
		// Only when its sources are opened does it show.
		"a broken source": {"ci.hcl": "sandbox \"ci\" {\n  allow \"one.test\" { inject = [\"API_KEY\"] }\n}\nsecret \"API_KEY\" {\n  hosts       = [\"one.test\"]\n  placeholder = \"{rand:1}\"\n  source \"env\" { name = \"X\" }\n}\n"},
	} {
		if code, _, failed = apply(t, d, apiApply{Files: files}); code != http.StatusUnprocessableEntity || len(failed.Diagnostics) == 0 {
			t.Errorf("%s: %d %+v", name, code, failed)
		}
	}
	if n := recordedRefusals(t, filepath.Join(dir, "state", "audit")); n != 2 {
		t.Errorf("%d refusals of a policy are on record, want 2", n)
	}
	for name, in := range map[string]apiApply{
		"a test file": {Files: map[string]string{"ci_test.hcl": ""}},
		"a hidden":    {Files: map[string]string{".x.hcl": ""}},
		"no policy":   {Files: map[string]string{"ci.txt": ""}},
		"one name":    {Files: map[string]string{"a/ci.hcl": "locals {}", "b/ci.hcl": "locals {}"}},
		"a commit":    {Files: one, Commit: "../x"},
	} {
		if code, _, _ = apply(t, d, in); code != http.StatusBadRequest {
			t.Errorf("%s: %d", name, code)
		}
	}
	inForce := func(name string) {
		t.Helper()
		var p apiPolicy
		var r apiReady
		if ask(t, d, http.MethodGet, "/v1/policy", nil, &p); p.Generation != 2 || p.Commit != "abc123" || p.Changed || len(p.Files) != 1 {
			t.Errorf("%s: %+v", name, p)
		}
		if ask(t, d, http.MethodGet, "/readyz", nil, &r); r.Policy.Generation != 2 || r.Policy.Commit != "abc123" || r.Policy.SHA256 != p.SHA256 {
			t.Errorf("%s: ready %+v", name, r)
		}
		if f := d.gateway.Policy().CheckNarrowing("ci", policy.NarrowingSpec{Only: []string{"two.test"}}, d.gateway.Now()); f == nil {
			t.Errorf("%s: what was refused is in force", name)
		}
	}
	inForce("after what was refused")
	stop()
	d, stop = pushedAt(t, dir)
	defer stop()
	inForce("after a restart")
	if !recordedCommit(t, filepath.Join(dir, "state", "audit"), "abc123") {
		t.Error("no record of the policy has its commit")
	}
	if err := os.WriteFile(filepath.Join(currentOf(d.push.into), "ci.hcl"), []byte("no policy"), 0o600); err != nil {
		t.Fatal(err)
	}
	var p apiPolicy
	if ask(t, d, http.MethodGet, "/v1/policy", nil, &p); !p.Changed {
		t.Error("a file that is not what is in force is shown for it")
	}
}

// recordedRefusals counts the records of policies that were not taken.
func recordedRefusals(t *testing.T, dir string) (n int) {
	t.Helper()
	for e, err := range audit.Read(t.Context(), []string{dir}, audit.Filter{Kind: string(audit.KindPolicy)}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Severity == audit.High && e.Error != nil {
			n++
		}
	}
	return n
}

func recordedCommit(t *testing.T, dir, commit string) bool {
	t.Helper()
	for e, err := range audit.Read(context.Background(), []string{dir}, audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == audit.KindPolicy && e.Policy != nil && e.Policy.Commit == commit {
			return true
		}
	}
	return false
}

// TestPolicyIsNotPushed: where the policy comes from files, a push is refused
// and says what to do.
func TestPolicyIsNotPushed(t *testing.T) {
	d, stop := daemonAt(t, t.TempDir())
	defer stop()
	code, _, failed := apply(t, d, apiApply{Files: map[string]string{"ci.hcl": narrowPolicy}})
	if code != http.StatusConflict || !strings.Contains(failed.Error, "policy_push = true") || !strings.Contains(failed.Error, "policy.hcl") {
		t.Errorf("%d %+v", code, failed)
	}
	for _, f := range []*daemonFile{{Push: true, Git: &gitPolicyBlock{}}, {Push: true, Policy: []string{"x"}}} {
		if _, err := f.pushed(&settings{policy: f.Policy}); err == nil {
			t.Error("two ways to name a policy are taken")
		}
	}
}

// TestPolicyPushKeepsCount: a number that stands for no generation stops the
// start.
func TestPolicyPushKeepsCount(t *testing.T) {
	p := &pushedPolicy{into: t.TempDir()}
	if n, err := p.generation(); n != 0 || err != nil {
		t.Error(n, err)
	}
	if err := p.note(41); err != nil {
		t.Fatal(err)
	}
	if n, err := p.generation(); n != 41 || err != nil {
		t.Error(n, err)
	}
	if err := os.WriteFile(filepath.Join(p.into, generationFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemonProcess{stack: &stack{}, push: p}
	if err := d.origin(); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestPushedPolicyIsLoadedOnce: the generation that a push is answered with
// stays the one in force, also where the daemon watches the files of its
// policy.
func TestPushedPolicyIsLoadedOnce(t *testing.T) {
	d, stop := pushedAt(t, t.TempDir())
	defer stop()
	defer background(hclog.NewNullLogger(), "reload", func(ctx context.Context) error { return d.watch(ctx, nil) })()
	for n := range uint64(3) {
		text := fmt.Sprintf("sandbox \"ci\" {\n  allow \"a%d.test\" {}\n}\n", n)
		code, out, failed := apply(t, d, apiApply{Files: map[string]string{"policy.hcl": text}, CheckGeneration: generation(n + 1)})
		if code != http.StatusOK || out.Generation != n+2 {
			t.Fatalf("push %d: %d, generation %d, %+v", n, code, out.Generation, failed)
		}
		time.Sleep(2 * settle)
		if now := d.gateway.Policy().Generation(); now != n+2 {
			t.Errorf("generation %d is in force, and the push was told %d", now, n+2)
		}
	}
}

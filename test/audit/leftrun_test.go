//go:build linux

package audit_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sallyport/audit"
	"sallyport/test/lab"
)

// TestKilledRunOwesItsNotices: what a run that was killed could not deliver is
// delivered under the same policy, and once.
func TestKilledRunOwesItsNotices(t *testing.T) {
	l := begin(t)
	dir := t.TempDir()
	down, out := filepath.Join(dir, "down"), filepath.Join(dir, "out")
	must(t, writeFile(down, ""))
	policy := denied(fmt.Sprintf(`exec { command = ["/bin/sh", "-c", "test ! -e %s && cat >> %s"] }`, down, out), "")["p.hcl"]
	b := l.Begin(t, lab.RunOptions{Policy: policy, Sandbox: "dev", Argv: []string{"sh", "-c", "getent hosts evil.test; sleep 1000"}})
	logs := []string{filepath.Join(b.State, "runs", "*", "audit")}
	failed := func() bool {
		for e, err := range audit.Read(t.Context(), logs, audit.Filter{Kind: "audit"}) {
			if err == nil && e.Note != nil && e.Note.Action == audit.ActionUndelivered {
				return true
			}
		}
		return false
	}
	eventually(t, "a delivery that fails", failed)
	must(t, b.Kill(syscall.SIGKILL))
	b.Wait(t)
	must(t, os.Remove(down))

	deliver := func(file string) string {
		t.Helper()
		text, err := exec.Command(l.Binary, "alert", "deliver", "--policy", file, "--state", b.State).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return string(text)
	}
	other := filepath.Join(dir, "other.hcl")
	must(t, writeFile(other, policy))
	if s := deliver(other); !strings.Contains(s, "finished: 0") {
		t.Errorf("under another policy: %s", s)
	}
	own := filepath.Join(filepath.Dir(b.Dir()), "policy.hcl")
	if s := deliver(own); !strings.Contains(s, "finished: 1") {
		t.Errorf("under its own: %s", s)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), `"name":"denied"`) || !strings.Contains(string(text), "evil.test") {
		t.Errorf("delivered: %s (%v)", text, err)
	}
	if s := deliver(own); !strings.Contains(s, "finished: 0") {
		t.Errorf("again: %s", s)
	}
	for _, log := range logs {
		m, err := filepath.Glob(log)
		must(t, err)
		for _, dir := range m {
			chained(t, dir)
		}
	}
}

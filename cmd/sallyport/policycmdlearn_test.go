package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/policy"
)

// TestLearnedFileIsWrittenWhole: what was in the file stays when nothing was
// learned, and what cannot be written is said before the command runs.
func TestLearnedFileIsWrittenWhole(t *testing.T) {
	dir := t.TempDir()
	f := learnFlags{out: filepath.Join(dir, "learned.hcl")}
	if err := os.WriteFile(f.out, []byte("# of before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	doc := policy.Document{Sandboxes: []policy.Sandbox{{Name: "learned"}}}
	learn := func(list ...policy.Blocked) string {
		t.Helper()
		out, err := f.openOut()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.write(doc, list, out); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(out.Name()) // as after a run
		text, err := os.ReadFile(f.out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if text := learn(); text != "# of before\n" {
		t.Errorf("nothing was learned, and the file is now %q", text)
	}
	asked := policy.Blocked{Sandbox: "learned", Reason: policy.HostNotAllowed, Host: "api.test", Port: 443, Scheme: policy.HTTPS, Method: "GET", Path: "/v1"}
	if text := learn(asked); !strings.Contains(text, `allow "api.test"`) {
		t.Errorf("the file is %q", text)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
	for _, out := range []string{filepath.Join(dir, "none", "x.hcl"), dir} {
		f.out = out
		if _, err := f.openOut(); err == nil || !strings.Contains(err.Error(), out) {
			t.Errorf("--out %s: %v", out, err)
		}
	}
}

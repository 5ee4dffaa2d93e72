package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/gateway"
	"sallyport/gateway/inject"
)

// TestReloadForgetsNoValue: whatever a reload does to the text of a policy or
// to its secrets, a value that was held before is masked in the answers of the
// hosts that it was for, and refused where it is sent. What has only moved in
// its file is not fetched again.
func TestReloadForgetsNoValue(t *testing.T) {
	dir := t.TempDir()
	file, count := filepath.Join(dir, "policy.hcl"), filepath.Join(dir, "count")
	// Each run prints another value.
	secret := `secret "KEY" {
  hosts = ["a.test"]
  ttl   = "50m"
  source "exec" { command = ["/bin/sh", "-c", "echo x >> COUNT; echo REAL-minted-$(wc -l < COUNT | tr -d ' ')-8d0f7719ac"] }
}
`
	secret = strings.ReplaceAll(secret, "COUNT", count)
	const other = "secret \"OTHER\" {\n  hosts = [\"b.test\"]\n  source \"env\" { name = \"OTHER\" }\n}\n"
	const box = "sandbox \"ci\" {\n  allow \"a.test\" { inject = [\"KEY\"] }\n}\n"
	t.Setenv("OTHER", "REAL-other-0d44c1b95f")
	l := &loader{paths: []string{file}, key: make([]byte, 32), log: hclog.NewNullLogger()}
	t.Cleanup(l.close)
	load := func(text string) *gateway.Snapshot {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		snap, diags := l.load()
		if diags.HasErrors() {
			t.Fatal(diags.Err())
		}
		return snap
	}
	known := func(snap *gateway.Snapshot, value string) {
		t.Helper()
		g := inject.NewGuard(l.past.Held())
		sent, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://other.test/?q="+value, nil)
		if err != nil {
			t.Fatal(err)
		}
		if g.Request(sent) == nil {
			t.Errorf("%s may be sent", value)
		}
		if m := g.Masker(snap.Inject.Covered("a.test"), nil); m == nil || m.Text(value, func(string) {}) == value {
			t.Errorf("%s is not masked in answers of its host", value)
		}
		if m := g.Masker(snap.Inject.Covered("b.test"), nil); m != nil && m.Text(value, func(string) {}) != value {
			t.Errorf("%s is masked in answers of another host", value)
		}
	}
	use := func(snap *gateway.Snapshot, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		if err := snap.Secrets.Check(ctx, "KEY"); err != nil {
			t.Fatal(err)
		}
		known(snap, want)
	}
	one, two, three := "REAL-minted-1-8d0f7719ac", "REAL-minted-2-8d0f7719ac", "REAL-minted-3-8d0f7719ac"
	first := load(secret + box)
	use(first, one)
	use(first, two) // a former value of the same store

	moved := load("# a comment\n\n" + secret + box)
	if moved.Secrets != first.Secrets {
		t.Error("a comment before a secret takes its value away")
	}
	known(moved, one)
	known(moved, two)

	added := load(secret + other + box)
	known(added, one)
	known(added, two)
	use(added, three)

	elsewhere := load(strings.Replace(secret, "a.test", "c.test", 1) + strings.ReplaceAll(box, "a.test", "c.test"))
	known(elsewhere, three)

	removed := load("sandbox \"ci\" {\n  allow \"a.test\" {}\n}\n")
	for _, value := range []string{one, two, three} {
		known(removed, value)
	}
	known(load("# once more\nsandbox \"ci\" {\n  allow \"a.test\" {}\n}\n"), three)
}

// TestFormerSecretsEnd: what has left the policy is not covered for ever.
func TestFormerSecretsEnd(t *testing.T) {
	l := &loader{paths: []string{filepath.Join(t.TempDir(), "policy.hcl")}, key: make([]byte, 32), log: hclog.NewNullLogger()}
	t.Cleanup(l.close)
	load := func(hosts string) {
		t.Helper()
		text := "secret \"KEY\" {\n  hosts = [" + hosts + "]\n  source \"env\" { name = \"KEY\" }\n}\n"
		if err := os.WriteFile(l.paths[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, diags := l.load(); diags.HasErrors() {
			t.Fatal(diags.Err())
		}
	}
	for range 3 { // to and fro
		load(`"a.test"`)
		load(`"b.test", "*.b.test"`)
	}
	if len(l.former) != 2 {
		t.Errorf("%d former secrets, want 2: %v", len(l.former), l.former)
	}
	if left := l.former.next(l.declared, l.declared, time.Now().Add(keepFor+2*retireAfter)); len(left) != 0 {
		t.Errorf("after their time: %v", left)
	}
}

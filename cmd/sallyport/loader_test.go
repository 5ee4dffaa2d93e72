package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/policy"
)

// TestALoadHoldsNothingUp holds that what a sandbox's own files are made from
// can be read while a policy is being loaded, which may take seconds.
func TestALoadHoldsNothingUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.hcl")
	text := "secret \"KEY\" {\n  hosts = [\"a.test\"]\n  source \"env\" { name = \"KEY\" }\n}\nsandbox \"ci\" {\n  allow \"a.test\" { inject = [\"KEY\"] }\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &loader{paths: []string{file}, key: make([]byte, 32), log: hclog.NewNullLogger()}
	defer l.close()
	if _, diags := l.load(); diags.HasErrors() {
		t.Fatal(diags.Err())
	}
	asked := false
	l.adapt = func(*policy.Document) {
		asked = true
		got := make(chan []string, 1)
		go func() { got <- slices.Concat(l.secretsOf("ci"), l.sourceVariables()) }()
		select {
		case names := <-got:
			if !slices.Equal(names, []string{"KEY", "KEY"}) {
				t.Errorf("during a load: %q", names)
			}
		case <-time.After(10 * time.Second):
			t.Error("what is in force cannot be read while a policy is loaded")
		}
	}
	if _, diags := l.load(); diags.HasErrors() || !asked {
		t.Fatal(asked, diags.Err())
	}
}

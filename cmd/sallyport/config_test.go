package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sallyport/policy/policyfile"
)

// TestDaemonWordsAreKnownInAPolicy: of everything that the daemon file may have
// at its top, and a policy nowhere, a policy says where it belongs.
func TestDaemonWordsAreKnownInAPolicy(t *testing.T) {
	file := reflect.TypeFor[daemonFile]()
	for i := range file.NumField() {
		word, _, _ := strings.Cut(file.Field(i).Tag.Get("hcl"), ",")
		if word == "" || word == "limits" {
			continue // of no attribute; sandboxes have limits too
		}
		path := filepath.Join(t.TempDir(), "p.hcl")
		if err := os.WriteFile(path, []byte(word+" = 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, diags := policyfile.Load([]string{path}, policyfile.Options{})
		if err := diags.Err(); err == nil || !strings.Contains(textOf(diags), "serve --config") {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func textOf(d *policyfile.Diagnostics) string {
	var b strings.Builder
	_ = d.WriteText(&b, false)
	return b.String()
}

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestShowRunningShowsWhatIsEnforced changes the files under a running gateway
// in every way that does not put them in force.
func TestShowRunningShowsWhatIsEnforced(t *testing.T) {
	dir := t.TempDir()
	d, stop := daemonAt(t, dir)
	defer stop()
	var job apiSandbox
	in := apiAttach{Name: "job-7", Parent: "ci", Only: []string{"api.test"}, Methods: []string{"GET"}, TTL: "1h", NetNS: someNamespace}
	if code := ask(t, d, http.MethodPost, "/v1/sandboxes", in, &job); code != http.StatusCreated {
		t.Fatalf("%d %+v", code, job)
	}
	shown := func(f showFlags) string {
		t.Helper()
		var b bytes.Buffer
		f.socket = d.control.path
		if err := f.show(&b, nil); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	file := filepath.Join(dir, "policy.hcl")
	whole := shown(showFlags{})
	for _, want := range []string{"generation 1, sha256 ", `sandbox "ci"  ` + file + ":1", "api.test  GET  POST", `sandbox "prod"`,
		"live " + job.ID + " job-7 is narrowed to api.test, GET, until "} {
		if !strings.Contains(whole, want) {
			t.Errorf("%q is not in\n%s", want, whole)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sandbox \"ci\" {\n  allow \"later.test\" {}\n}\n")
	if got := shown(showFlags{}); got != whole {
		t.Errorf("after a change that was not loaded:\n%s", got)
	}
	write("sandbox \"ci\" {\n  use = [\"nowhere\"]\n}\n")
	if code := ask(t, d, http.MethodPost, "/v1/reload", nil, nil); code != http.StatusUnprocessableEntity {
		t.Fatalf("reload: %d", code)
	}
	if got := shown(showFlags{}); got != whole {
		t.Errorf("after a reload that was refused:\n%s", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := shown(showFlags{}); got != whole {
		t.Errorf("without the file:\n%s", got)
	}
	lines := strings.Split(strings.TrimSpace(shown(showFlags{policyFlags: policyFlags{json: true}, sandbox: "ci"})), "\n")
	var head apiPolicy
	var ci apiEffective
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &head) != nil || json.Unmarshal([]byte(lines[1]), &ci) != nil {
		t.Fatalf("%q", lines)
	}
	if !head.Changed || head.Generation != 1 || ci.Generation != 1 || ci.Sandbox != "ci" || len(ci.Rules) != 2 || len(ci.Narrowed) != 1 || ci.Narrowed[0].ID != job.ID {
		t.Errorf("%+v\n%+v", head, ci)
	}
	write("sandbox \"ci\" {\n  allow \"later.test\" {}\n}\n")
	if code := ask(t, d, http.MethodPost, "/v1/reload", nil, nil); code != http.StatusOK {
		t.Fatalf("reload: %d", code)
	}
	if got := shown(showFlags{}); !strings.HasPrefix(got, "generation 2, ") || !strings.Contains(got, "later.test") || strings.Contains(got, "prod") {
		t.Errorf("after a reload:\n%s", got)
	}
	if code := ask(t, d, http.MethodGet, "/v1/policy/sandboxes/prod", nil, nil); code != http.StatusNotFound {
		t.Errorf("a sandbox that is gone: %d", code)
	}
}

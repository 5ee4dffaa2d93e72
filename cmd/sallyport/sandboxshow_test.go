package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSandboxShow holds what people are shown of a sandbox.
func TestSandboxShow(t *testing.T) {
	sb := apiSandbox{ID: "01J", Name: "job-7", Policy: "ci", Labels: map[string]string{"run": "7", "a": "b"},
		Narrow: &apiNarrowed{Parent: "ci", Only: []string{"api.test", "*.x.test"}, Expires: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)},
		Env:    map[string]string{"B": "it's", "A": "/ca.pem"}, CA: "PEM"}
	var b strings.Builder
	if err := sb.write(&b); err != nil {
		t.Fatal(err)
	}
	want := `sandbox   job-7
id        01J
policy    sandbox "ci"
label     a=b
label     run=7
narrowed  from "ci" to api.test, *.x.test, all its methods
ends      ` + sb.Narrow.Expires.Local().Format(time.RFC3339) + `

# to set in it (sallyport env writes the files that these name)
export A='/ca.pem'
export B='it'\''s'

# the authority that it has to trust: --json has it as ca; sallyport ca export prints it
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSandboxShow holds what people are shown of a sandbox.
func TestSandboxShow(t *testing.T) {
	sb := apiSandbox{ID: "01J", Name: "job-7", Policy: "ci", Where: "namespace /run/netns/job1", Labels: map[string]string{"run": "7", "a": "b"},
		Narrow: &apiNarrowed{Parent: "ci", Only: []string{"api.test", "*.x.test"}, Expires: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)},
		Env:    map[string]string{"B": "it's", "A": "/ca.pem"}, CA: "PEM"}
	var b strings.Builder
	if err := sb.write(&b); err != nil {
		t.Fatal(err)
	}
	want := `sandbox   job-7
id        01J
policy    sandbox "ci"
where     namespace /run/netns/job1
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

// TestSandboxList: sandboxes of one policy are told apart by where they are and
// by what they are narrowed to.
func TestSandboxList(t *testing.T) {
	var b strings.Builder
	writeSandboxes(&b, []apiSandbox{
		{ID: "1", Name: "agent", Policy: "agent", Where: "namespace /run/netns/a"},
		{ID: "2", Name: "agent", Policy: "agent", Where: "namespace /proc/42/ns/net", Labels: map[string]string{"b": "2", "a": "1"},
			Narrow: &apiNarrowed{Parent: "agent", Only: []string{"a.test", "b.test"}, Methods: []string{"GET"}, Expires: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}},
		{ID: "3", Name: "gone", Policy: "agent", Narrow: &apiNarrowed{Parent: "agent"}},
	})
	want := `ID	NAME	POLICY	WHERE	NARROWED TO	LABELS
1	agent	agent	namespace /run/netns/a	-	
2	agent	agent	namespace /proc/42/ns/net	a.test,b.test; GET; until 2026-11-29T12:00:00Z	a=1,b=2
3	gone	agent	-	all of agent	
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

package main

import (
	"path/filepath"
	"testing"

	"sallyport/policy/policyfile"
)

// TestExamplePolicyTests runs the test blocks that stand in examples.
func TestExamplePolicyTests(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range files {
		b, diags := policyfile.LoadBundle([]string{file}, 1, policyOptions())
		if diags.HasErrors() {
			continue // a part of a policy, or no policy; other tests load it with what it needs
		}
		for _, r := range newTrial(b).all().results {
			ran++
			for _, f := range r.failures {
				t.Errorf("%s: %s: %s", file, r.test.Name, f.text())
			}
		}
	}
	if ran < 4 {
		t.Errorf("%d tests in examples", ran)
	}
}

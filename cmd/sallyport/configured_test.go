package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCommandsFollowTheDaemonFile: what a command beside the daemon takes for
// granted is what the daemon file says.
func TestCommandsFollowTheDaemonFile(t *testing.T) {
	config := t.TempDir()
	p := paths{config: config, state: "/own/state"}
	if _, err := configuredPolicy(p); err == nil || !strings.Contains(err.Error(), "policy.d") {
		t.Errorf("without anything: %v", err)
	}
	if err := os.Mkdir(filepath.Join(config, "policy.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(name, wantState string, wantPolicy ...string) {
		t.Helper()
		state, err := configuredState(p)
		if err != nil || state != wantState {
			t.Errorf("%s: state %q, %v", name, state, err)
		}
		policy, err := configuredPolicy(p)
		if err != nil || !slices.Equal(policy, wantPolicy) {
			t.Errorf("%s: policy %q, %v", name, policy, err)
		}
	}
	check("without a daemon file", "/own/state", filepath.Join(config, "policy.d"))
	file := filepath.Join(config, "sallyport.hcl")
	if err := os.WriteFile(file, []byte("state = \"/opt/s\"\npolicy = [\"/opt/p\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("with one", "/opt/s", "/opt/p")
	if err := os.WriteFile(file, []byte("confine = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("with one that says neither", "/own/state", filepath.Join(config, "policy.d"))
	if err := os.WriteFile(file, []byte("stat = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ask := range []func() error{
		func() error { _, err := configuredState(p); return err },
		func() error { _, err := configuredPolicy(p); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("a broken daemon file: %v", err)
		}
	}
}

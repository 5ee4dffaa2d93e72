//go:build linux

package capture

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestSandboxCheck(t *testing.T) {
	found := make(map[string]Finding)
	for _, f := range Check() {
		if f.Name == "" || f.Detail == "" || f.OK && f.Hint != "" {
			t.Errorf("%+v", f)
		}
		found[f.Name] = f
	}
	for _, name := range []string{"kernel", partNamespaces, partKeepAway, partNetwork, "system call filters"} {
		if f := found[name]; !f.OK || f.Needed != "run" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if f := found["capabilities"]; f.OK != (os.Geteuid() == 0) || !f.OK && !strings.Contains(f.Hint, "CAP_NET_ADMIN") {
		t.Errorf("%+v", f)
	}
	for _, name := range []string{"no forwarding", "IPv6", "AppArmor", "Landlock"} {
		if found[name].Detail == "" {
			t.Errorf("%s is not told", name)
		}
	}
}

func TestCheckTellsWhichPart(t *testing.T) {
	for failed, err := range map[string]error{
		partNamespaces: &SetupError{Step: stepNamespaces, Err: syscall.EPERM, Hint: "turn it on"},
		partKeepAway:   &SetupError{Step: "mount a fresh /proc", Err: syscall.EPERM, Hint: "turn it on"},
		partNetwork:    errors.Join(&SetupError{Step: stepNetwork, Err: syscall.ENOENT, Hint: "turn it on"}, nil),
	} {
		broken := false
		for _, f := range sandboxFindings(err) {
			switch {
			case f.Name == failed:
				broken = true
				if f.OK || f.Hint != "turn it on" {
					t.Errorf("%s: %+v", failed, f)
				}
			case f.OK == broken:
				t.Errorf("%s failed: %+v", failed, f)
			}
		}
	}
}

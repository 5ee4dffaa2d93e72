//go:build linux

package capture

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// rerunAsRoot runs the test again, in a process that is root of a user
// namespace of its own, if this one is not root. The test then returns at once.
func rerunAsRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return false
	}
	cmd := inNewNamespaces(t, t.Name())
	cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as root of a user namespace: %v\n%s", err, out)
	}
	return true
}

// inNewNamespaces is this test binary, running one test as root of a new user
// and network namespace.
func inNewNamespaces(t *testing.T, test string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+test+"$", "-test.count=1", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	return cmd
}

package main

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
)

// TestEndOfAContainerIsTold: a container whose process has just ended is left to
// its engine or its hook, which say how it ended, and ends without them at the
// next look.
func TestEndOfAContainerIsTold(t *testing.T) {
	d, stop := daemonAt(t, t.TempDir())
	defer stop()
	container := exec.Command("sleep", "600")
	container.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := container.Start(); err != nil {
		t.Fatal(err)
	}
	_, err := d.captures.attachContainer(context.Background(), "c1", container.Process.Pid, "ci", nil)
	_ = container.Process.Kill() // it runs
	_ = container.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{true, false} {
		d.captures.endGone()
		if _, ok := d.captures.attachedAt("c1"); ok != there {
			t.Errorf("attached after a look: %v, not %v", ok, there)
		}
	}
}

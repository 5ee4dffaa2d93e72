package main

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDemoStopped stops the tour in a step and in the probe at its end: it
// leaves no file and no process.
func TestDemoStopped(t *testing.T) {
	program := filepath.Join(buildProgram(t), "sallyport")
	for name, tt := range map[string]struct {
		signal syscall.Signal
		after  string
	}{
		"interrupt":    {syscall.SIGINT, "1. "},
		"terminate":    {syscall.SIGTERM, "2. "},
		"hangup":       {syscall.SIGHUP, "1. "},
		"in the probe": {syscall.SIGTERM, "7. "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(program, "demo")
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			var failed bytes.Buffer
			cmd.Stderr = &failed
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), tt.after) {
					if err := cmd.Process.Signal(tt.signal); err != nil {
						t.Error(err)
					}
				}
			}
			var ended *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitFailed || !strings.Contains(failed.String(), "stopped before its end") {
				t.Errorf("%v: %s", err, failed.String())
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left %v (%v)", left, err)
			}
			processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range processes {
				if line, err := os.ReadFile(p); err == nil && bytes.Contains(line, []byte(dir)) {
					t.Errorf("%s is left: %q", p, line)
				}
			}
		})
	}
}

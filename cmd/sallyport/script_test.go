package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// buildProgram builds the whole program for scripts: what starts itself again,
// as doctor and run do, must be it and not a test.
func buildProgram(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "sallyport"), ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// exits runs a command and holds that it ends with a code, as in
// "exits 78 sallyport serve".
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec("timeout", append([]string{"120"}, args[1:]...)...); err != nil { // a daemon that starts would not end
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit %d, want %d", got, want)
	}
}

// TestCommandLine runs every command but those of the policy as a shell would.
func TestCommandLine(t *testing.T) {
	program := buildProgram(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/cli",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
		},
		Setup: func(e *testscript.Env) error {
			for name, text := range map[string]string{
				"PATH": program + ":" + os.Getenv("PATH"), "HOME": e.WorkDir, "UID": fmt.Sprint(os.Getuid()),
				"XDG_CONFIG_HOME": e.WorkDir + "/config", "XDG_STATE_HOME": e.WorkDir + "/state", "XDG_RUNTIME_DIR": e.WorkDir + "/runtime",
			} {
				e.Setenv(name, text)
			}
			return nil
		},
	})
}

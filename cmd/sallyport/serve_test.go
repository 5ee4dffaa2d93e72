package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/audit"
)

// TestServeRemoveHoldsTheState: whoever takes the rules away has the lock of the
// daemon, or is told that one runs.
func TestServeRemoveHoldsTheState(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	leave, err := holdState(dir)
	if err != nil {
		t.Fatalf("no state: %v", err)
	}
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a state was made: %v", err)
	}
	daemon, err := audit.OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holdState(dir); err == nil || hintOf(err) != "stop it first" || !strings.Contains(err.Error(), dir+": a daemon runs with it") {
		t.Errorf("a daemon runs: %v", err)
	}
	if err := daemon.Close(); err != nil {
		t.Fatal(err)
	}
	if leave, err = holdState(dir); err != nil {
		t.Fatalf("stopped: %v", err)
	}
	if _, err := audit.OpenState(path); !errors.Is(err, audit.ErrBusy) {
		t.Errorf("a daemon could start meanwhile: %v", err)
	}
	if err := leave(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if leave, err = holdState(dir); err != nil || leave() != nil {
		t.Errorf("a broken state keeps the rules: %v", err)
	}
}

// TestServeConfigThatIsNotThere: without a daemon file serve has its defaults,
// and a lock, which would hold nothing, is an error. What cannot be read is told
// with its cause.
func TestServeConfigThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		f    serveFlags
		want string
	}{
		"serve":         {serveFlags{}, ""},
		"lock":          {serveFlags{lock: true}, "sallyport.hcl: no such file"},
		"named":         {serveFlags{config: filepath.Join(dir, "nope.hcl")}, "nope.hcl: no such file"},
		"unreadable":    {serveFlags{config: dir}, "is a directory"},
		"named to lock": {serveFlags{config: filepath.Join(dir, "nope.hcl"), lock: true}, "nope.hcl: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := test.f.readFile(test.f.configPath(paths{config: dir}))
			switch {
			case test.want == "":
				if err != nil || file == nil {
					t.Errorf("%v %v", file, err)
				}
			case err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(hintOf(err), "--config"):
				t.Errorf("%v, hint %q, want %q", err, hintOf(err), test.want)
			}
		})
	}
}

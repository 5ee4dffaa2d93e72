package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCAExportOnlyReads exports as an ordinary user from a folder that nothing
// can be written to.
func TestCAExportOnlyReads(t *testing.T) {
	program := filepath.Join(buildProgram(t), "sallyport")
	dir := t.TempDir()
	for d := dir; d != filepath.Clean(os.TempDir()) && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	uid := os.Getuid()
	if uid == 0 { // whom no mode stops
		uid = 65534
		if err := os.Chown(state, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	ca := func(verb string) string {
		t.Helper()
		cmd := exec.Command(program, "ca", verb, "--state", state)
		cmd.Dir = "/"
		if uid != os.Getuid() {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", verb, err, out)
		}
		return string(out)
	}
	ca("init")
	want := ca("export")
	for _, mode := range []os.FileMode{0o700, 0o500} { // the lock goes while it can
		if err := os.RemoveAll(filepath.Join(state, "ca.lock")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(state, mode); err != nil {
			t.Fatal(err)
		}
		if got := ca("export"); got != want || !strings.HasPrefix(got, "-----BEGIN CERTIFICATE-----\n") {
			t.Errorf("mode %o: %s", mode, got)
		}
		if _, err := os.Stat(filepath.Join(state, "ca.lock")); err == nil {
			t.Errorf("mode %o: it made a lock", mode)
		}
	}
	if err := os.Chmod(state, 0o700); err != nil { // that it can be removed
		t.Fatal(err)
	}
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestFolderMark: a folder is another one when anything in it is.
func TestFolderMark(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"appended": func(dir string) error { return os.WriteFile(filepath.Join(dir, "sub/deep"), []byte("evil"), 0o600) },
		"new":      func(dir string) error { return os.WriteFile(filepath.Join(dir, "sub/other"), nil, 0o600) },
		"removed":  func(dir string) error { return os.Remove(filepath.Join(dir, "sub/deep")) },
		"mode":     func(dir string) error { return os.Chmod(filepath.Join(dir, "sub"), 0o755) },
		"link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "link")), os.Symlink("sub", filepath.Join(dir, "link")))
		},
		"linked": func(dir string) error { return os.WriteFile(dir+".elsewhere", []byte("evil"), 0o600) },
		"with its times": func(dir string) error {
			path := filepath.Join(dir, "sub/deep")
			info, err := os.Stat(path)
			return errors.Join(err, os.WriteFile(path, []byte("fine"), 0o600), os.Chtimes(path, time.Time{}, info.ModTime()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o700), os.WriteFile(filepath.Join(dir, "sub/deep"), []byte("good"), 0o600),
				os.WriteFile(dir+".elsewhere", nil, 0o600), os.Symlink(dir+".elsewhere", filepath.Join(dir, "link")), os.Symlink(".", filepath.Join(dir, "ring")))
			if err != nil {
				t.Fatal(err)
			}
			was := markOf(dir)
			if was.large || was != markOf(dir) {
				t.Fatal("the same folder is another one, or large")
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if markOf(dir) == was {
				t.Error("a folder that was changed is the same")
			}
		})
	}
}

// TestNamesInACommandAreHeld: neither a folder nor a word of a script leads a
// run's gateway to what the command has put there.
func TestNamesInACommandAreHeld(t *testing.T) {
	const honest, evil = "echo honest-value\n", "touch DIR/escaped\necho evil-value\n"
	for _, tt := range []struct{ name, command, file string }{
		{"a folder", `["/bin/sh", "-c", "for f in \"$0\"/*; do . $f; done", "DIR/code"]`, "code/main"},
		{"a new file", `["/bin/sh", "-c", "for f in \"$0\"/*; do . $f; done", "DIR/code"]`, "code/zz"},
		{"a file that is open, in a folder that is closed", `["/bin/sh", "DIR/closed/../closed"]`, "closed/in/own"},
		{"a word", `["/bin/sh", "-c", "exec /bin/sh DIR/code/main --raw"]`, "code/main"},
		{"quotes and a variable", `["/bin/sh", "-c", "exec /bin/sh \"$HOME\"'/code/main'"]`, "code/main"},
		{"a folder to go to", `["/bin/sh", "-c", "cd DIR/code && exec /bin/sh ./main"]`, "code/main"},
		{"a pattern", `["/bin/sh", "-c", "for f in DIR/code/m*; do . $f; done"]`, "code/main"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &runLoader{t: t, dir: t.TempDir()}
			t.Setenv("HOME", p.dir)
			p.mkdir("code")
			p.write("code/main", honest)
			p.mkdir("closed")
			p.mkdir("closed/in")
			p.write("closed/in/own", honest)
			changes := func(path string) bool {
				return strings.HasPrefix(path, p.dir) && (!strings.Contains(path, "closed") || strings.HasSuffix(path, "own"))
			}
			p.loader = &loader{paths: []string{filepath.Join(p.dir, "policy.hcl")}, key: make([]byte, 32), log: hclog.NewNullLogger(), pins: newPins(changes)}
			t.Cleanup(p.close)
			p.reload(secretOf("KEY", `"exec" { command = `+tt.command+` }`) + pinnedSandbox)
			if hints := p.pins.seal(); len(hints) > 0 {
				t.Errorf("hints: %q", hints)
			}
			if v, err := p.value("KEY"); tt.file != "closed/in/own" && (v != "honest-value" || err != nil) {
				t.Fatalf("before the change: %q, %v", v, err)
			}
			p.write(tt.file, strings.ReplaceAll(evil, "DIR", p.dir))
			if _, err := p.value("KEY"); err == nil || !strings.Contains(err.Error(), "has changed since the run began") {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(filepath.Join(p.dir, "escaped")); err == nil {
				t.Error("what the command wrote was run outside the sandbox")
			}
		})
	}
}

// TestFolderTooLarge: what cannot be looked at whole is refused from the start,
// and says why.
func TestFolderTooLarge(t *testing.T) {
	p := &runLoader{t: t, dir: t.TempDir()}
	p.mkdir("many")
	for i := range maxEntries + 1 {
		p.must(os.Symlink("nothing", filepath.Join(p.dir, "many", fmt.Sprint(i))))
	}
	p = newPinned(t, p.dir, secretOf("KEY", `"exec" { command = ["/bin/echo", "DIR/many"] }`)+pinnedSandbox)
	if _, err := p.value("KEY"); err == nil || !strings.Contains(err.Error(), p.dir+"/many cannot be held to what it was") {
		t.Errorf("%v", err)
	}
}

// TestProgramThatWritesItsArgument: what it wrote before the command began is
// what stays, of which is told, and what it writes later counts as changed, with
// what to do about it.
func TestProgramThatWritesItsArgument(t *testing.T) {
	p := &runLoader{t: t, dir: t.TempDir()}
	p = newPinned(t, p.dir, secretOf("KEY", `"exec" { command = ["/bin/sh", "-c", "echo x >>$0; echo some-value", "DIR/cache"] }`)+pinnedSandbox)
	hints := p.pins.seal()
	if len(hints) != 1 || !strings.Contains(hints[0], p.dir+"/cache was written while") {
		t.Errorf("hints: %q", hints)
	}
	if v, err := p.value("KEY"); v != "some-value" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := p.value("KEY"); err == nil || !strings.Contains(err.Error(), "let the program name it by itself") {
		t.Errorf("%v", err)
	}
}

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

	"sallyport/audit"
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
			p, folder := newPins(nil), held{dir, true}
			was := p.mark(folder)
			if was.large || was != p.mark(folder) {
				t.Fatal("the same folder is another one, or large")
			}
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if p.mark(folder) == was {
				t.Error("a folder that was changed is the same")
			}
		})
	}
}

// TestNamesInACommandAreHeld: neither a folder nor a word of a script leads a
// run's gateway to what the command has put there.
func TestNamesInACommandAreHeld(t *testing.T) {
	const honest, evil = "#!/bin/sh\necho honest-value\n", "#!/bin/sh\ntouch DIR/escaped\necho evil-value\n"
	for _, tt := range []struct{ name, command, file string }{
		{"a folder", `["/bin/sh", "-c", "for f in \"$0\"/*; do . $f; done", "DIR/code"]`, "code/main"},
		{"a new file", `["/bin/sh", "-c", "for f in \"$0\"/*; do . $f; done", "DIR/code"]`, "code/zz"},
		{"a file that is open, in a folder that is closed", `["/bin/sh", "DIR/closed/../closed"]`, "closed/in/own"},
		{"a word", `["/bin/sh", "-c", "exec /bin/sh DIR/code/main --raw"]`, "code/main"},
		{"quotes and a variable", `["/bin/sh", "-c", "exec /bin/sh \"$HOME\"'/code/main'"]`, "code/main"},
		{"a folder to go to", `["/bin/sh", "-c", "cd DIR/code && exec /bin/sh ./main"]`, "code/main"},
		{"a folder of a PATH", `["/usr/bin/env", "PATH=DIR/none:DIR/code:/bin", "main"]`, "code/main"},
		{"a variable", `["/usr/bin/env", "SCRIPT=DIR/code/main", "sh", "-c", ". $SCRIPT"]`, "code/main"},
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

// TestHonestCommandsAreNotRefused: what a command line names as a place, and
// what the gateway or others write there, keeps no source from its program, for
// root as little as for others.
func TestHonestCommandsAreNotRefused(t *testing.T) {
	for name, command := range map[string]string{
		"a home":                   `["/usr/bin/env", "HOME=DIR", "echo", "some-value"]`,
		"a home to go to":          `["/bin/sh", "-c", "cd ~; echo some-value"]`,
		"a home alone":             `["/bin/sh", "-c", "echo some-value", "DIR"]`,
		"what is around a home":    `["/bin/sh", "-c", "echo some-value", "DIR/.."]`,
		"what is around the state": `["/bin/sh", "-c", "echo some-value", "DIR/.local"]`,
		"what run makes":           `["/bin/sh", "-c", "echo some-value", "DIR/.pki"]`,
		"a folder to go to":        `["/bin/sh", "-c", "cd DIR/.local/state && echo some-value"]`,
		"a folder that is made":    `["/bin/sh", "-c", "mkdir -p DIR/made && rmdir DIR/made && echo some-value"]`,
		"folders of the system":    `["/bin/sh", "-c", "cd /etc && cd /opt && cd /usr/share && echo some-value", "/var", "/opt", "/etc/"]`,
		"variables":                `["/usr/bin/env", "TMPDIR=/var/tmp", "LD_LIBRARY_PATH=/usr/lib", "HOME=/root", "echo", "some-value"]`,
		"what the kernel makes up": `["/bin/sh", "-c", "cat /proc/sys/kernel/random/uuid >/dev/null; cat /proc/uptime", "/proc/sys/kernel/random/uuid", "DIR/kernel"]`,
		"one file of many links":   `["/usr/bin/env", "PATH=DIR/links:/usr/bin:/bin", "echo", "some-value", "DIR/links"]`,
	} {
		t.Run(name, func(t *testing.T) {
			p := &runLoader{t: t, dir: filepath.Join(t.TempDir(), "home")}
			for _, dir := range []string{"", ".local", ".local/state", ".local/state/sallyport", ".pki", "links", "kernel"} {
				p.mkdir(dir)
			}
			p.link("/proc/sys/kernel/random/uuid", "kernel/uuid")
			p.write("links/0", "")
			p.must(os.Truncate(filepath.Join(p.dir, "links/0"), maxFolder/4))
			for i := range 8 {
				p.must(os.Link(filepath.Join(p.dir, "links/0"), filepath.Join(p.dir, "links", fmt.Sprint(i+1))))
			}
			t.Setenv("HOME", p.dir)
			policy := filepath.Join(t.TempDir(), "policy.hcl")
			p.must(os.WriteFile(policy, []byte(strings.ReplaceAll(secretOf("KEY", `"exec" { command = `+command+` }`)+pinnedSandbox, "DIR", p.dir)), 0o600))
			all := func(string) bool { return true }
			p.loader = &loader{paths: []string{policy}, key: make([]byte, 32), log: hclog.NewNullLogger(), pins: newPins(all, ownFolders(filepath.Join(p.dir, ".local/state/sallyport"))...)}
			t.Cleanup(p.close)
			snap, diags := p.load()
			if diags.HasErrors() {
				t.Fatal(diags.Err())
			}
			p.fetch(snap)
			for i := range 3 {
				if v, err := p.value("KEY"); v == "" || err != nil {
					t.Fatalf("fetch %d: %q, %v", i, v, err)
				}
				p.write(".local/state/sallyport/log", fmt.Sprint("record ", i))
				p.write(".pki/nssdb", fmt.Sprint("trust ", i))
				p.write("note", fmt.Sprint("of somebody ", i))
				if i == 0 {
					if hints := p.pins.seal(); len(hints) > 0 {
						t.Errorf("hints: %q", hints)
					}
				}
			}
		})
	}
}

// TestClosedFolderIsNotRefused: where nothing is seen that the command can
// change, a folder may be as large as it is.
func TestClosedFolderIsNotRefused(t *testing.T) {
	p := &runLoader{t: t, dir: t.TempDir()}
	p.mkdir("closed")
	for i := range maxEntries + 1 {
		p.must(os.Symlink("nothing", filepath.Join(p.dir, "closed", fmt.Sprint(i))))
	}
	p = newPinned(t, p.dir, secretOf("KEY", `"exec" { command = ["/bin/echo", "DIR/closed"] }`)+pinnedSandbox)
	p.pins.seal()
	if v, err := p.value("KEY"); v != p.dir+"/closed" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
}

// TestSinkThatWritesAtHome: a sink's own file in the home folder, and the
// gateway's records there, keep no notice back.
func TestSinkThatWritesAtHome(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	p := newPins(func(string) bool { return true }, ownFolders(filepath.Join(home, "state"))...)
	command := []string{"/usr/bin/env", "HOME=" + home, "sh", "-c", "cat >> " + home + "/alerts; echo >> ~/more"}
	sink, err := sinkKinds()["exec"].open(attributes{"command": command}, sinkSecrets{pins: p})
	if err != nil {
		t.Fatal(err)
	}
	if hints := p.seal(); len(hints) > 0 {
		t.Errorf("hints: %q", hints)
	}
	for range 3 {
		if err := sink.Send(t.Context(), audit.Alert{}); err != nil {
			t.Error(err)
		}
	}
}

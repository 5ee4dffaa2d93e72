package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

// TestWatchSeesEveryChange: whichever way the files of a policy are changed,
// moved or exchanged, and however their path is spelt, what is in force is what
// the path leads to.
func TestWatchSeesEveryChange(t *testing.T) {
	write := func(path, host string) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.WriteFile(path, fmt.Appendf(nil, "sandbox %q {}\n", host), 0o600)
	}
	do := func(steps ...error) error {
		for _, err := range steps {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for name, tt := range map[string]struct {
		path   string // below a folder of its own, which is the working one
		begin  func() error
		change func() error
	}{
		"a bare name": {"p.hcl", func() error { return write("p.hcl", "one") }, func() error { return write("p.hcl", "two") }},
		"two slashes": {".//p.hcl", func() error { return write("p.hcl", "one") }, func() error { return write("p.hcl", "two") }},
		"a folder":    {"d", func() error { return write("d/p.hcl", "one") }, func() error { return do(os.Remove("d/p.hcl"), write("d/q.hcl", "two")) }},
		"what a link in a folder leads to": {"d",
			func() error {
				return do(write("repo/p.hcl", "one"), os.Mkdir("d", 0o700), os.Symlink("../repo/p.hcl", "d/p.hcl"))
			},
			func() error { return write("repo/p.hcl", "two") }},
		"a link above": {"current/d",
			func() error {
				return do(write("1/d/p.hcl", "one"), write("2/d/p.hcl", "two"), os.Symlink("1", "current"))
			},
			func() error { return do(os.Symlink("2", "next"), os.Rename("next", "current")) }},
		"a folder above": {"a/b/p.hcl",
			func() error { return do(write("a/b/p.hcl", "one"), write("a2/b/p.hcl", "two")) },
			func() error { return do(os.Rename("a", "old"), os.Rename("a2", "a")) }},
		"removed with its folder and made again": {"repo/d", func() error { return write("repo/d/p.hcl", "one") },
			func() error {
				err := os.RemoveAll("repo")
				time.Sleep(4 * settle) // it is seen that there is none
				return do(err, write("repo/d/p.hcl", "two"))
			}},
		"replaced by a file of the same size and time": {"d/p.hcl", func() error { return write("d/p.hcl", "one") },
			func() error {
				was, err := os.Stat("d/p.hcl")
				return do(err, write("d/p.hcl", "two"), os.Chtimes("d/p.hcl", was.ModTime(), was.ModTime()))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := tt.begin(); err != nil {
				t.Fatal(err)
			}
			state := filepath.Join(t.TempDir(), "state")
			st, err := build(settings{state: state, own: state, policy: []string{tt.path}, log: hclog.NewNullLogger()})
			if err != nil {
				t.Fatal(err)
			}
			defer st.close()
			if diags := st.reload(); diags.HasErrors() {
				t.Fatal(diags.Err())
			}
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- st.watch(ctx, nil) }()
			inForce := func(sandbox string) bool { return st.gateway.Policy().Sandbox(sandbox) != nil }
			if !inForce("one") || inForce("two") {
				t.Fatal("the first policy is not in force")
			}
			if err := tt.change(); err != nil {
				t.Fatal(err)
			}
			for limit := time.Now().Add(30 * time.Second); !inForce("two") || inForce("one"); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatal("the change is not in force")
				}
			}
			end()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWatchLeavesAloneWhatIsNotRead: files beside a policy, and tests of it,
// are no change of it.
func TestWatchLeavesAloneWhatIsNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"p.hcl", "p_test.hcl", ".p.hcl", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("sandbox \"s\" {}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := lookAt([]string{dir})
	for _, name := range []string{"p_test.hcl", ".p.hcl", "notes"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("something else"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if lookAt([]string{dir}) != before {
		t.Error("another file is taken for a change")
	}
	if err := os.Chmod(filepath.Join(dir, "p.hcl"), 0o640); err != nil {
		t.Fatal(err)
	}
	if lookAt([]string{dir}) != before {
		t.Error("another mode is taken for a change")
	}
	if err := os.WriteFile(filepath.Join(dir, "q.hcl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if lookAt([]string{dir}) == before {
		t.Error("a file more is no change")
	}
}

// TestWatchSeesThatAFileCanBeRead: a file that may be read again is a change,
// whatever has become of its size and times.
func TestWatchSeesThatAFileCanBeRead(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Chmod(".", 0o755), os.WriteFile("p.hcl", []byte("sandbox \"s\" {}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	look := func(mode os.FileMode) filesSeen {
		t.Helper()
		if err := os.Chmod("p.hcl", mode); err != nil {
			t.Fatal(err)
		}
		return asNobody(t, func() filesSeen { return lookAt([]string{"."}) })
	}
	before, closed, again := look(0o644), look(0), look(0o644)
	if closed == before || again == closed {
		t.Error("whether a file can be read is taken for no change")
	}
	if again != before {
		t.Error("the file is another, although only its mode was")
	}
}

// asNobody runs look on a thread that has none of root's rights to files.
func asNobody(t *testing.T, look func() filesSeen) filesSeen {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own := os.Geteuid()
	if _, err := unix.SetfsuidRetUid(65534); err != nil {
		t.Fatal(err)
	}
	defer unix.SetfsuidRetUid(own)
	return look()
}

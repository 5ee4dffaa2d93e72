package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/policy"
)

// learning is a policy learn that writes below a folder, without its run.
type learning struct {
	t   *testing.T
	dir string
	learnFlags
}

func newLearning(t *testing.T) *learning {
	dir := t.TempDir()
	return &learning{t: t, dir: dir, learnFlags: learnFlags{out: filepath.Join(dir, "learned.hcl")}}
}

func (l *learning) at(name string) string { return filepath.Join(l.dir, name) }

// learn writes what a command that does act needed.
func (l *learning) learn(act func(), list ...policy.Blocked) (string, error) {
	l.t.Helper()
	out, err := l.openOut()
	if err != nil {
		l.t.Fatal(err)
	}
	defer out.close()
	act()
	err = l.write(policy.Document{Sandboxes: []policy.Sandbox{{Name: "learned"}}}, list, out)
	text, _ := os.ReadFile(l.out) // "" where it is gone
	return string(text), err
}

func (l *learning) must(errs ...error) {
	l.t.Helper()
	if err := errors.Join(errs...); err != nil {
		l.t.Fatal(err)
	}
}

func asked() policy.Blocked {
	return policy.Blocked{Sandbox: "learned", Reason: policy.HostNotAllowed, Host: "api.test", Port: 443, Scheme: policy.HTTPS, Method: "GET", Path: "/v1"}
}

// TestLearnedFileIsWrittenWhole: what was in the file stays when nothing was
// learned, and what cannot be written is said before the command runs.
func TestLearnedFileIsWrittenWhole(t *testing.T) {
	l := newLearning(t)
	l.must(os.WriteFile(l.out, []byte("# of before\n"), 0o600))
	if text, err := l.learn(func() {}); text != "# of before\n" || err != nil {
		t.Errorf("nothing was learned, and the file is now %q: %v", text, err)
	}
	if text, err := l.learn(func() {}, asked()); !strings.Contains(text, `allow "api.test"`) || err != nil {
		t.Errorf("the file is %q: %v", text, err)
	}
	if left, err := filepath.Glob(l.at(".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q %v", left, err)
	}
	l.must(os.Symlink("nothing", l.at("dangling")))
	for _, out := range []string{l.at("none/x.hcl"), l.dir + "/none/", l.dir, l.at("dangling")} {
		l.out = out
		if _, err := l.openOut(); err == nil || !strings.Contains(err.Error(), out) {
			t.Errorf("--out %s: %v", out, err)
		}
	}
}

// TestLearnedFileIsThatOfBefore: a link stays one, and the file that it leads
// to keeps its mode.
func TestLearnedFileIsThatOfBefore(t *testing.T) {
	l := newLearning(t)
	l.must(os.Mkdir(l.at("real"), 0o700), os.WriteFile(l.at("real/policy.hcl"), nil, 0o600), os.Symlink("real/policy.hcl", l.out))
	if _, err := l.learn(func() {}, asked()); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(l.out); to != "real/policy.hcl" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	info, err := os.Stat(l.at("real/policy.hcl"))
	l.must(err)
	if text, err := os.ReadFile(l.at("real/policy.hcl")); !strings.Contains(string(text), "api.test") || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, mode %v, %v", text, info.Mode(), err)
	}
}

// TestLearnedFileIsNotTheCommands: whatever the command does to the folder, the
// file has what was learned, or there is an error.
func TestLearnedFileIsNotTheCommands(t *testing.T) {
	const evil = `allow "attacker.test" {}`
	for name, act := range map[string]func(l *learning){
		"every file of the folder": func(l *learning) {
			files, err := os.ReadDir(l.dir)
			l.must(err, os.WriteFile(l.out, []byte(evil), 0o644))
			for _, f := range files {
				l.must(os.Remove(l.at(f.Name())), os.WriteFile(l.at(f.Name()), []byte(evil), 0o644))
			}
		},
		"a link to a file of others": func(l *learning) {
			l.must(os.WriteFile(l.at("other"), []byte(evil), 0o600), os.Symlink("other", l.out))
		},
		"the folder": func(l *learning) {
			l.must(os.Rename(l.dir, l.dir+".was"), os.Mkdir(l.dir, 0o755), os.WriteFile(l.out, []byte(evil), 0o644))
		},
		"a folder in its place": func(l *learning) { l.must(os.Mkdir(l.out, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLearning(t)
			if text, err := l.learn(func() { act(l) }, asked()); err == nil && (strings.Contains(text, "attacker.test") || !strings.Contains(text, `allow "api.test"`)) {
				t.Errorf("%q and no error", text)
			} else if err != nil && !strings.Contains(err.Error(), l.out) {
				t.Error(err)
			}
			if text, err := os.ReadFile(l.at("other")); err == nil && string(text) != evil {
				t.Errorf("a file of others was written: %q", text)
			}
		})
	}
	l := newLearning(t)
	if text, err := l.learn(func() { l.must(os.WriteFile(l.out, []byte(evil), 0o644)) }); err == nil {
		t.Errorf("nothing was learned, the file is %q, and there is no error", text)
	}
}

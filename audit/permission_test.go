package audit

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAUD11Modes(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "state", "audit")
	state, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	l, err := Open(Options{Dir: dir, State: state})
	if err != nil {
		t.Fatal(err)
	}
	write(t, l, "a.test")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{dir, state.db.Path()}
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
}

func TestAUD11Refusals(t *testing.T) {
	tests := map[string]struct {
		make func(t *testing.T, dir string)
		want string
	}{
		"segment is a link": {func(t *testing.T, dir string) {
			os.Mkdir(dir, 0o700)
			os.Symlink("/etc/passwd", filepath.Join(dir, segmentName(1)))
		}, "is a symbolic link"},
		"segment is a directory": {func(t *testing.T, dir string) {
			os.Mkdir(dir, 0o700)
			os.WriteFile(filepath.Join(dir, "x"), nil, 0o600)
			syscall.Mkfifo(filepath.Join(dir, segmentName(1)), 0o600)
		}, "is not a regular file"},
		"segment others may write": {func(t *testing.T, dir string) {
			os.Mkdir(dir, 0o700)
			os.WriteFile(filepath.Join(dir, segmentName(1)), nil, 0o600)
			os.Chmod(filepath.Join(dir, segmentName(1)), 0o666)
		}, "mode 0666"},
		"directory others may write": {func(t *testing.T, dir string) {
			os.Mkdir(dir, 0o700)
			os.Chmod(dir, 0o777)
		}, "mode 0777"},
		"directory is a link": {func(t *testing.T, dir string) { os.Symlink(t.TempDir(), dir) }, "is not a directory"},
		"directory is a file": {func(t *testing.T, dir string) { os.WriteFile(dir, nil, 0o600) }, "is not a directory"},
		"lock is a link": {func(t *testing.T, dir string) {
			os.Mkdir(dir, 0o700)
			os.Symlink("/etc/passwd", filepath.Join(dir, "lock"))
		}, "lock"},
		"no directory is given": {func(t *testing.T, dir string) {}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "audit")
			test.make(t, dir)
			if test.want == "" {
				dir, test.want = "", "no directory"
			}
			l, err := Open(Options{Dir: dir})
			if err == nil {
				l.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want %q", err, test.want)
			}
		})
	}
}

func TestAUD11ForeignOwner(t *testing.T) {
	info, err := os.Stat("/proc/1/fdinfo") // root's, or not there for others
	if err == nil && os.Geteuid() != 0 {
		if err := checkOwned("x", info); err == nil {
			t.Error("a directory of root's passed")
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "audit")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		if l != nil {
			l.Close()
		}
		t.Errorf("open of another's directory: %v", err)
	}
}

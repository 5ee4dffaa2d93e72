//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// HideProcess keeps every other process of the same user from reading this
// one: no ptrace, no process_vm_readv, no /proc/PID/mem or environ, no core
// file. The gateway calls it before it reads a secret.
func HideProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &SetupError{Step: "make the gateway untraceable", Err: err}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return &SetupError{Step: "read the limit of core files", Err: err}
	}
	limit.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return &SetupError{Step: "forbid core files", Err: err}
	}
	return nil
}

// keepAway lays out the file system of a sandbox, in its new mount and pid
// namespaces: first what the command gets of its own, then what is given back,
// and over all of it what it must not see. The mounts cannot be undone by a
// process without capabilities here, nor in a user namespace below.
func keepAway(s *setup) (*hidden, error) {
	mask := unix.Umask(0)
	defer unix.Umask(mask) // the command inherits it
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, mountError("separate the mounts from the host's", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, mountError("mount a fresh /proc", err)
	}
	shares, err := openShares(s)
	if err != nil {
		return nil, err
	}
	defer closeShares(shares)
	private, err := privateDirs(s)
	if err != nil {
		return nil, err
	}
	for _, share := range shares {
		if err := share.attach(); err != nil {
			return nil, err
		}
	}
	if err := placeFiles(s); err != nil {
		return nil, err
	}
	if err := lockKernelFiles(); err != nil {
		return nil, err
	}
	return hide(s, private)
}

func mountError(step string, err error) error {
	return &SetupError{Step: step, Err: err, Hint: mountHint(err, procSys)}
}

// share is a path that lies below a private directory and is given back. It is
// opened before it is covered.
type share struct {
	path string
	fd   int
	dir  bool
}

func openShares(s *setup) (shares []share, err error) {
	defer func() {
		if err != nil {
			closeShares(shares)
		}
	}()
	paths := s.Share
	if !isPrivateRoot(s, s.Dir) {
		paths = append([]string{s.Dir}, paths...)
	}
	for i, path := range paths {
		path = filepath.Clean(path)
		real, err := filepath.EvalSymlinks(path)
		if named := i >= len(paths)-len(s.Share); err == nil && (real != "/" && within(FilesDir, real) || named && is(real, ownRoots())) {
			return shares, &SetupError{Step: "share " + path, Err: errors.New("it is where the sandbox has files of its own"), Hint: "share what is needed below it"}
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return shares, &SetupError{Step: "share " + path, Err: err, Hint: "share what exists, or leave it out"}
		}
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil {
			return shares, &SetupError{Step: "share " + path, Err: err}
		}
		shares = append(shares, share{path: path, fd: fd, dir: stat.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	return shares, nil
}

func closeShares(shares []share) {
	for _, s := range shares {
		_ = unix.Close(s.fd) // opened with O_PATH: nothing to flush
	}
}

// isPrivateRoot says whether dir is one of the directories of which the
// sandbox has its own.
func isPrivateRoot(s *setup, dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	return err == nil && is(real, append(ownRoots(), s.Runtime...))
}

// ownRoots are the directories of which every sandbox has its own.
func ownRoots() []string {
	return []string{"/run", "/var/run", "/tmp", "/dev", "/dev/shm", "/dev/pts"}
}

// is says whether one of the paths leads to real.
func is(real string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		other, err := filepath.EvalSymlinks(path)
		return err == nil && other == real
	})
}

// attach gives the share back at its path, unless it is still what is there.
func (s share) attach() error {
	step := "share " + s.path
	var was, is unix.Stat_t
	if err := unix.Fstat(s.fd, &was); err != nil {
		return &SetupError{Step: step, Err: err}
	}
	if err := unix.Stat(s.path, &is); err == nil && is.Dev == was.Dev && is.Ino == was.Ino {
		return nil
	}
	if err := makePoint(s.path, s.dir); err != nil {
		return &SetupError{Step: step, Err: err}
	}
	if err := unix.Mount(descriptor(s.fd), s.path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return mountError(step, err)
	}
	return nil
}

// makePoint makes a file or directory to mount on, with the directories above
// it. Only private directories lack any, so nothing appears on the host.
func makePoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

// descriptor is the path that means an open descriptor of this process.
func descriptor(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// within says whether path is dir or lies below it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

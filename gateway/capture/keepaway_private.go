//go:build linux

package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// privateDirs gives the sandbox its own /run, /tmp, /dev, /dev/shm and runtime
// directories. It returns the device numbers of their file systems.
func privateDirs(s *setup) (map[uint64]bool, error) {
	links := linksIn("/run")
	private := make(map[uint64]bool)
	cover := func(path, mode string) error {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil // nothing there, or it leads to another of them
		}
		if err != nil {
			return &SetupError{Step: "cover " + path, Err: err}
		}
		if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode="+mode); err != nil {
			return mountError("cover "+path, err)
		}
		var stat unix.Stat_t
		if err := unix.Stat(path, &stat); err != nil {
			return &SetupError{Step: "cover " + path, Err: err}
		}
		private[stat.Dev] = true
		return nil
	}
	for _, dir := range []struct{ path, mode string }{{"/run", "0755"}, {"/var/run", "0755"}, {"/tmp", "1777"}} {
		if err := cover(dir.path, dir.mode); err != nil {
			return nil, err
		}
	}
	if err := privateDev(s, cover); err != nil {
		return nil, err
	}
	for _, dir := range s.Runtime {
		if err := privateRuntime(dir, private, cover); err != nil {
			return nil, err
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, "/run/"+name); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, &SetupError{Step: "link /run/" + name, Err: err}
		}
	}
	return private, nil
}

// linksIn reads the symbolic links directly in dir. On some systems those in
// /run are how every program is found (/run/current-system); they are kept and
// show nothing that their targets do not.
func linksIn(dir string) map[string]string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	links := make(map[string]string)
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			links[e.Name()] = target
		}
	}
	return links
}

// privateRuntime gives the sandbox a runtime directory of its own at dir.
func privateRuntime(dir string, private map[uint64]bool, cover func(path, mode string) error) error {
	at, err := walk(dir)
	if err != nil {
		return &SetupError{Step: "cover " + dir, Err: err}
	}
	switch {
	case private[at.dev] && at.missing:
		if err := os.MkdirAll(at.real, 0o700); err != nil {
			return &SetupError{Step: "make " + dir, Err: err}
		}
		return nil
	case private[at.dev], at.missing, at.denied:
		return nil // private already, or not there
	}
	return cover(at.real, "0700")
}

// deviceNodes are the devices that a command may count on.
const deviceNodes = "null zero full random urandom tty"

// privateDev gives the sandbox a /dev with nothing that leads out of it: no
// disks, no vsock, no terminal but the caller's.
func privateDev(s *setup, cover func(path, mode string) error) error {
	type node struct {
		path string
		fd   int
	}
	var nodes []node
	defer func() {
		for _, n := range nodes {
			_ = unix.Close(n.fd) // opened with O_PATH: nothing to flush
		}
	}()
	paths := s.Terminals
	for _, name := range strings.Fields(deviceNodes) {
		paths = append(paths, "/dev/"+name)
	}
	for _, path := range paths {
		if fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			nodes = append(nodes, node{path, fd})
		}
	}
	if err := cover("/dev", "0755"); err != nil {
		return err
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return &SetupError{Step: "make " + dir, Err: err}
		}
	}
	if err := cover("/dev/shm", "1777"); err != nil {
		return err
	}
	err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
	if err != nil {
		return mountError("mount /dev/pts", err)
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd",
		"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return &SetupError{Step: "link /dev/" + name, Err: err}
		}
	}
	for _, n := range nodes {
		if err := placeDevice(n.path, n.fd); err != nil {
			return mountError("place "+n.path, err)
		}
	}
	return nil
}

// maxReserved is up to which number a terminal below /dev/pts is put in its
// place; past it ttyname(3) finds no name.
const maxReserved = 512

// placeDevice binds the device fd to path in the new /dev.
func placeDevice(path string, fd int) error {
	if number, ok := strings.CutPrefix(path, "/dev/pts/"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n > maxReserved {
			return nil
		}
		if err := reserveTerminal(n); err != nil {
			return err
		}
	} else if err := makePoint(path, false); err != nil {
		return err
	}
	return unix.Mount(descriptor(fd), path, "", unix.MS_BIND, "")
}

// reserveTerminal makes /dev/pts/n appear in the new instance, so that the
// caller's terminal of that name can be bound over it. Numbers are given out
// lowest first. The master of n stays open as long as this process lives,
// which keeps the number taken.
func reserveTerminal(n int) error {
	var below []int
	defer func() {
		for _, fd := range below {
			_ = unix.Close(fd) // a master that nobody used
		}
	}()
	for range n + 1 {
		fd, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		got, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		if err != nil || got > n {
			return errors.Join(err, unix.Close(fd))
		}
		if got == n {
			return nil
		}
		below = append(below, fd)
	}
	return fmt.Errorf("terminal %d was not given out", n)
}

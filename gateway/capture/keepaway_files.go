//go:build linux

package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What masks show, and the sandbox's own files of /etc. Their names begin with
// a dot, which those of Command.Files do not.
const (
	emptyFile  = FilesDir + "/.file"
	emptyDir   = FilesDir + "/.dir"
	resolvConf = FilesDir + "/.resolv.conf"
	hostsFile  = FilesDir + "/.hosts"
)

// placeFiles fills FilesDir, makes it read-only and puts the sandbox's
// resolv.conf and hosts in their places. The host's hosts file would give out
// real addresses, none of which can be reached. nsswitch.conf needs no change:
// the sockets of every other resolver are out of reach and DNS is what is left.
func placeFiles(s *setup) error {
	fail := func(err error) error { return &SetupError{Step: "fill " + FilesDir, Err: err} }
	if err := os.MkdirAll(FilesDir, 0o755); err != nil {
		return fail(err)
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("tmpfs", FilesDir, "tmpfs", flags, "mode=0755"); err != nil {
		return mountError("fill "+FilesDir, err)
	}
	files := map[string][]byte{
		emptyFile: nil, resolvConf: []byte(s.ResolvConf), hostsFile: []byte(hosts()),
	}
	for name, content := range s.Files {
		files[filepath.Join(FilesDir, name)] = content
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fail(err)
		}
		if err := os.WriteFile(path, content, 0o444); err != nil {
			return fail(err)
		}
	}
	if err := os.Mkdir(emptyDir, 0o555); err != nil {
		return fail(err)
	}
	if err := unix.Mount("none", FilesDir, "", unix.MS_REMOUNT|unix.MS_RDONLY|flags, ""); err != nil {
		return mountError("make "+FilesDir+" read-only", err)
	}
	for path, content := range map[string]string{"/etc/resolv.conf": resolvConf, "/etc/hosts": hostsFile} {
		if err := replace(path, content); err != nil {
			return mountError("replace "+path, err)
		}
	}
	for path, name := range s.Over {
		if err := cover(path, filepath.Join(FilesDir, name)); err != nil {
			return mountError("replace "+path, err)
		}
	}
	for path, folder := range s.Own {
		if err := ownDir(path, filepath.Join(FilesDir, folder)); err != nil {
			return mountError("give the sandbox its own "+path, err)
		}
	}
	return nil
}

// cover binds content over the file that path leads to, if it is one.
func cover(path, content string) error {
	at, err := walk(path)
	if err != nil || at.missing || at.denied || at.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return err
	}
	return mountOver(content, at)
}

// hosts is the sandbox's /etc/hosts: itself and nothing else.
func hosts() string {
	names := "localhost"
	if name, err := os.Hostname(); err == nil && name != "" && !strings.ContainsAny(name, " \t\n#") {
		names += " " + name
	}
	return fmt.Sprintf("127.0.0.1 %s\n::1 %s ip6-localhost ip6-loopback\n", names, names)
}

// replace binds content over the file that path leads to. Where it leads
// nowhere (a resolv.conf that is a link into /run) the file is made, if that is
// in a directory of the sandbox's own; a missing one is as good, since the C
// library then asks 127.0.0.1, which is answered.
func replace(path, content string) error {
	at, err := walk(path)
	if err != nil {
		return err
	}
	if at.missing {
		// Only a private directory can be written, unless it is the user's own.
		if !within(at.real, "/run") && !within(at.real, "/tmp") {
			return nil
		}
		if err := makePoint(at.real, false); err != nil {
			return err
		}
		if at, err = walk(path); err != nil {
			return err
		}
	}
	if at.denied {
		return nil // the command cannot read it either
	}
	return mountOver(content, at)
}

// mountOver binds source over the very file or directory that at found, even
// if somebody on the host puts another in its place meanwhile.
func mountOver(source string, at place) error {
	fd, err := unix.Open(at.real, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Dev != at.stat.Dev || stat.Ino != at.stat.Ino {
		return fmt.Errorf("%s: it was replaced meanwhile: %w", at.real, unix.ESTALE)
	}
	return unix.Mount(source, descriptor(fd), "", unix.MS_BIND, "")
}

// lockKernelFiles makes /sys read-only, and for root also what of /proc is not
// about processes: user id 0 may write there without any capability
// (core_pattern names a program that the host runs, a cgroup can be frozen).
func lockKernelFiles() error {
	mounts, err := readMounts()
	if err != nil {
		return &SetupError{Step: "read the mounts", Err: err}
	}
	for _, m := range mounts {
		if !within(m.point, "/sys") {
			continue
		}
		err := unix.Mount("none", m.point, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|m.flags, "")
		if err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			return mountError("make "+m.point+" read-only", err)
		}
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return lockProc()
}

func lockProc() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return &SetupError{Step: "read /proc", Err: err}
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name()[0] >= '0' && e.Name()[0] <= '9' || info.Mode()&fs.ModeSymlink != 0 {
			continue
		}
		if !info.IsDir() && info.Mode()&0o222 == 0 {
			continue
		}
		path := "/proc/" + e.Name()
		const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
			return mountError("make "+path+" read-only", err)
		}
		if err := unix.Mount("none", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, ""); err != nil {
			return mountError("make "+path+" read-only", err)
		}
	}
	return nil
}

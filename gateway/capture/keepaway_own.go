//go:build linux

package capture

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ownDir mounts a directory of the sandbox's own on the one that path leads
// to, with copies of the files in folder. What is no directory is left, and so
// is one that is missing and that the caller would not make in its own.
func ownDir(path, folder string) error {
	at, err := walk(path)
	if err != nil {
		return err
	}
	if at.missing {
		if made, err := makeInOwn(at.real); !made {
			return err
		}
		if at, err = walk(path); err != nil {
			return err
		}
	}
	if at.missing || at.denied || at.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	own, err := newOwn(folder)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	return mountOwn(own, at)
}

// makeInOwn makes a directory, and those above it that are missing, if the
// last that exists is the caller's, and says whether it did.
func makeInOwn(path string) (bool, error) {
	above := filepath.Dir(path)
	var stat unix.Stat_t
	for unix.Lstat(above, &stat) != nil {
		if above == "/" {
			return false, nil
		}
		above = filepath.Dir(above)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || int(stat.Uid) != os.Geteuid() {
		return false, nil
	}
	err := os.MkdirAll(path, 0o700)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return false, nil // nor can the command make it
	}
	return err == nil, err
}

// newOwn makes a file system that is mounted nowhere yet, with copies of the
// files of a folder that their owner may write, and returns its descriptor.
func newOwn(folder string) (int, error) {
	made, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(made)
	if err := errors.Join(unix.FsconfigSetString(made, "mode", "0700"), unix.FsconfigCreate(made)); err != nil {
		return -1, err
	}
	own, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, err
	}
	if err := copyFiles(own, folder); err != nil {
		_ = unix.Close(own) // the reason is known
		return -1, err
	}
	return own, nil
}

// mountOwn mounts a file system over the very directory that at found.
func mountOwn(own int, at place) error {
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
		return &fs.PathError{Op: "mount", Path: at.real, Err: unix.ESTALE}
	}
	return unix.MoveMount(own, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// copyFiles copies the files of a folder into an open directory.
func copyFiles(to int, from string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		fd, err := unix.Openat(to, e.Name(), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), e.Name())
		_, err = f.Write(b)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

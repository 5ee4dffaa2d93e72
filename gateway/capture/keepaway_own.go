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
	if err := mountOwn(at); err != nil {
		return err
	}
	return copyFiles(at.real, folder)
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

// mountOwn mounts an empty directory over the very one that at found.
func mountOwn(at place) error {
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
	return unix.Mount("tmpfs", descriptor(fd), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700")
}

// copyFiles copies the files of a folder, and lets their owner write them.
func copyFiles(to, from string) error {
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
		if err := os.WriteFile(filepath.Join(to, e.Name()), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

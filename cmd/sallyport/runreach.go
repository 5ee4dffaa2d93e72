package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sallyport/policy/policyfile"
)

// maxLinks bounds a chain of symbolic links, as the kernel does.
const maxLinks = 40

// reach is what the command of a run can change. It is the caller's user and
// groups without any capability, and the caller's files are its files.
type reach struct{ uid uint32 }

// ownReach is the reach of a command that this process runs.
func ownReach() reach { return reach{uint32(os.Getuid())} }

// changes says whether the command can change what path leads to: the file,
// or any folder or link on the way. What cannot be looked at counts as
// changeable, and for root everything does.
func (r reach) changes(path string) bool {
	if r.uid == 0 {
		return true
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return true
	}
	at, rest, links := "/", elements(path), 0
	folder, err := os.Lstat(at)
	for {
		if err != nil || r.owns(folder) {
			return true
		}
		if len(rest) == 0 {
			return writable(at, folder)
		}
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			folder, err = os.Lstat(at)
			continue
		}
		next := filepath.Join(at, name)
		info, lerr := os.Lstat(next)
		if errors.Is(lerr, fs.ErrNotExist) {
			return writable(at, folder)
		}
		if lerr != nil || writable(at, folder) && (folder.Mode()&fs.ModeSticky == 0 || r.owns(info)) {
			return true
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at, folder = next, info
			continue
		}
		target, lerr := os.Readlink(next)
		if links++; lerr != nil || links > maxLinks {
			return true
		}
		if filepath.IsAbs(target) {
			at = "/"
			folder, err = os.Lstat(at)
		}
		rest = append(elements(target), rest...)
	}
}

func elements(path string) []string {
	return strings.FieldsFunc(path, func(c rune) bool { return c == '/' })
}

// owns says whether the command's user owns a file, and so can give itself any
// access to it.
func (r reach) owns(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Uid == r.uid
}

// writable says whether mode or access list let this process, which is not
// root, write. A file system that is read-only here may be writable elsewhere.
func writable(path string, info fs.FileInfo) bool {
	err := unix.Access(path, unix.W_OK)
	return err == nil || errors.Is(err, unix.EROFS) && info.Mode().Perm()&0o022 != 0
}

// frozen says that the policy's files are not read again, because the command
// of a run can change one of them.
func (l *loader) frozen() bool {
	if l.pins == nil {
		return false
	}
	for _, p := range l.paths {
		if p == policyfile.Stdin {
			continue // it was read, and does not change
		}
		if l.pins.changes(p) {
			return true
		}
		info, err := os.Stat(p)
		if err == nil && !info.IsDir() {
			continue
		}
		entries, err := os.ReadDir(p)
		if err != nil {
			return true
		}
		for _, e := range entries {
			if filepath.Ext(e.Name()) == ".hcl" && l.pins.changes(filepath.Join(p, e.Name())) {
				return true
			}
		}
	}
	return false
}

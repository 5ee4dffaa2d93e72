//go:build linux

package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links one path may go through, as in the kernel.
const maxLinks = 40

// step is one name that was looked up on the way to a path.
type step struct{ dir, name string }

// place is where a path leads.
type place struct {
	real    string // without symbolic links; what is missing is appended as written
	steps   []step // every look-up, those of symbolic links included
	stat    unix.Stat_t
	missing bool   // real does not exist
	denied  bool   // this user may not go there
	dev     uint64 // file system of real, or of the last directory that exists
}

// walk follows an absolute path name by name.
func walk(path string) (place, error) {
	at := place{real: "/"}
	if err := unix.Lstat("/", &at.stat); err != nil {
		return at, err
	}
	at.dev = at.stat.Dev
	rest := split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at.real = filepath.Dir(at.real)
			continue
		}
		next := filepath.Join(at.real, name)
		at.steps = append(at.steps, step{at.real, name})
		err := unix.Lstat(next, &at.stat)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
			at.missing = true
			at.real = filepath.Join(append([]string{next}, rest...)...)
			return at, nil
		case errors.Is(err, unix.EACCES):
			at.denied = true
			at.real = filepath.Join(append([]string{next}, rest...)...)
			return at, nil
		case err != nil:
			return at, err
		}
		if at.stat.Mode&unix.S_IFMT != unix.S_IFLNK {
			at.real, at.dev = next, at.stat.Dev
			continue
		}
		if links++; links > maxLinks {
			return at, fmt.Errorf("%s: %w", path, unix.ELOOP)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return at, err
		}
		if filepath.IsAbs(target) {
			at.real = "/"
		}
		rest = append(split(target), rest...)
	}
	// After ".." or a link to "/" the last look-up was not of real.
	err := unix.Lstat(at.real, &at.stat)
	at.dev = at.stat.Dev
	return at, err
}

// split cuts a path into its names; "." and doubled slashes fall away.
func split(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

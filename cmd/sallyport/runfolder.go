package main

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxEntries is how many entries of a folder are looked at, with those of the
// folders in it, and maxFolder how many bytes all its files may have.
const (
	maxEntries = 20000
	maxFolder  = 64 << 20
)

// isPlace says whether a folder is named as a place, and not for what is in it:
// those in which every program is looked for or works. The sandbox has a /tmp
// of its own.
func isPlace(path string) bool {
	return slices.Contains([]string{"/", "/usr", "/tmp", "/dev", "/proc", "/sys",
		"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}, path)
}

// inode tells one file of this machine from another.
type inode struct{ dev, ino uint64 }

func inodeOf(info os.FileInfo) inode {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return inode{uint64(st.Dev), st.Ino}
	}
	return inode{}
}

// folder goes through what is in a folder, and in the folders in it and those
// that links lead to, each of them once.
type folder struct {
	left  int // entries that may come
	seen  map[inode]bool
	visit func(path string, info os.FileInfo) (into bool) // info is that of what path itself is
}

// walk says whether all that could be looked at was visited.
func (f *folder) walk(dir string) (whole bool) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || f.seen[inodeOf(info)] {
		return true
	}
	if isPlace(dir) {
		return true
	}
	f.seen[inodeOf(info)] = true
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return unix.Access(dir, unix.X_OK) != nil // else who knows a name in it can go there
	}
	names, err := d.Readdirnames(f.left + 1)
	_ = d.Close() // it was only read
	if len(names) > f.left {
		return false
	}
	if err != nil && err != io.EOF {
		return false
	}
	f.left -= len(names)
	slices.Sort(names)
	for _, name := range names {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil {
			continue // it went away
		}
		if !f.visit(path, info) {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			if path, err = filepath.EvalSymlinks(path); err != nil {
				continue // it leads nowhere
			}
		}
		if info.Mode()&(os.ModeDir|os.ModeSymlink) != 0 && !f.walk(path) {
			return false
		}
	}
	return true
}

// folderSum is the sum of all that is in a folder; whole is false where it is
// too much, which is found out before anything is read.
func folderSum(dir string) (sum [sha256.Size]byte, whole bool) {
	bytes := int64(0)
	count := &folder{left: maxEntries, seen: map[inode]bool{}, visit: func(path string, _ os.FileInfo) bool {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return bytes <= maxFolder
	}}
	if !count.walk(dir) || bytes > maxFolder {
		return sum, false
	}
	h := sha256.New()
	all := &folder{left: maxEntries, seen: map[inode]bool{}, visit: func(path string, info os.FileInfo) bool {
		addEntry(h, path, info)
		return true
	}}
	whole = all.walk(dir)
	h.Sum(sum[:0])
	return sum, whole
}

// addEntry adds to h what tells one version of a file from another.
func addEntry(h hash.Hash, path string, info os.FileInfo) {
	if info.Mode()&os.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		fmt.Fprintf(h, "%q %q %v\n", path, to, err == nil)
		if info, err = os.Stat(path); err != nil {
			return
		}
	}
	m := markOfInfo(info)
	if info.Mode().IsRegular() {
		m.sum = sumOf(path)
	}
	fmt.Fprintf(h, "%q %v %v %v %v %v %v %x\n", path, m.dev, m.ino, m.mode, m.size, m.mtime.UnixNano(), m.ctime.UnixNano(), m.sum)
}

// changeableIn are the paths at or below path that the command can change. A
// folder that it can change stands for what is in it, and so does one of which
// not all can be looked at.
func (p *pins) changeableIn(path string) (out []string) {
	if p.changes(path) {
		return []string{path}
	}
	if isPlace(path) {
		return nil
	}
	f := &folder{left: maxEntries, seen: map[inode]bool{}, visit: func(path string, _ os.FileInfo) bool {
		if p.changes(path) {
			out = append(out, path)
			return false
		}
		return true
	}}
	if !f.walk(path) {
		return []string{path} // its mark says so as well
	}
	return out
}

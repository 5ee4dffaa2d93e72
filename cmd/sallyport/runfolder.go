package main

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxEntries is how many entries of a folder are looked at, with those of the
// folders in it, and maxFolder how many bytes all its files may have.
const (
	maxEntries = 20000
	maxFolder  = 64 << 20
)

// isVirtual says whether a path leads to what the kernel makes up. What is in
// shared memory are files.
func isVirtual(path string) bool {
	top, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"proc", "sys", "dev"}, top) && !(top == "dev" && (rest == "shm" || strings.HasPrefix(rest, "shm/")))
}

// isPlace says whether a folder is named as a place, and not for what is in it:
// those of the system, which everybody uses, and those in which the gateway
// itself writes. The sandbox has a /tmp of its own.
func (p *pins) isPlace(path string, info os.FileInfo) bool {
	if isVirtual(path) || slices.Contains([]string{"/", "/usr", "/tmp", "/etc", "/opt", "/root", "/var", "/var/tmp", "/usr/lib", "/usr/share",
		"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}, path) {
		return true
	}
	return slices.ContainsFunc(p.own, func(own string) bool {
		there, err := os.Stat(own)
		return err == nil && os.SameFile(there, info)
	})
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
	place func(path string, info os.FileInfo) bool // of a folder that is not looked into
	left  int                                      // entries that may come
	seen  map[inode]bool
	visit func(path string, info os.FileInfo) (into bool) // info is that of what path itself is
}

// walk says whether all that could be looked at was visited.
func (f *folder) walk(dir string) (whole bool) {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || f.seen[inodeOf(info)] || f.place(dir, info) {
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
func (p *pins) folderSum(dir string) (sum [sha256.Size]byte, whole bool) {
	type entry struct {
		path string
		info os.FileInfo
	}
	var entries []entry
	bytes, counted := int64(0), map[inode]bool{}
	f := &folder{place: p.isPlace, left: maxEntries, seen: map[inode]bool{}, visit: func(path string, info os.FileInfo) bool {
		entries = append(entries, entry{path, info})
		if to, err := os.Stat(path); err == nil && to.Mode().IsRegular() && !counted[inodeOf(to)] {
			counted[inodeOf(to)] = true
			bytes += to.Size()
		}
		return bytes <= maxFolder
	}}
	if !f.walk(dir) || bytes > maxFolder {
		return sum, false
	}
	h := sha256.New()
	for _, e := range entries {
		addEntry(h, e.path, e.info)
	}
	h.Sum(sum[:0])
	return sum, true
}

// addEntry adds to h what tells one version of a file from another.
func addEntry(h hash.Hash, path string, info os.FileInfo) {
	if info.Mode()&os.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		fmt.Fprintf(h, "%q %q %v\n", path, to, err == nil)
		if info, err = os.Stat(path); err != nil {
			return
		}
		if to, err = filepath.EvalSymlinks(path); err == nil && isVirtual(to) {
			fmt.Fprintf(h, "%q\n", to)
			return // it is other at each look
		}
	}
	m := markOfInfo(info)
	if info.Mode().IsRegular() {
		m.sum = sumOf(path)
	}
	fmt.Fprintf(h, "%q %v %v %v %v %v %v %x\n", path, m.dev, m.ino, m.mode, m.size, m.mtime.UnixNano(), m.ctime.UnixNano(), m.sum)
}

// changeableIn are those of what is named, and of what is in it, that the
// command can change. A folder that it can change stands for what is in it, and
// so does one in which it can change something and of which not all can be
// looked at.
func (p *pins) changeableIn(h held) (out []held) {
	if p.changes(h.path) {
		return []held{h}
	}
	if !h.tree {
		return nil
	}
	f := &folder{place: p.isPlace, left: maxEntries, seen: map[inode]bool{}, visit: func(path string, _ os.FileInfo) bool {
		if p.changes(path) {
			out = append(out, held{path, true})
			return false
		}
		return true
	}}
	if !f.walk(h.path) && len(out) > 0 {
		return []held{h} // its mark says so as well
	}
	return out
}

// ownFolders are those in which run itself writes: its state, and what it makes
// in the caller's home. That is a place besides, in which everybody writes.
func ownFolders(state string) []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return []string{state}
	}
	return []string{state, home, filepath.Join(home, ".pki")}
}

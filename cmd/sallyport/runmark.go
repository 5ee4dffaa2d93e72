package main

import (
	"crypto/sha256"
	"io"
	"os"
	"syscall"
	"time"
)

// maxSummed is how much of a file is read to tell it from another, in bytes.
const maxSummed = 256 << 20

// mark tells one version of a file from another. The zero mark is that of no
// file.
type mark struct {
	dev, ino     uint64
	mode         uint32
	size         int64
	mtime, ctime time.Time
	sum          [sha256.Size]byte // what is written through a mapping changes no time on some file systems
	large        bool              // a folder of which not all was looked at
}

// held is what a run is held to.
type held struct {
	path string
	tree bool // if it is a folder, with all that is in it; else a folder is as nothing
}

// markOf returns the mark of what path leads to. A folder or a device is told
// by its inode alone: what goes through it changes its times.
func markOf(path string) mark {
	info, err := os.Stat(path)
	if err != nil {
		return mark{}
	}
	m := markOfInfo(info)
	if info.Mode().IsRegular() {
		m.sum = sumOf(path)
	}
	return m
}

// mark returns the mark of what h leads to, a folder with all that is in it
// unless it is a mere place.
func (p *pins) mark(h held) mark {
	info, err := os.Stat(h.path)
	if err != nil || info.IsDir() && !h.tree {
		return mark{}
	}
	m := markOf(h.path)
	if info.IsDir() && !p.isPlace(h.path, info) {
		var whole bool
		m.sum, whole = p.folderSum(h.path)
		m.large = !whole
	}
	return m
}

// markOfInfo is the mark of a file without its content.
func markOfInfo(info os.FileInfo) mark {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return mark{}
	}
	m := mark{dev: uint64(st.Dev), ino: st.Ino, mode: st.Mode}
	if info.Mode().IsRegular() {
		m.size, m.mtime, m.ctime = info.Size(), info.ModTime(), time.Unix(st.Ctim.Sec, st.Ctim.Nsec)
	}
	return m
}

// sumOf is the sum of a file's content; zero where it cannot be read.
func sumOf(path string) (sum [sha256.Size]byte) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return sum
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxSummed)); err != nil {
		return sum
	}
	h.Sum(sum[:0])
	return sum
}

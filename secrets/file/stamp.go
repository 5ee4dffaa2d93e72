package file

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

// state tells versions of a file apart.
type state struct {
	there    bool
	dev, ino uint64
	size     int64 // bytes
	mode     fs.FileMode
	mtime    time.Time
	changed  time.Time // of the inode: owner and mode too
}

// stamp returns what tells this version of the file from another: another
// inode, size, time or access. The zero state is a file that is not there.
func stamp(path string) state {
	info, err := os.Stat(path)
	if err != nil {
		return state{}
	}
	s := state{size: info.Size(), mtime: info.ModTime(), mode: info.Mode(), there: true}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.ino = uint64(st.Dev), st.Ino
		s.changed = time.Unix(st.Ctim.Sec, st.Ctim.Nsec)
	}
	return s
}

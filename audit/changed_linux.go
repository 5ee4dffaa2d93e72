package audit

import (
	"os"
	"syscall"
	"time"
)

// changed returns which file it is and when it was last changed in any way: a
// time that cannot be set.
func changed(info os.FileInfo) (inode uint64, at time.Time) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, time.Now()
	}
	return st.Ino, time.Unix(st.Ctim.Unix())
}

package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	segmentPrefix = "audit-"
	segmentSuffix = ".jsonl"
)

// segmentName is the base name of the segment n: six digits or more.
func segmentName(n uint64) string {
	return fmt.Sprintf("%s%06d%s", segmentPrefix, n, segmentSuffix)
}

// segmentNumber is the inverse of segmentName.
func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, segmentSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || segmentName(n) != name {
		return 0, false
	}
	return n, true
}

// segments returns the numbers of the segments in dir in ascending order. A
// directory that is not there has none.
func segments(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []uint64
	for _, e := range entries {
		if n, ok := segmentNumber(e.Name()); ok && e.Type()&fs.ModeDir == 0 {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// file is what a segment needs of *os.File. Tests stand in for it to make a
// disk fail.
type file interface {
	Write(p []byte) (int, error)
	ReadAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Stat() (fs.FileInfo, error)
	// Look returns how long the file is and whether it still has a name.
	Look() (size int64, named bool, err error)
	Close() error
}

// segmentFile is a file of a real disk.
type segmentFile struct {
	*os.File
	fd int
}

// Look implements file.
func (f segmentFile) Look() (size int64, named bool, err error) { return look(f.fd) }

// lookStat is Look by fstat.
func lookStat(fd int) (size int64, named bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, false, err
	}
	return st.Size, st.Nlink > 0, nil
}

// opener opens the file at path with the flags of open(2).
type opener func(path string, flags int) (file, error)

// openFile is the opener of a real disk. It follows no symbolic link and
// refuses what is no regular file, what belongs to somebody else and what
// somebody else may write.
func openFile(path string, flags int) (file, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("%s: is a symbolic link", path)
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkOwned(path, info)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return segmentFile{f, int(f.Fd())}, nil
}

// checkOwned refuses a file or directory that another user owns or may write.
func checkOwned(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no owner known", path)
	}
	if uid := os.Geteuid(); int(st.Uid) != uid {
		return fmt.Errorf("%s: belongs to user %d, not to %d", path, st.Uid, uid)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s: mode %04o lets others write", path, mode)
	}
	return nil
}

// makeDir makes the log's directory with mode 0700, or checks the one that is
// there.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: is not a directory", dir)
	}
	return checkOwned(dir, info)
}

// syncDir makes names that were made or removed in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// lockName is the file beside the segments whose lock the writer holds.
const lockName = "lock"

// lockDir takes the lock that makes the caller the only writer of dir. The
// lock file names its holder.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: lock: %w", path, err)
		}
		holder := make([]byte, 32)
		n, _ := f.ReadAt(holder, 0)
		return nil, fmt.Errorf("%s: %w by process %s", dir, ErrBusy, Escape(strings.TrimSpace(string(holder[:n])), 20))
	}
	if err := f.Truncate(0); err == nil {
		// The name of the holder is for the message only.
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

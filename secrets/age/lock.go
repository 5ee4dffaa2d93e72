package age

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// lockWait bounds how long a write waits for another one of the same file.
	lockWait = 10 * time.Second
	// lockEvery is how often it looks whether that is over.
	lockEvery = 20 * time.Millisecond
)

// lock keeps the file that path stands for from being written by another until
// unlock is called: what is written is made of what was read.
//
// The lock is on a file beside it, which is there only meanwhile. The file
// itself is replaced, so that a lock would stay with the old one; and its folder
// is open to whoever may read it, so that any of them could keep it locked. One
// that is left by a process that was killed locks nobody out.
func lock(path string) (unlock func(), err error) {
	if path, err = target(path); err != nil {
		return nil, err
	}
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	for until := time.Now().Add(lockWait); ; time.Sleep(lockEvery) {
		f, err := tryLock(name)
		if err != nil {
			return nil, fmt.Errorf("lock file %s: %w", name, reason(err))
		}
		if f != nil {
			return func() {
				os.Remove(name) // before it is let go of: whoever waits for it sees that it is gone
				f.Close()
			}, nil
		}
		if !time.Now().Before(until) {
			return nil, fmt.Errorf("is being written by another, who has held %s for %s: try again when that is done; if nobody writes it, remove that file", name, lockWait)
		}
	}
}

// tryLock makes the file of that name and locks it. It returns nil if another
// has it.
func tryLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, os.ErrPermission) {
		if _, there := os.Lstat(name); there == nil {
			return nil, nil // it is another user's
		}
	}
	if err != nil {
		return nil, err
	}
	err = flock(f)
	if err == nil && names(name, f) {
		return f, nil
	}
	f.Close()
	if err == syscall.EWOULDBLOCK {
		err = nil
	}
	return nil, err
}

// flock locks f for this process, without waiting.
func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
			return err
		}
	}
}

// names reports whether name is that of f still: who had locked it before has
// removed it.
func names(name string, f *os.File) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(named, held)
}

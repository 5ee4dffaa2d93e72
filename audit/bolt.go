package audit

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// openBolt is bbolt.Open with the panic of a broken file made into an error.
func openBolt(path string, o bbolt.Options) (db *bbolt.DB, err error) {
	var f *os.File
	o.OpenFile = capture(&f)
	defer recoverBolt(&f, &err)()
	db, err = bbolt.Open(path, 0o600, &o)
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("%w by another process", ErrBusy)
	}
	return db, err
}

// withBolt opens the file at path for as long as fn runs. A file that is broken
// makes bbolt panic, or fault on mapped memory; either is an error here.
func withBolt(path string, o bbolt.Options, fn func(db *bbolt.DB) error) (err error) {
	var f *os.File
	o.OpenFile = capture(&f)
	defer recoverBolt(&f, &err)()
	db, err := bbolt.Open(path, 0o600, &o)
	if errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("%w by another process", ErrBusy)
	}
	if err != nil {
		return err
	}
	err = fn(db)
	// Not deferred: after a panic the database's own locks may be held.
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	return err
}

// capture opens files as bbolt does by itself, and keeps hold of the last one.
func capture(f **os.File) func(string, int, os.FileMode) (*os.File, error) {
	return func(path string, flags int, mode os.FileMode) (*os.File, error) {
		opened, err := os.OpenFile(path, flags, mode)
		*f = opened
		return opened, err
	}
}

// recoverBolt returns what is to be deferred. After a panic it unlocks and
// closes the file; the mapping stays until the process ends.
func recoverBolt(f **os.File, err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			*err = fmt.Errorf("broken: %v", r)
			if *f != nil {
				// The mapping would hold the lock.
				_ = unix.Flock(int((*f).Fd()), unix.LOCK_UN)
				(*f).Close()
			}
		}
	}
}

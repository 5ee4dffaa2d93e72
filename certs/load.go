package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// LoadPEM returns what a client must trust of the CA in dir, as CA.PEM does, and
// writes nothing: who may read the certificate needs no more. A key that can be
// read is held to what LoadOrCreate asks of one, but for whose it is: it signs
// nothing. Where there is no CA the error is fs.ErrNotExist.
func LoadPEM(dir string, o Options) ([]byte, error) {
	defer shareLock(dir)()
	path := filepath.Join(dir, certFile)
	cert, err := readCertificate(path)
	if err != nil {
		return nil, err
	}
	key, err := readKey(filepath.Join(dir, keyFile), false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errNoKey(path)
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return nil, err
	}
	c := &CA{cert: cert, key: key}
	if err := c.check(o.now()); err != nil {
		return nil, fmt.Errorf("ca %s: %w", path, err)
	}
	if c.former, err = readFormer(filepath.Join(dir, formerFile), o.now()); err != nil {
		return nil, err
	}
	return c.PEM(), nil
}

// shareLock waits for whoever replaces the CA in dir. Where the lock cannot be
// opened nobody has made it, or it is not this user's to wait for.
func shareLock(dir string) (unlock func()) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
	}
	return func() { f.Close() } // which gives the lock back
}

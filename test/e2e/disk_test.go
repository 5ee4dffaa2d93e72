//go:build linux

package e2e_test

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/test/lab"
)

// smallDisk is a folder that holds 3 MiB, for one test.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(world.lab.Dir, world.lab.Unique("disk"))
	must(t, os.Mkdir(dir, 0o700))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m,mode=0700"))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp appends to a file until the disk is full.
func fillUp(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer f.Close()
	for _, size := range []int{1 << 16, 1 << 12, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// originRoots trusts the origins of the lab.
func originRoots(l *lab.Lab) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(l.Origins.CA.Cert)
	return pool
}

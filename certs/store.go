package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Names of the files of a CA in its directory.
const (
	certFile   = "ca.pem"        // the certificate, 0644
	keyFile    = "ca.key"        // the key, PKCS #8, 0600
	formerFile = "ca-former.pem" // certificates that Rotate replaced, with the end of their overlap
	lockFile   = "ca.lock"       // flock while any of them is made or replaced
)

// maxFile bounds what is read from any file of this package, in bytes.
const maxFile = 8 << 20

// LoadOrCreate returns the CA in dir, and makes it when there is none. Starts
// at the same time agree on one CA. A key that anybody but its owner could
// read, a certificate that does not belong to the key or that is not a CA,
// and one that has ended are errors that say what to do.
func LoadOrCreate(dir string, o Options) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("ca folder: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()

	key, err := readKey(filepath.Join(dir, keyFile), true)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	cert, err := readCertificate(filepath.Join(dir, certFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	switch {
	case cert == nil:
		// Also after a crash between the two files of a first start: nobody
		// can have trusted a certificate that was never written.
		c, err := newCA(key, o)
		if err != nil {
			return nil, err
		}
		return c, c.write(dir)
	case key == nil:
		return nil, errNoKey(filepath.Join(dir, certFile))
	}
	c := &CA{cert: cert, key: key}
	if err := c.check(o.now()); err != nil {
		return nil, fmt.Errorf("ca %s: %w", filepath.Join(dir, certFile), err)
	}
	if c.former, err = readFormer(filepath.Join(dir, formerFile), o.now()); err != nil {
		return nil, err
	}
	return c, nil
}

func errNoKey(cert string) error {
	return fmt.Errorf("ca %s: its key %s is missing: restore it, or remove the certificate to make a new CA that every sandbox must trust anew", cert, keyFile)
}

// check reports why the CA could not sign a leaf that clients accept.
func (c *CA) check(now time.Time) error {
	const replace = "remove ca.pem and ca.key to make a new one, or restore the right file"
	switch {
	case !c.cert.BasicConstraintsValid || !c.cert.IsCA || c.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return fmt.Errorf("not a certificate authority: %s", replace)
	case c.key != nil && !c.key.PublicKey.Equal(c.cert.PublicKey):
		return fmt.Errorf("does not belong to %s: %s", keyFile, replace)
	case now.After(c.cert.NotAfter):
		return fmt.Errorf("ended on %s: rotate it with `sallyport ca rotate`", c.cert.NotAfter.UTC().Format(time.DateOnly))
	case now.Before(c.cert.NotBefore):
		return fmt.Errorf("begins only on %s: set this machine's clock", c.cert.NotBefore.UTC().Format(time.DateOnly))
	}
	return nil
}

// write puts the key and then the certificate in place: a certificate on
// disk always has its key.
func (c *CA) write(dir string) error {
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		return fmt.Errorf("ca key: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := replaceFile(filepath.Join(dir, keyFile), block, 0o600); err != nil {
		return fmt.Errorf("ca key: %w", err)
	}
	if err := replaceFile(filepath.Join(dir, certFile), encodeCertificate(c.cert, nil), 0o644); err != nil {
		return fmt.Errorf("ca certificate: %w", err)
	}
	return nil
}

// readKey reads a key that only its owner can read, and that, if it is to sign,
// is this user's or root's. The check is made on the open file, so the file that
// was checked is the one that is read.
func readKey(path string, toSign bool) (*ecdsa.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("ca key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("ca key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("ca key %s: not a regular file", path)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("ca key %s: mode %04o lets others read it: assume that it is known, remove it and %s to make a new CA, or `chmod 600` it if you are sure that nobody has", path, perm, certFile)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && toSign && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("ca key %s: belongs to user %d, who can read it: `chown` it to the user that runs sallyport", path, st.Uid)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("ca key: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("ca key %s: no PEM block PRIVATE KEY: restore the file", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("ca key %s: not a PKCS #8 key: restore the file", path) // the cause could quote the key
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("ca key %s: not an ECDSA key on P-256", path)
	}
	return key, nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("ca certificate: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("ca certificate %s: no PEM block CERTIFICATE: restore the file", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("ca certificate %s: %w", path, err)
	}
	return cert, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: larger than %d MiB", path, maxFile>>20)
	}
	return b, err
}

// lock takes the directory's lock and waits for whoever holds it. The kernel
// gives it back when the process ends, however it ends.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ca lock: %w", err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("ca lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// replaceFile writes a file so that a reader sees either the old one or the
// whole new one, also after a power cut.
func replaceFile(path string, b []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(b); err != nil {
		return err
	}
	if err = f.Chmod(mode); err != nil { // past the umask
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

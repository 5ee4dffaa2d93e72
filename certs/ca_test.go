package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTLS12CAIsConstrained(t *testing.T) {
	c := testCA(t).Certificate()
	if !c.IsCA || !c.BasicConstraintsValid || c.MaxPathLen != 0 || !c.MaxPathLenZero {
		t.Errorf("CA %v, path length %d", c.IsCA, c.MaxPathLen)
	}
	if c.KeyUsage != x509.KeyUsageCertSign || len(c.ExtKeyUsage) != 0 {
		t.Errorf("usage %b %v", c.KeyUsage, c.ExtKeyUsage)
	}
	if !strings.HasPrefix(c.Subject.CommonName, "sallyport CA ") || len(c.SubjectKeyId) == 0 {
		t.Errorf("subject %v, key id %x", c.Subject, c.SubjectKeyId)
	}
	if c.NotBefore.After(time.Now().Add(-26 * time.Hour)) {
		t.Errorf("begins %v: a client whose clock is behind refuses it", c.NotBefore)
	}
}

func TestTLS12KeyIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := LoadOrCreate(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{".": 0o700, keyFile: 0o600, certFile: 0o644} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", name, got, want)
		}
	}
	for _, mode := range []fs.FileMode{0o604, 0o640, 0o644, 0o660, 0o666} {
		if err := os.Chmod(filepath.Join(dir, keyFile), mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadOrCreate(dir, Options{})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%04o", mode)) || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
}

func TestTLS12KeyIsNeverPrinted(t *testing.T) {
	c := testCA(t)
	secret := fmt.Sprint(c.key.D) //nolint:staticcheck // the number itself is looked for
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		for _, v := range []any{c, struct{ CA *CA }{c}, []*CA{c}} {
			if out := fmt.Sprintf(verb, v); strings.Contains(out, secret) || strings.Contains(out, fmt.Sprintf("%x", c.key.D)) {
				t.Errorf("%s of %T prints the key", verb, v)
			}
		}
	}
}

func TestTLS12BadFilesAreRefused(t *testing.T) {
	write := func(name string, mode fs.FileMode, b []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			os.Remove(path)
			if err := os.WriteFile(path, b, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	large, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	old, _ := rsa.GenerateKey(rand.Reader, 2048)
	stranger := testCA(t)
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"empty key", write(keyFile, 0o600, nil), "no PEM block"},
		{"garbage key", write(keyFile, 0o600, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})), "not a PKCS #8 key"},
		{"key of another CA", write(keyFile, 0o600, pkcs8(other)), "does not belong"},
		{"key on another curve", write(keyFile, 0o600, pkcs8(large)), "not an ECDSA key on P-256"},
		{"RSA key", write(keyFile, 0o600, pkcs8(old)), "not an ECDSA key on P-256"},
		{"folder as key", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, keyFile))
			os.Mkdir(filepath.Join(dir, keyFile), 0o700)
		}, "not a regular file"},
		{"empty certificate", write(certFile, 0o644, nil), "no PEM block"},
		{"garbage certificate", write(certFile, 0o644, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), "ca certificate"},
		{"another CA's certificate", write(certFile, 0o644, stranger.PEM()), "does not belong"},
		{"a leaf as CA", write(certFile, 0o644, encodeCertificate(mustLeaf(t, NewLeaves(stranger, LeavesOptions{}), "a.test"), nil)), "not a certificate authority"},
		{"no key", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, keyFile)) }, "is missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := LoadOrCreate(dir, Options{}); err != nil {
				t.Fatal(err)
			}
			tc.change(t, dir)
			_, err := LoadOrCreate(dir, Options{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestLoadAgain(t *testing.T) {
	dir := t.TempDir()
	first, err := LoadOrCreate(dir, Options{Name: "a CA"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadOrCreate(dir, Options{Name: "another"})
	if err != nil {
		t.Fatal(err)
	}
	if first.Fingerprint() != second.Fingerprint() || !bytes.Equal(first.PEM(), second.PEM()) || second.Certificate().Subject.CommonName != "a CA" {
		t.Error("a second start made another CA")
	}
	mustLeaf(t, NewLeaves(second, LeavesOptions{}), "good.test")
}

func TestStartsAtTheSameTimeAgree(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	prints := make([]string, 16)
	for i := range prints {
		wg.Go(func() {
			c, err := LoadOrCreate(dir, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			prints[i] = c.Fingerprint()
		})
	}
	wg.Wait()
	for _, p := range prints {
		if p != prints[0] {
			t.Fatal("two CAs were made")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFirstStartThatCrashed(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadOrCreate(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, certFile)) // as if killed between the two files
	c, err := LoadOrCreate(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !c.key.PublicKey.Equal(c.Certificate().PublicKey) {
		t.Error("key and certificate differ")
	}
}

func TestCAThatEnded(t *testing.T) {
	dir := t.TempDir()
	c, err := LoadOrCreate(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]string{
		c.Certificate().NotAfter.Add(time.Second):   "ca rotate",
		c.Certificate().NotBefore.Add(-time.Second): "clock",
	} {
		if _, err := LoadOrCreate(dir, Options{Now: func() time.Time { return at }}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestFolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeTest(t, file, nil)
	if _, err := LoadOrCreate(filepath.Join(file, "state"), Options{}); err == nil {
		t.Error("made below a file")
	}
}

func TestTLS11Rotate(t *testing.T) {
	dir, trustDir := t.TempDir(), t.TempDir()
	now := time.Now()
	o := Options{Now: func() time.Time { return now }}
	old, err := LoadOrCreate(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	oldLeaf := mustLeaf(t, NewLeaves(old, LeavesOptions{}), "good.test")
	fresh, err := Rotate(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Fingerprint() == old.Fingerprint() || fresh.key.Equal(old.key) || fresh.Certificate().Subject.String() == old.Certificate().Subject.String() {
		t.Error("the CA, its key or its name is the old one")
	}
	loaded, err := LoadOrCreate(dir, o)
	if err != nil || loaded.Fingerprint() != fresh.Fingerprint() {
		t.Fatalf("%v, %v", loaded, err)
	}
	leaf := mustLeaf(t, NewLeaves(loaded, LeavesOptions{}), "good.test") // a host seen before
	if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "good.test", Roots: pool(fresh.Certificate())}); err != nil {
		t.Error(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool(old.Certificate())}); err == nil {
		t.Error("a leaf of the new CA is signed by the old one")
	}
	// During the overlap a new sandbox trusts both.
	bundled := bundle(t, trustDir, loaded)
	for _, l := range []*x509.Certificate{leaf, oldLeaf} {
		if _, err := l.Verify(x509.VerifyOptions{DNSName: "good.test", Roots: pool(bundled...)}); err != nil {
			t.Error(err)
		}
	}
	// After it, the new one alone.
	now = now.Add(DefaultOverlap)
	loaded, err = LoadOrCreate(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if bundled = bundle(t, trustDir, loaded); len(bundled) != 1 || !bundled[0].Equal(fresh.Certificate()) {
		t.Errorf("%d certificates after the overlap", len(bundled))
	}
}

// bundle writes the trust files and returns what is in the bundle.
func bundle(t *testing.T, dir string, c *CA) []*x509.Certificate {
	t.Helper()
	trust, err := WriteTrust(dir, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(trust.Bundle)
	if err != nil {
		t.Fatal(err)
	}
	return parseBundle(b)
}

func TestTLS11RotateTwiceAndAtOnce(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		c, err := Rotate(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Roots()) != i+1 {
			t.Errorf("after rotation %d: %d roots", i+1, len(c.Roots()))
		}
	}
	c, err := Rotate(dir, Options{Overlap: -1}) // the old key is known to somebody
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Roots()) != 1 {
		t.Errorf("%d roots after a rotation without overlap", len(c.Roots()))
	}
}

func TestTLS11RotateBrokenKey(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadOrCreate(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, keyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Rotate(dir, Options{Overlap: -1}); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreate(dir, Options{}); err != nil {
		t.Error(err)
	}
}

func TestTLS11BrokenFormerFile(t *testing.T) {
	dir := t.TempDir()
	c, err := Rotate(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeTest(t, filepath.Join(dir, formerFile), encodeCertificate(c.Certificate(), nil))
	if _, err := LoadOrCreate(dir, Options{}); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Error(err)
	}
}

//go:build linux

package e2e_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// tree reads every regular file below dir. One that goes meanwhile is not there.
func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(path)
		if err == nil {
			out[path] = b
		}
		return ignoreGone(err)
	})
	must(t, err)
	if len(out) == 0 {
		t.Fatalf("%s has no files", dir)
	}
	return out
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func certificateOf(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("no PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return c
}

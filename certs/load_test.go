package certs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoadPEM: it is what the CA says itself, also of those that were replaced,
// and nothing in the folder is touched.
func TestLoadPEM(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadPEM(dir, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a CA: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("it made %v (%v)", list, err)
	}
	if _, err := LoadOrCreate(dir, Options{}); err != nil {
		t.Fatal(err)
	}
	ca, err := Rotate(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, lockFile)); err != nil {
		t.Fatal(err)
	}
	got, err := LoadPEM(dir, Options{})
	if err != nil || !bytes.Equal(got, ca.PEM()) || bytes.Count(got, []byte("BEGIN CERTIFICATE")) != 2 {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := os.Stat(filepath.Join(dir, lockFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it made the lock: %v", err)
	}
	for name, spoil := range map[string]func(key string) error{
		"lets others read it": func(key string) error { return os.Chmod(key, 0o644) },
		"does not belong to": func(key string) error {
			other := t.TempDir()
			if _, err := LoadOrCreate(other, Options{}); err != nil {
				return err
			}
			return os.Rename(filepath.Join(other, keyFile), key)
		},
		"is missing": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := LoadOrCreate(dir, Options{}); err != nil {
				t.Fatal(err)
			}
			if err := spoil(filepath.Join(dir, keyFile)); err != nil {
				t.Fatal(err)
			}
			if _, err := LoadPEM(dir, Options{}); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v", err)
			}
		})
	}
}

package secrets

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadFile: nothing is waited for, and nothing is read without an end.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	plain, fifo, long := filepath.Join(dir, "plain"), filepath.Join(dir, "fifo"), filepath.Join(dir, "long")
	for _, err := range []error{os.WriteFile(plain, []byte("text"), 0o600), syscall.Mkfifo(fifo, 0o600), os.WriteFile(long, bytes.Repeat([]byte("x"), maxRead+1), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err := ReadFile(plain); string(b) != "text" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	for path, want := range map[string]string{fifo: "not a regular file", dir: "not a regular file", "/dev/zero": "not a regular file", long: "longer than", filepath.Join(dir, "none"): "no such file"} {
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

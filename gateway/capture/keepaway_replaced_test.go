//go:build linux

package capture

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHideWhileItIsReplaced replaces a hidden file faster than it can be masked
// anew: the command is not ended by that, and sees none of them in the end.
func TestHideWhileItIsReplaced(t *testing.T) {
	dir := scratch(t)
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	secret := secretFile(t, dir, "token")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := sh(`echo up; read go
		for i in $(seq 300); do [ -s "$1" ] || break; sleep 0.1; done
		cat "$1"; echo done`, secret)
	c.Hide, c.Stdin = []string{secret}, read
	out := withSandbox(t, c, "up\n", func() {
		defer write.Close()
		for range 1500 {
			if err := os.Rename(secretFile(t, dir, "next"), secret); err != nil {
				t.Fatal(err)
			}
		}
	})
	if out != "up\ndone\n" {
		t.Errorf("seen: %q", out)
	}
}

// TestHiddenIsLookedAtOnceItIsWatched: what comes to be there between a look and
// the watch is told by neither, so it is looked at once more.
func TestHiddenIsLookedAtOnceItIsWatched(t *testing.T) {
	w, err := newWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.file.Close()
	h, missing := &hidden{watching: w}, filepath.Join(scratch(t), "not", "yet")
	for i, want := range []bool{true, false} {
		if again, err := h.maskPathOnce(missing); again != want || err != nil {
			t.Errorf("look %d: again %v, %v", i+1, again, err)
		}
	}
	if err := os.MkdirAll(missing, 0o755); err != nil {
		t.Fatal(err)
	}
	if again, err := h.maskPathOnce(missing); !again || err != nil {
		t.Errorf("in a folder that was not there: again %v, %v", again, err)
	}
}

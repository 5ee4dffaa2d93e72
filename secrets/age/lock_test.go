package age

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockFile is the name of the lock of a file.
func lockFile(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
}

// TestWritesAtOnce: what is said to be set is set, whoever writes meanwhile and
// by which name, and nothing is left beside the file.
func TestWritesAtOnce(t *testing.T) {
	c, _ := setup(t)
	link := filepath.Join(t.TempDir(), "link.age")
	if err := os.Symlink(c.Path, link); err != nil {
		t.Fatal(err)
	}
	key := func(i int) Config {
		k := c
		k.Key = fmt.Sprintf("KEY_%d", i)
		if i%2 == 0 {
			k.Path = link
		}
		return k
	}
	atOnce := func(n int, write func(i int) error) {
		t.Helper()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if err := write(i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	const n = 8
	for range 3 {
		atOnce(n, func(i int) error { return Set(key(i), fmt.Append(nil, "REAL-", i)) })
		for i := range n {
			if got, err := fetch(t, key(i)); err != nil || got != fmt.Sprint("REAL-", i) {
				t.Errorf("key %d: %q, %v", i, got, err)
			}
		}
		atOnce(n, func(i int) error { return Remove(key(i)) })
		for i := range n {
			if _, err := fetch(t, key(i)); err == nil {
				t.Errorf("key %d is there although it was removed", i)
			}
		}
	}
	if list, _ := filepath.Glob(filepath.Join(filepath.Dir(c.Path), "*.age*")); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
}

// TestLockIsWaitedFor: another writer is waited for, but not for ever; one that
// was killed is none.
func TestLockIsWaitedFor(t *testing.T) {
	c, _ := setup(t)
	c.Key = "ONE"
	unlock, err := lock(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		err := Set(c, []byte("REAL-1"))
		if err == nil || !strings.Contains(err.Error(), "is being written by another") || !strings.Contains(err.Error(), lockFile(c.Path)) {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(begun); waited < lockWait || waited > lockWait+time.Second {
			t.Errorf("waited for %s", waited)
		}
		time.AfterFunc(lockWait/2, unlock)
		if err := Set(c, []byte("REAL-1")); err != nil {
			t.Errorf("after the other one: %v", err)
		}
	})
	write(t, lockFile(c.Path), "", 0o600) // as a killed one leaves it
	if err := Set(c, []byte("REAL-2")); err != nil {
		t.Errorf("after one that was killed: %v", err)
	}
	if got, err := fetch(t, c); err != nil || got != "REAL-2" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Lstat(lockFile(c.Path)); err == nil {
		t.Error("the lock is left behind")
	}
}

// TestLockIsNoLink: what a link in the lock's place leads to is left alone.
func TestLockIsNoLink(t *testing.T) {
	c, _ := setup(t)
	other := filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(other, lockFile(c.Path)); err != nil {
		t.Fatal(err)
	}
	if err := Set(c, []byte("REAL")); err == nil || !strings.Contains(err.Error(), "lock file") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(other); err == nil {
		t.Error("the link was followed")
	}
}

package audit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDirectoryDeletedByHand: the log goes on in a directory of its own making,
// which no other writer can have.
func TestDirectoryDeletedByHand(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+".1") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			l := openTest(t, Options{Now: c.Now})
			write(t, l, "a.test")
			if err := remove(l.o.Dir); err != nil {
				t.Fatal(err)
			}
			c.step(2 * nameCheck)
			_ = l.Write(denial("b.test")) // it may be refused until the directory is there
			eventually(t, "recovery", func() bool { return l.Healthy() == nil })
			write(t, l, "c.test")
			if got := fmt.Sprint(hosts(t, Filter{Kind: "dns"}, l.o.Dir)); !strings.HasSuffix(got, "c.test]") {
				t.Errorf("records %s", got)
			}
			if _, err := Open(Options{Dir: l.o.Dir}); !errors.Is(err, ErrBusy) {
				t.Errorf("a second writer: %v, want that the log is in use", err)
			}
			if n := l.Stats().Faults; n > 1 {
				t.Errorf("%d faults, want one at the most", n)
			}
		})
	}
}

// TestNoHealthWithoutAName: a log whose segment has no name, and can have none,
// is not healthy at any moment until it can.
func TestNoHealthWithoutAName(t *testing.T) {
	l := openTest(t, Options{})
	write(t, l, "a.test")
	if err := os.RemoveAll(l.o.Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.o.Dir, nil, 0o600); err != nil { // in its place
		t.Fatal(err)
	}
	for range 20 {
		if err := l.Write(denial("b.test")); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("write: %v, want unavailable", err)
		}
		if l.retry() || l.Healthy() == nil {
			t.Fatal("healthy, although nothing can be written")
		}
	}
	if n := l.Stats().Faults; n != 1 {
		t.Errorf("%d faults, want one", n)
	}
	if err := os.Remove(l.o.Dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "recovery", func() bool { return l.Healthy() == nil })
	write(t, l, "c.test")
	if got := fmt.Sprint(hosts(t, Filter{Kind: "dns"}, l.o.Dir)); got != "[a.test c.test]" {
		t.Errorf("records %s", got)
	}
	if rep, err := Verify(l.o.Dir); err != nil {
		t.Errorf("%+v, %v", rep, err)
	}
}

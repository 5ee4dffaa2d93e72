package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get("leases", []byte("a")); v != nil || err != nil {
		t.Errorf("got %q, %v from nothing", v, err)
	}
	for _, k := range []string{"b", "a", "c"} {
		if err := s.Put("leases", []byte(k), []byte("v"+k)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete("leases", []byte("c")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete("absent", []byte("c")); err != nil {
		t.Fatal(err)
	}
	if err := s.PutAll("claims", map[string][]byte{"d": []byte("1"), "e": []byte("2"), "f": []byte("3")}); err != nil {
		t.Fatal(err)
	}
	if err := s.PutAll("claims", map[string][]byte{"g": []byte("4"), "": nil}); err == nil {
		t.Error("an empty key was stored among others")
	}
	if err := errors.Join(s.DeleteAll("claims", [][]byte{[]byte("e"), []byte("absent")}), s.DeleteAll("absent", [][]byte{[]byte("e")})); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenState(path); !errors.Is(err, ErrBusy) {
		t.Errorf("second open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenState(path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []string
	list := func(k, v []byte) error {
		got = append(got, fmt.Sprintf("%s=%s", k, v))
		return nil
	}
	err = errors.Join(s.ForEach("leases", list), s.ForEach("claims", list))
	if err != nil || fmt.Sprint(got) != "[a=va b=vb d=1 f=3]" {
		t.Errorf("pairs %v, %v", got, err)
	}
	stop := errors.New("stop")
	if err := s.ForEach("leases", func(k, v []byte) error { return stop }); err != stop {
		t.Errorf("error of fn: %v", err)
	}
	if err := s.Put("leases", nil, nil); err == nil {
		t.Error("an empty key was stored")
	}
}

func TestStateRefusals(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open.db")
	s, err := OpenState(open)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	os.Chmod(open, 0o644)
	rubbish := filepath.Join(dir, "rubbish.db")
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = byte(i * 7)
	}
	os.WriteFile(rubbish, b, 0o600)
	for _, path := range []string{open, rubbish, filepath.Join(dir, "absent", "x.db"), dir} {
		if s, err := OpenState(path); err == nil {
			s.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

// TestStateWritesTogether: changes that come while one is written share the
// next write, and one of them that cannot be made fails alone.
func TestStateWritesTogether(t *testing.T) {
	s, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n = 20
	commits := func() (id int) {
		if err := s.db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := commits()
	s.writing.Lock() // another is being written
	errs := make(chan error, 2*n)
	for i := range n {
		go func() { errs <- s.Put("leases", fmt.Appendf(nil, "k%02d", i), []byte("v")) }()
		go func() { errs <- s.Delete("leases", fmt.Appendf(nil, "absent%02d", i)) }()
	}
	for gathered := 0; gathered < 2*n; {
		time.Sleep(time.Millisecond)
		s.mu.Lock()
		gathered = len(s.waiting)
		s.mu.Unlock()
	}
	s.writing.Unlock()
	for range 2 * n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := commits() - before; n != 1 {
		t.Errorf("%d writes, want one", n)
	}

	s.writing.Lock()
	for _, key := range []string{"a", "", "b"} {
		go func() { errs <- s.Put("mixed", []byte(key), []byte("v")) }()
	}
	for gathered := 0; gathered < 3; {
		time.Sleep(time.Millisecond)
		s.mu.Lock()
		gathered = len(s.waiting)
		s.mu.Unlock()
	}
	s.writing.Unlock()
	failed := 0
	for range 3 {
		if err := <-errs; err != nil {
			failed++
		}
	}
	var kept []string
	if err := s.ForEach("mixed", func(k, _ []byte) error { kept = append(kept, string(k)); return nil }); err != nil {
		t.Fatal(err)
	}
	if failed != 1 || fmt.Sprint(kept) != "[a b]" {
		t.Errorf("%d failed, kept %v", failed, kept)
	}
}

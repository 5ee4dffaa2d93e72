package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fillDisk leaves no room where dir is, and returns what makes it again.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "fill")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// large is a notice that takes room.
func large(id string, size int) Alert {
	return Alert{ID: id, Name: "a", Message: strings.Repeat("x", size)}
}

func (b *spoolBench) setFail(fail func(n int, a Alert) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = fail
}

func (m *memory) setBroken(broken bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = broken
}

// dropped are the notices that the log says were given up.
func (m *memory) dropped() (n uint64) {
	for _, e := range m.list() {
		if e.Note.Action == ActionDropped {
			n += max(e.Count, 1)
		}
	}
	return n
}

// TestSpoolOnAFullDisk: what cannot be spooled is delivered all the same, in
// order and once, and is on disk when there is room.
func TestSpoolOnAFullDisk(t *testing.T) { onSmallFileSystem(t, spoolOnAFullDisk) }

func spoolOnAFullDisk(t *testing.T, dir string) {
	state, err := OpenState(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	b := &spoolBench{state: state, log: &memory{}}
	s, stop := b.spool(t, SpoolOptions{Limit: 30})
	putAll(t, s, "first")
	free := fillDisk(t, dir)
	if err := state.Put("x", []byte("x"), make([]byte, 64<<10)); err == nil {
		t.Fatal("the disk is not full")
	}
	want := []string{"first"}
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
		if err := s.Put(large(want[len(want)-1], 16<<10)); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	eventually(t, "delivery on a full disk", func() bool { return s.Waiting() == 0 })
	if b.received() != fmt.Sprint(want) {
		t.Errorf("received %s, want %s", b.received(), want)
	}
	if n := len(b.log.list()); n == 0 || n > 20 {
		t.Errorf("%d events of notices that are kept in memory", n)
	}

	b.setFail(func(int, Alert) error { return errors.New("down") })
	for i := range 40 {
		_ = s.Put(large(fmt.Sprint("b", i), 16<<10)) // the last ten are too many
	}
	if _, dropped, _ := s.Counts(); s.Waiting() != 30 || dropped != 10 || b.log.dropped() != 10 {
		t.Errorf("%d wait, %d were dropped and %d of them recorded; want 30, 10 and 10", s.Waiting(), dropped, b.log.dropped())
	}
	free()
	eventually(t, "spooling", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.held) == 0
	})
	stop()
	b.setFail(nil)
	s, stop = b.spool(t, SpoolOptions{Limit: 30})
	eventually(t, "delivery after a restart", func() bool { return s.Waiting() == 0 })
	for i := range 30 {
		want = append(want, fmt.Sprint("b", i))
	}
	if b.received() != fmt.Sprint(want) {
		t.Errorf("received %s, want %s", b.received(), want)
	}

	b.setFail(func(int, Alert) error { return errors.New("down") })
	fillDisk(t, dir)
	for i := range 5 {
		_ = s.Put(large(fmt.Sprint("c", i), 256<<10))
	}
	stop()
	if n, left := b.log.dropped()-10, s.Waiting(); n == 0 || n+uint64(left) != 5 {
		t.Errorf("%d were dropped at the end and %d are spooled, want 5 in all and some dropped", n, left)
	}
}

// TestSpoolRecordsWhatItGaveUpLater: what was dropped while the log could not be
// written is a record when it can.
func TestSpoolRecordsWhatItGaveUpLater(t *testing.T) {
	b := newSpoolBench(t)
	b.log.setBroken(true)
	b.setFail(func(int, Alert) error { return Permanent(errors.New("410")) })
	s, stop := b.spool(t, SpoolOptions{})
	defer stop()
	putAll(t, s, "1", "2", "3")
	eventually(t, "giving up", func() bool { return s.Waiting() == 0 })
	b.log.setBroken(false)
	eventually(t, "records of it", func() bool { return b.log.dropped() > 0 })
	if n := b.log.dropped(); n != 3 {
		t.Errorf("records tell of %d notices, want 3", n)
	}
}

// TestSpoolTellsNoEndWithoutABeginning: a sink that was not told of an alert is
// not told that it is over; one that was is.
func TestSpoolTellsNoEndWithoutABeginning(t *testing.T) {
	b := newSpoolBench(t)
	b.setFail(func(_ int, a Alert) error {
		if strings.HasPrefix(a.Message, "lost") {
			return Permanent(errors.New("410"))
		}
		return nil
	})
	s, stop := b.spool(t, SpoolOptions{MaxAge: time.Hour})
	defer stop()
	for _, a := range []Alert{
		{ID: "never", State: Firing, Message: "lost", Count: 1, New: 1},
		{ID: "never", State: Resolved, Count: 1},
		{ID: "once", State: Firing, Count: 1, New: 1},
		{ID: "once", State: Firing, Message: "lost", Count: 3, New: 2},
		{ID: "once", State: Resolved, Count: 3},
		{ID: "later", State: Firing, Message: "lost", Count: 1, New: 1},
		{ID: "later", State: Firing, Count: 2, New: 1},
		{ID: "later", State: Resolved, Count: 2},
	} {
		if err := s.Put(a); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "delivery", func() bool { return s.Waiting() == 0 })
	if b.received() != "[once once later later]" {
		t.Errorf("received %s", b.received())
	}
	if n := b.log.dropped(); n != 4 {
		t.Errorf("%d records of notices given up, want 4", n)
	}
}

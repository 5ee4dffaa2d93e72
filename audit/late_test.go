package audit

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// end is the end of an attempt at host.
func end(host string) *Event {
	return &Event{Kind: KindHTTP, Phase: PhaseEnd, Host: host, Bytes: &Bytes{Sent: 1}}
}

// late hands the log what nobody waits for.
func late(t *testing.T, l *Log, host string) {
	t.Helper()
	if err := l.Later(end(host)); err != nil {
		t.Fatal(err)
	}
}

// TestLaterRidesWithTheNext: what nobody waits for is written by the write of
// the next decision, before it, and with the time at which it was handed over.
func TestLaterRidesWithTheNext(t *testing.T) {
	c := newClock()
	l := openTest(t, Options{Now: c.Now})
	l.mu.Lock()
	l.lateSoon = true // it must not be the timer that writes them
	l.mu.Unlock()
	write(t, l, "first.test")
	groups := l.Stats().Groups
	var handed []time.Time
	for i := range 3 {
		handed = append(handed, c.Now())
		late(t, l, fmt.Sprintf("end%d.test", i))
		c.step(time.Millisecond)
	}
	if n := len(lines(t, l.o.Dir)); n != 1 {
		t.Errorf("%d lines before anybody waits, want 1", n)
	}
	last := write(t, l, "last.test")
	events := checkChain(t, lines(t, l.o.Dir))
	if len(events) != 5 || events[4].Host != "last.test" || last.Seq != 5 {
		t.Fatalf("%d events, the last of %s with seq %d", len(events), events[len(events)-1].Host, last.Seq)
	}
	for i, e := range events[1:4] {
		if e.Host != fmt.Sprintf("end%d.test", i) || e.Time.Before(handed[i]) || e.Time.Sub(handed[i]) >= time.Millisecond {
			t.Errorf("event %d of %s at %s, handed over at %s", i, e.Host, e.Time, handed[i])
		}
	}
	if n := l.Stats().Groups - groups; n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
}

// TestLaterIsWrittenByItself: without anything after them late records are
// written soon, at once if they are many, and when the log is closed.
func TestLaterIsWrittenByItself(t *testing.T) {
	l := openTest(t, Options{})
	late(t, l, "soon.test")
	eventually(t, "writing of what is late", func() bool { return len(lines(t, l.o.Dir)) == 1 })

	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.lateSoon = true // nothing comes for them
	l.mu.Unlock()
	for i := range maxLate {
		if i == maxLate/2 {
			time.Sleep(2 * lateMost) // however long that takes
		}
		late(t, l, fmt.Sprintf("h%d.test", i))
	}
	if n := len(lines(t, dir)); n != maxLate {
		t.Errorf("%d lines, want %d", n, maxLate)
	}
	late(t, l, "closing.test")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if events := checkChain(t, lines(t, dir)); len(events) != maxLate+1 || events[maxLate].Host != "closing.test" {
		t.Errorf("%d events", len(events))
	}
	if err := l.Later(end("x.test")); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestLaterIsCountedInTheGap: a late record that cannot be written is one of
// those that the gap tells of, and of the count of refusals.
func TestLaterIsCountedInTheGap(t *testing.T) {
	d := &badDisk{room: -1}
	l := openBad(t, d, Options{})
	write(t, l, "a.test")
	d.set(func(d *badDisk) { d.room, d.writeErr = 0, syscall.ENOSPC })
	late(t, l, "b.test")
	eventually(t, "fault", func() bool { return l.Healthy() != nil })
	if err := l.Later(end("c.test")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("while the disk is full: %v", err)
	}
	if n := l.Stats().Refused; n != 2 {
		t.Errorf("%d refused, want 2", n)
	}
	d.set((*badDisk).heal)
	eventually(t, "recovery", func() bool { return l.Healthy() == nil })
	write(t, l, "d.test")
	count := uint64(0)
	for _, e := range actions(t, l.o.Dir) {
		if e.Note.Action == ActionGap {
			count += e.Count
		}
	}
	if got := hosts(t, Filter{Kind: "dns"}, l.o.Dir); count != 2 || fmt.Sprint(got) != "[a.test d.test]" {
		t.Errorf("gap of %d, want 2; records of %v", count, got)
	}
	if n := l.Stats().Refused; n != 2 {
		t.Errorf("%d refused after the recovery, want 2", n)
	}
}

// TestLaterWithManyWriters: with decisions and ends at once nothing is lost,
// the chain holds, and time runs forward.
func TestLaterWithManyWriters(t *testing.T) {
	const writers, each = 16, 200
	l := openTest(t, Options{SegmentBytes: 64 << 10})
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			var err error
			for i := range each {
				host := fmt.Sprintf("w%d-%d.test", w, i)
				err = errors.Join(err, l.Write(denial(host)), l.Later(end(host)))
			}
			done <- err
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "writing of all", func() bool { return l.Stats().Records == 2*writers*each })
	events := checkChain(t, lines(t, l.o.Dir))
	decided, ended := map[string]bool{}, 0
	for i, e := range events {
		if i > 0 && e.Time.Before(events[i-1].Time) {
			t.Fatalf("record %d is before the one before it", i)
		}
		switch e.Phase {
		case PhaseDecision:
			decided[e.Host] = true
		case PhaseEnd:
			if ended++; !decided[e.Host] {
				t.Fatalf("%s ends before it is decided", e.Host)
			}
		}
	}
	if len(decided) != writers*each || ended != writers*each {
		t.Errorf("%d decisions and %d ends, want %d of each", len(decided), ended, writers*each)
	}
}

// TestFolderHandsEndsToLater: ends do not hold anybody up.
func TestFolderHandsEndsToLater(t *testing.T) {
	m, ends := &memory{}, 0
	f, err := NewFolder(FolderOptions{Log: m, Later: func(*Event) error { ends++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Event{end("a.test"), decision(), denial("b.test")} {
		if err := f.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if ends != 1 || len(m.list()) != 2 {
		t.Errorf("%d late, %d waited for; want 1 and 2", ends, len(m.list()))
	}
}

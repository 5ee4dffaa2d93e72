package audit

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
)

func denials(n int, name string) []*Event {
	var es []*Event
	for i := range n {
		es = append(es, denial(fmt.Sprintf("%s%d.test", name, i)))
	}
	return es
}

// TestWriteAllTakesOneWrite: what one caller has at once is committed together,
// in its order, and each event learns of its place.
func TestWriteAllTakesOneWrite(t *testing.T) {
	l := openTest(t, Options{})
	groups := l.Stats().Groups
	es := denials(maxAtOnce, "n")
	if errs := l.WriteAll(es); errs != nil {
		t.Fatal(errs)
	}
	if n := l.Stats().Groups - groups; n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	more := denials(2*maxAtOnce+1, "m")
	if errs := l.WriteAll(more); errs != nil {
		t.Fatal(errs)
	}
	if errs := l.WriteAll(nil); errs != nil {
		t.Fatal(errs)
	}
	events := checkChain(t, lines(t, l.o.Dir))
	for i, e := range append(es, more...) {
		if got := events[i]; got.Host != e.Host || e.Seq != uint64(i+1) || got.ID != e.ID {
			t.Fatalf("record %d is %s with ID %s, want %s with ID %s", i, got.Host, got.ID, e.Host, e.ID)
		}
	}
}

// TestWriteAllThatFails: each event has its own error, those that are in the log
// have none, and each that is not is counted.
func TestWriteAllThatFails(t *testing.T) {
	d := &badDisk{room: -1}
	l := openBad(t, d, Options{})
	write(t, l, "before.test")
	line := len(lines(t, l.o.Dir)[0]) + 1
	d.set(func(d *badDisk) { d.room, d.writeErr = 3*line, syscall.ENOSPC })
	errs := l.WriteAll(denials(10, "n"))
	if len(errs) != 10 {
		t.Fatalf("%d errors", len(errs))
	}
	whole := len(lines(t, l.o.Dir)) - 1
	if whole < 1 || whole > 5 {
		t.Fatalf("%d lines fit", whole)
	}
	for i, err := range errs {
		if i < whole && err != nil || i >= whole && !errors.Is(err, ErrUnavailable) {
			t.Errorf("event %d of which %d are written: %v", i, whole, err)
		}
	}
	for _, err := range l.WriteAll(denials(5, "later")) {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("while it cannot be written: %v", err)
		}
	}
	if n := l.Stats().Refused; n != uint64(10-whole+5) {
		t.Errorf("%d refused, want %d", n, 10-whole+5)
	}
	d.set((*badDisk).heal)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if errs := l.WriteAll(denials(2, "n")); len(errs) != 2 || errs[0] == nil || errs[1] == nil {
		t.Errorf("after the end: %v", errs)
	}
}

// TestFolderFoldsWhatComesTogether: of events that are written together the
// repeats are folded as of events that come one by one, and an error is that of
// its event.
func TestFolderFoldsWhatComesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		ends := 0
		f := newFolder(t, FolderOptions{Log: m, Later: func(*Event) error { ends++; return ErrClosed }})
		es := []*Event{end("end.test")}
		for range 10 {
			es = append(es, denial("evil.test"), &Event{Kind: KindDNS, Phase: PhaseDecision, Verdict: "allow", Host: "good.test"})
		}
		errs := f.WriteAll(es)
		if ends != 1 || len(errs) != len(es) || !errors.Is(errs[0], ErrClosed) || errors.Join(errs[1:]...) != nil {
			t.Errorf("%d ends, errors %v", ends, errs)
		}
		if n := len(m.list()); n != 10+3 {
			t.Errorf("%d written at once, want the allowed and 3 denied", n)
		}
		if err := f.Flush(); err != nil || m.total() != 20 {
			t.Errorf("%d counted, want 20: %v", m.total(), err)
		}
		m.broken = true
		errs = f.WriteAll([]*Event{denial("evil.test"), es[2]})
		if len(errs) != 2 || !errors.Is(errs[0], ErrUnavailable) || !errors.Is(errs[1], ErrUnavailable) {
			t.Errorf("while the log is broken: %v", errs)
		}
	})
}

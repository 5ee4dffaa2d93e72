package audit

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// listening returns a log with rules that read it, about denials of so many
// names, and what reads it.
func listening(t *testing.T, o Options, rules ...AlertRule) (*Log, *Alerts) {
	t.Helper()
	state, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	l := openTest(t, o)
	a, err := NewAlerts(AlertOptions{Rules: rules, State: state, Log: l})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Open(t.Context(), l.o.Dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.cursor.close)
	return l, a
}

// smuggled is what the rule of these tests counts, in all that it has of a log.
func smuggled(t *testing.T, l *Log, a *Alerts) uint64 {
	t.Helper()
	a.drain(t.Context(), a.cursor)
	_, end, err := ends(l.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.cursor.at != end {
		t.Errorf("read up to %+v of %+v", a.cursor.at, end)
	}
	var n uint64
	for _, x := range a.Active() {
		n += x.Count
	}
	return n
}

var smuggling = AlertRule{Name: "smuggling", Reasons: []string{"smuggling"}}

func smuggle(t *testing.T, l *Log, n int) {
	t.Helper()
	for range n {
		e := denial("a.test")
		e.Reason = "smuggling"
		if err := l.Write(e); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuietLinesAreNotRead: of what a process writes its rules read the lines
// that they may count, each, and no other, over the end of segments too.
func TestQuietLinesAreNotRead(t *testing.T) {
	l, a := listening(t, Options{SegmentBytes: 256 << 10}, smuggling)
	for i := range 3000 {
		if i%1000 == 500 {
			smuggle(t, l, 1)
		}
		if err := l.Later(denial(fmt.Sprintf("h%d.test", i))); err != nil {
			t.Fatal(err)
		}
	}
	smuggle(t, l, 2)
	if l.Stats().Rotated < 3 {
		t.Fatalf("%+v", l.Stats())
	}
	read := 0
	for i := range 20 {
		a.skip(a.cursor)
		line, err := a.cursor.next()
		if err != nil {
			break
		}
		if !bytes.Contains(line, []byte("smuggling")) {
			t.Errorf("line %d is read: %s", i, line)
		}
		read++
	}
	if read != 5 {
		t.Errorf("%d lines are read, want 5", read)
	}
	smuggle(t, l, 3)
	write(t, l, "last.test")
	if n := smuggled(t, l, a); n != 3 {
		t.Errorf("%d counted, want 3", n)
	}
}

// TestQuietBeforeOtherRules: what is written and not yet read when rules are
// replaced is read by the new ones.
func TestQuietBeforeOtherRules(t *testing.T) {
	l, a := listening(t, Options{}, AlertRule{Name: "other", Reasons: []string{"placeholder_leak"}})
	smuggle(t, l, 4)
	if err := a.Replace([]AlertRule{smuggling}, nil); err != nil {
		t.Fatal(err)
	}
	smuggle(t, l, 2)
	write(t, l, "quiet.test")
	if n := smuggled(t, l, a); n != 6 {
		t.Errorf("%d counted, want 6", n)
	}
}

// TestMoreThanIsRemembered: lines beyond what is remembered are read one by one.
func TestMoreThanIsRemembered(t *testing.T) {
	l, a := listening(t, Options{Sync: SyncNever}, smuggling)
	const n = 2*maxLoud + 100
	for i := range n {
		e := denial(fmt.Sprintf("h%d.test", i))
		e.Reason = "smuggling"
		if err := l.Later(e); err != nil {
			t.Fatal(err)
		}
		write(t, l, "quiet.test")
	}
	if got := smuggled(t, l, a); got != n {
		t.Errorf("%d counted, want %d", got, n)
	}
	l.quiet.mu.Lock()
	defer l.quiet.mu.Unlock()
	if len(l.quiet.loud) > 0 || cap(l.quiet.loud) > 2*maxLoud {
		t.Errorf("%d are remembered still, with room for %d", len(l.quiet.loud), cap(l.quiet.loud))
	}
}

// TestQuietAfterAFailedWrite: what stays of a write that failed in the middle is
// counted as it lies in the file.
func TestQuietAfterAFailedWrite(t *testing.T) {
	l, a := listening(t, Options{Dir: filepath.Join(t.TempDir(), "audit")}, smuggling)
	smuggle(t, l, 1)
	whole := l.seg.f
	l.commitMu.Lock()
	l.seg.f = &partly{file: whole, lines: 2}
	l.commitMu.Unlock()
	bad := func() *Event { e := denial("b.test"); e.Reason = "smuggling"; return e }
	errs := l.WriteAll([]*Event{bad(), bad(), bad(), bad()})
	if errs == nil || errs[0] != nil || errs[1] != nil || !errors.Is(errs[3], ErrUnavailable) {
		t.Fatal(errs)
	}
	l.commitMu.Lock()
	l.seg.f = whole
	l.commitMu.Unlock()
	eventually(t, "log", func() bool { return l.Healthy() == nil })
	smuggle(t, l, 1)
	write(t, l, "quiet.test")
	if n := smuggled(t, l, a); n != 4 {
		t.Errorf("%d counted, want 4", n)
	}
}

// partly is a file that takes so many lines of a write.
type partly struct {
	file
	lines int
}

func (p *partly) Write(b []byte) (int, error) {
	n := 0
	for range p.lines {
		n += bytes.IndexByte(b[n:], '\n') + 1
	}
	n, err := p.file.Write(b[:n])
	return n, errors.Join(err, errors.New("no more"))
}

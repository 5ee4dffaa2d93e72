package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRotationBySizeUnderLoad(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 32 << 10, Interval: time.Millisecond})
	writeConcurrently(t, l, 16, 200)
	rep, err := Verify(l.o.Dir)
	if err != nil || rep.Records != 3200 || rep.Segments < 20 {
		t.Errorf("%+v, %v", rep, err)
	}
	list, err := segments(l.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if info, err := os.Stat(l.path(n)); err != nil || info.Size() > 40<<10 {
			t.Errorf("segment %d has %d bytes (%v)", n, info.Size(), err)
		}
	}
}

// clock is a wall clock that a test sets.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	passed time.Duration
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

// pass lets time pass, which a clock that nobody sets shows as well.
func (c *clock) pass(d time.Duration) {
	c.step(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed += d
}

// up is the clock that nobody sets.
func (c *clock) up() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestRotationByAge(t *testing.T) {
	c := newClock()
	l := openTest(t, Options{SegmentAge: time.Hour, Now: c.Now})
	write(t, l, "a.test")
	c.step(59 * time.Minute)
	write(t, l, "b.test")
	if list, _ := segments(l.o.Dir); len(list) != 1 {
		t.Errorf("segments %v before the age", list)
	}
	c.step(2 * time.Minute)
	write(t, l, "c.test")
	if list, _ := segments(l.o.Dir); len(list) != 2 {
		t.Errorf("segments %v after the age", list)
	}
}

func TestRetentionBySizeLeavesAnAnchor(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 8 << 10, RetainBytes: 40 << 10})
	writeConcurrently(t, l, 4, 250)
	eventually(t, "retention", func() bool {
		l.retain()
		rep, err := Verify(l.o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return rep.Anchored && rep.Bytes <= 50<<10
	})
	if l.Stats().Removed == 0 {
		t.Error("no removal counted")
	}
	notes := actions(t, l.o.Dir)
	last := notes[len(notes)-1]
	rep, err := Verify(l.o.Dir)
	if err != nil || last.Note.Action != ActionAnchor || last.Note.Seq != rep.FirstSeq {
		t.Errorf("last note %+v, log begins with %d (%v)", last.Note, rep.FirstSeq, err)
	}
	// What retention has not removed may not be taken away.
	if err := os.Remove(filepath.Join(l.o.Dir, last.Note.Segment)); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(l.o.Dir); err == nil || !strings.Contains(err.Error(), "no anchor") {
		t.Errorf("verify without the first segment: %v", err)
	}
}

func TestRetentionByAge(t *testing.T) {
	c := newClock()
	dir := filepath.Join(t.TempDir(), "audit")
	l := openTest(t, Options{Dir: dir, SegmentAge: time.Hour, RetainAge: 24 * time.Hour, Now: c.Now, up: c.up})
	for i := range 10 {
		write(t, l, fmt.Sprintf("h%d.test", i))
		c.pass(6 * time.Hour)
	}
	l.retain()
	got := hosts(t, Filter{Kind: "dns"}, dir)
	if fmt.Sprint(got) != "[h6.test h7.test h8.test h9.test]" && fmt.Sprint(got) != "[h7.test h8.test h9.test]" {
		t.Errorf("left: %v", got)
	}
	if rep, err := Verify(dir); err != nil || !rep.Anchored {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestRetentionKeepsTheOpenSegment(t *testing.T) {
	c := newClock()
	l := openTest(t, Options{SegmentAge: time.Hour, RetainAge: time.Minute, RetainBytes: 1, Now: c.Now})
	write(t, l, "a.test")
	c.step(time.Minute * 30)
	l.retain()
	if got := hosts(t, Filter{Kind: "dns"}, l.o.Dir); len(got) != 1 {
		t.Errorf("left: %v", got)
	}
}

func TestAUD10ClockSteps(t *testing.T) {
	c := newClock()
	l := openTest(t, Options{Now: c.Now})
	write(t, l, "a.test")
	c.step(time.Hour)
	write(t, l, "forward.test")
	c.step(-time.Hour)
	write(t, l, "back.test")
	c.step(-100 * time.Millisecond)
	write(t, l, "jitter.test")
	events := checkChain(t, lines(t, l.o.Dir))
	var got []string
	for i, e := range events {
		name := e.Host
		if e.Note != nil {
			name = e.Note.Action
		}
		got = append(got, name)
		if i > 0 && name != ActionClock && e.Time.Before(events[i-1].Time) {
			t.Errorf("%s is before %s, and nothing says that the clock went back", e.Time, events[i-1].Time)
		}
	}
	if want := "[a.test forward.test clock_step back.test jitter.test]"; fmt.Sprint(got) != want {
		t.Errorf("records %v, want %s", got, want)
	}
	since := events[3].Time
	if got := hosts(t, Filter{Since: since, Kind: "dns", Limit: 9}, l.o.Dir); fmt.Sprint(got) != "[forward.test back.test jitter.test]" {
		t.Errorf("since the step: %v", got)
	}
}

func TestAUD10SeqAndInstanceAcrossClockStepAndRestart(t *testing.T) {
	c := newClock()
	dir := filepath.Join(t.TempDir(), "audit")
	instances := map[string]bool{}
	for range 3 {
		l, err := Open(Options{Dir: dir, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		write(t, l, "a.test")
		instances[l.Instance()] = true
		l.Close()
		c.step(-time.Hour)
	}
	checkChain(t, lines(t, dir))
	if len(instances) != 3 {
		t.Errorf("%d instances in 3 starts", len(instances))
	}
}

func TestOpenSegmentDeletedByHand(t *testing.T) {
	l := openTest(t, Options{})
	write(t, l, "a.test")
	if err := os.Remove(l.path(1)); err != nil {
		t.Fatal(err)
	}
	write(t, l, "b.test")
	if got := hosts(t, Filter{Kind: "dns"}, l.o.Dir); fmt.Sprint(got) != "[a.test b.test]" {
		t.Errorf("records %v", got)
	}
	if _, err := Verify(l.o.Dir); err != nil {
		t.Error(err)
	}
	if notes := actions(t, l.o.Dir); len(notes) != 1 || notes[0].Note.Action != ActionRestored || !notes[0].Alerting() {
		t.Errorf("notes %+v", notes)
	}
}

func TestOpenSegmentChangedByHand(t *testing.T) {
	tests := map[string]struct {
		change func(path string) error
		action string
		holds  bool // whether the chain does
	}{
		"moved":    {func(path string) error { return os.Rename(path, path+".1") }, ActionMoved, false},
		"replaced": {func(path string) error { os.Remove(path); return os.WriteFile(path, nil, 0o600) }, ActionMoved, false},
		"cut":      {func(path string) error { return os.Truncate(path, 0) }, ActionTampered, false},
		"added to": {func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("{}\n")
			return err
		}, ActionTampered, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			l := openTest(t, Options{Now: c.Now})
			write(t, l, "a.test")
			write(t, l, "b.test")
			if err := test.change(l.path(1)); err != nil {
				t.Fatal(err)
			}
			c.step(2 * nameCheck)
			write(t, l, "c.test")
			write(t, l, "d.test")
			var notes []*Event
			var got []string
			for e, err := range Read(t.Context(), []string{l.o.Dir}, Filter{}) {
				switch {
				case err != nil:
				case e.Note != nil:
					notes = append(notes, e)
				default:
					got = append(got, e.Host)
				}
			}
			if len(notes) != 1 || notes[0].Note.Action != test.action || notes[0].Note.Segment != segmentName(1) || !notes[0].Alerting() {
				t.Errorf("notes %+v", notes)
			}
			if s := fmt.Sprint(got); !strings.HasSuffix(s, "c.test d.test]") {
				t.Errorf("records %s", s)
			}
			if _, err := Verify(l.o.Dir); (err == nil) != test.holds {
				t.Errorf("verify: %v", err)
			}
		})
	}
}

func TestClosedSegmentDeletedByHand(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 2 << 10})
	for range 20 {
		write(t, l, "a.test")
	}
	if err := os.Remove(l.path(2)); err != nil {
		t.Fatal(err)
	}
	l.keepHouse()
	l.keepHouse()
	notes := actions(t, l.o.Dir)
	if len(notes) != 1 || notes[0].Note.Action != ActionMissing || notes[0].Note.Segment != segmentName(2) {
		t.Errorf("notes %+v", notes)
	}
	write(t, l, "b.test")
}

func TestStateRemembersTheEnd(t *testing.T) {
	base := t.TempDir()
	state, err := OpenState(filepath.Join(base, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	dir := filepath.Join(base, "audit")
	for range 2 {
		l, err := Open(Options{Dir: dir, State: state})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			write(t, l, "a.test")
		}
		l.Close()
	}
	if notes := actions(t, dir); len(notes) != 0 {
		t.Errorf("notes %+v", notes)
	}
	path := filepath.Join(dir, segmentName(1))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:strings.Index(string(b), `"seq":8,`)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Dir: dir, State: state})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	notes := actions(t, dir)
	if len(notes) != 2 || notes[1].Note.Action != ActionTruncated || notes[1].Seq <= 10 {
		t.Errorf("notes %+v", notes)
	}
	if _, err := Verify(dir); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("verify: %v", err)
	}
}

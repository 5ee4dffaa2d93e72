package audit

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRetentionDoesNotBelieveAStepForward: what a step of the wall clock makes
// old is removed only when the step has lasted.
func TestRetentionDoesNotBelieveAStepForward(t *testing.T) {
	c := newClock()
	state := openTestState(t)
	o := Options{State: state, Dir: filepath.Join(t.TempDir(), "audit"), SegmentBytes: 2 << 10, RetainAge: 30 * 24 * time.Hour, Now: c.Now, up: c.up}
	l := openTest(t, o)
	var want []uint64
	step := func() {
		for i := range 20 {
			write(t, l, fmt.Sprintf("h%d.test", i))
		}
		want, _ = segments(o.Dir)
		c.step(400 * 24 * time.Hour)
		write(t, l, "after.test")
	}
	kept := func(when string) {
		t.Helper()
		l.retain()
		if list, err := segments(o.Dir); err != nil || list[0] != want[0] {
			t.Fatalf("%s the log begins with segment %d, want %d (%v)", when, list[0], want[0], err)
		}
	}
	step()
	kept("after the step")
	c.pass(59 * time.Minute)
	kept("before the hour is over")
	c.step(-400 * 24 * time.Hour)
	kept("when the clock is right again")
	c.pass(2 * time.Hour)
	kept("long after")
	told := 0
	for _, e := range actions(t, o.Dir) {
		if e.Note.Action == ActionClock && e.Severity == High && strings.Contains(e.Message, "forward by 9600h") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times of the step, want once", told)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c.step(400 * 24 * time.Hour)
	l = openTest(t, o)
	kept("at a start with another clock")
	write(t, l, "restarted.test")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, o)
	kept("after a start with another clock")
	c.pass(61 * time.Minute)
	l.retain()
	if list, err := segments(o.Dir); err != nil || list[0] == want[0] {
		t.Errorf("a step that lasted an hour is not believed (%v)", err)
	}
}

func TestPaceOfTwoSteps(t *testing.T) {
	start := newClock().now
	p := newPace(start, start, 0)
	for i, look := range []struct{ up, ahead, want, told time.Duration }{
		{time.Minute, time.Second, time.Second, 0}, // below the bound
		{2 * time.Minute, 2 * time.Hour, 0, 2 * time.Hour},
		{61 * time.Minute, 2 * time.Hour, 0, 0},
		{61 * time.Minute, 1<<63 - 1 - 61*time.Minute, 0, 1<<63 - 1 - 61*time.Minute - 2*time.Hour}, // a second one waits by itself
		{63 * time.Minute, 1<<63 - 1 - 63*time.Minute, 0, 0},
		{64 * time.Minute, 3 * time.Hour, 0, 0}, // and so does what is left of it
		{123 * time.Minute, 3 * time.Hour, 0, 0},
		{124 * time.Minute, 3 * time.Hour, 3 * time.Hour, 0},
		{125 * time.Minute, 3 * time.Hour, 3 * time.Hour, 0},
		{126 * time.Minute, 0, 0, 0}, // back
		{127 * time.Minute, 3 * time.Hour, 0, 3 * time.Hour},
	} {
		at, told := p.believed(start.Add(look.up).Add(look.ahead), look.up)
		if got := at.Sub(start) - look.up; got != look.want || told != look.told {
			t.Errorf("look %d: %s ahead is believed, told of %s; want %s and %s", i, got, told, look.want, look.told)
		}
	}
}

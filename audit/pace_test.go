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

// TestRetentionOfShortRuns: what is old is removed though no run lasts as long
// as a step must, however the clock comes to be right in each.
func TestRetentionOfShortRuns(t *testing.T) {
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		run, behind time.Duration // behind: at its start, until the first look
		most        int           // days that are left
	}{
		"most of an hour":                 {run: 50 * time.Minute, most: 34},
		"and the clock is set afterwards": {run: 50 * time.Minute, behind: 23 * time.Hour, most: 34},
		"some minutes":                    {run: 10 * time.Minute, most: 44},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			o := Options{State: openTestState(t), Dir: filepath.Join(t.TempDir(), "audit"), SegmentAge: time.Hour,
				RetainAge: 30 * day, Sync: SyncNever, Now: c.Now, up: c.up}
			for d := range 100 {
				c.step(-tc.behind)
				l := openTest(t, o)
				c.step(tc.behind)
				for range 5 {
					l.retain()
					write(t, l, fmt.Sprintf("h%d.test", d))
					c.pass(tc.run / 5)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				c.pass(day - tc.run)
			}
			left := 0
			for e, err := range Read(t.Context(), []string{o.Dir}, Filter{Kind: string(KindDNS)}) {
				if err != nil {
					t.Fatal(err)
				}
				if left == 0 {
					_, _ = fmt.Sscanf(e.Host, "h%d.test", &left)
					left = 100 - left
				}
			}
			if left < 30 || left > tc.most {
				t.Errorf("%d days are left, want 30 to %d", left, tc.most)
			}
		})
	}
}

// TestStepThatOneRunSees: a step that is over before it has lasted removes
// nothing, though runs before it were waiting for another.
func TestStepThatOneRunSees(t *testing.T) {
	c := newClock()
	o := Options{State: openTestState(t), Dir: filepath.Join(t.TempDir(), "audit"), SegmentAge: time.Hour,
		RetainAge: 30 * 24 * time.Hour, Now: c.Now, up: c.up}
	run := func() {
		l := openTest(t, o)
		write(t, l, "a.test")
		c.pass(50 * time.Minute)
		l.retain()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	run()
	c.step(24 * time.Hour)
	run() // of the hour that the day must last, this is most
	c.step(400 * 24 * time.Hour)
	run()
	c.step(-400 * 24 * time.Hour)
	run()
	c.step(400 * 24 * time.Hour)
	run()
	list, err := segments(o.Dir)
	if err != nil || list[0] != 1 {
		t.Errorf("the log begins with segment %d (%v), want 1", list[0], err)
	}
}

func TestPaceOfTwoSteps(t *testing.T) {
	const most = 1<<63 - 1
	start := newClock().now
	p := newPace(start, unbelieved{}, start, 0)
	for i, look := range []struct{ up, ahead, want, told time.Duration }{
		{time.Minute, time.Second, time.Second, 0}, // below the bound
		{2 * time.Minute, 2 * time.Hour, 0, 2 * time.Hour},
		{61 * time.Minute, 2 * time.Hour, 0, 0},
		{61 * time.Minute, most - 61*time.Minute, 0, most - 61*time.Minute - 2*time.Hour}, // a second one
		{63 * time.Minute, most - 63*time.Minute, 2 * time.Hour, 0},                       // waits by itself
		{122 * time.Minute, most - 122*time.Minute, 2 * time.Hour, 0},
		{122 * time.Minute, 5 * time.Hour, 2 * time.Hour, 0}, // what is left of it has lasted as long
		{123 * time.Minute, 5 * time.Hour, 5 * time.Hour, 0},
		{124 * time.Minute, 5 * time.Hour, 5 * time.Hour, 0},
		{126 * time.Minute, 0, 0, 0}, // back
		{127 * time.Minute, 3 * time.Hour, 0, 3 * time.Hour},
		{128 * time.Minute, 0, 0, 0},
		{187 * time.Minute, 3 * time.Hour, 0, 3 * time.Hour}, // it has not lasted
	} {
		at, told := p.believed(start.Add(look.up).Add(look.ahead), look.up)
		if got := at.Sub(start) - look.up; got != look.want || told != look.told {
			t.Errorf("look %d: %s ahead is believed, told of %s; want %s and %s", i, got, told, look.want, look.told)
		}
	}
}

package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// receiver is a Carrier that keeps what it takes.
type receiver struct {
	mu     sync.Mutex
	hosts  []string
	broken error
	refuse string // host of a record that it does not take
	tries  int
}

func (r *receiver) Carry(_ context.Context, events []*Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.broken != nil {
		return r.broken
	}
	for _, e := range events {
		if r.refuse != "" && e.Host == r.refuse {
			return Permanent(errors.New("unreadable"))
		}
	}
	for _, e := range events {
		if e.Kind == KindDNS {
			r.hosts = append(r.hosts, e.Host)
		}
	}
	return nil
}

func (r *receiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.hosts)
}

func (r *receiver) set(f func(r *receiver)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

// shipping is a log that is shipped to r.
func shipping(t *testing.T, l *Log, r Carrier, state *State) (stop func()) {
	return countedShipping(t, l, r, state, nil)
}

// countedShipping is shipping with a count of what became of the records.
func countedShipping(t *testing.T, l *Log, r Carrier, state *State, count func(string, int)) (stop func()) {
	t.Helper()
	s, err := NewShipper(ShipperOptions{Name: "r", Dir: l.o.Dir, Carrier: r, State: state, Log: l, Count: count, Batch: 8,
		Interval: 5 * time.Millisecond, RetryFirst: 5 * time.Millisecond, RetryMost: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func openTestState(t *testing.T) *State {
	t.Helper()
	s, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestShipperCarriesEverything: what was written before, while it runs and
// while it does not run arrives in order, over segments, and nothing twice where
// nothing fails.
func TestShipperCarriesEverything(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 4 << 10})
	state, r := openTestState(t), &receiver{}
	var want []string
	more := func(n int) {
		for range n {
			want = append(want, fmt.Sprintf("h%d.test", len(want)))
			write(t, l, want[len(want)-1])
		}
	}
	more(30)
	for range 3 {
		stop := shipping(t, l, r, state)
		more(30)
		eventually(t, "arrival", func() bool { return len(r.got()) >= len(want) })
		stop()
		more(5)
	}
	stop := shipping(t, l, r, state)
	eventually(t, "arrival", func() bool { return len(r.got()) >= len(want) })
	stop()
	if got := r.got(); !slices.Equal(got, want) {
		t.Errorf("%d records arrived of %d, or in another order", len(got), len(want))
	}
}

// TestShipperWaitsForItsReceiver: a receiver that takes nothing is asked again,
// the log says so once, and everything arrives when it does.
func TestShipperWaitsForItsReceiver(t *testing.T) {
	l := openTest(t, Options{})
	state, r := openTestState(t), &receiver{broken: errors.New("503")}
	for i := range 20 {
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	stop := shipping(t, l, r, state)
	eventually(t, "third attempt", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.tries >= 3 })
	r.set(func(r *receiver) { r.broken = nil })
	eventually(t, "arrival", func() bool { return len(r.got()) == 20 })
	stop()
	notes := actions(t, l.o.Dir)
	if len(notes) != 1 || notes[0].Note.Action != ActionUnshipped {
		t.Errorf("notes %+v, want one", notes)
	}
}

// TestShipperGivesUpWhatIsNotTaken: one record that the receiver never takes
// does not hold up the others, and is told of.
func TestShipperGivesUpWhatIsNotTaken(t *testing.T) {
	l := openTest(t, Options{})
	state, r := openTestState(t), &receiver{refuse: "h5.test"}
	for i := range 20 {
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	stop := shipping(t, l, r, state)
	eventually(t, "arrival", func() bool { return len(r.got()) == 19 })
	stop()
	if notes := actions(t, l.o.Dir); len(notes) != 1 || notes[0].Note.Action != ActionUnshippable {
		t.Errorf("notes %+v, want one", notes)
	}
}

// TestShipperTellsWhatRetentionTook: segments that were removed before they
// were shipped are told of.
func TestShipperTellsWhatRetentionTook(t *testing.T) {
	l := openTest(t, Options{SegmentBytes: 2 << 10, RetainBytes: 6 << 10})
	state, r := openTestState(t), &receiver{}
	write(t, l, "first.test")
	stop := shipping(t, l, r, state)
	eventually(t, "arrival", func() bool { return len(r.got()) == 1 })
	stop()
	for i := range 100 {
		write(t, l, fmt.Sprintf("h%d.test", i))
	}
	l.retain()
	stop = shipping(t, l, r, state)
	eventually(t, "arrival", func() bool { return slices.Contains(r.got(), "h99.test") })
	stop()
	for _, e := range actions(t, l.o.Dir) {
		if e.Note.Action == ActionUnshippable && e.Note.Segments > 0 && e.Severity == Critical {
			return
		}
	}
	t.Error("nothing tells of the segments that were not shipped")
}

// TestShipperCountsWhatIsGone: of a segment that was shipped in part and is gone
// at the start, and of those after it, every record that was not shipped is
// counted, and told of once.
func TestShipperCountsWhatIsGone(t *testing.T) {
	for name, gone := range map[string][]uint64{"in part": {1}, "and whole ones": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			l := openTest(t, Options{SegmentBytes: 2 << 10})
			state, r := openTestState(t), &receiver{}
			write(t, l, "first.test")
			stop := shipping(t, l, r, state)
			eventually(t, "arrival", func() bool { return len(r.got()) == 1 })
			stop()
			for i := range 40 {
				write(t, l, fmt.Sprintf("h%d.test", i))
			}
			for _, n := range gone {
				if err := os.Remove(l.path(n)); err != nil {
					t.Fatal(err)
				}
			}
			first, err := os.Open(l.path(gone[len(gone)-1] + 1))
			if err != nil {
				t.Fatal(err)
			}
			defer first.Close()
			h, err := firstRecord(first)
			if err != nil {
				t.Fatal(err)
			}
			var dropped atomic.Int64
			stop = countedShipping(t, l, r, state, func(result string, n int) {
				if result == "dropped" {
					dropped.Add(int64(n))
				}
			})
			eventually(t, "arrival", func() bool { return slices.Contains(r.got(), "h39.test") })
			stop()
			if got, want := dropped.Load(), int64(h.seq-2); got != want {
				t.Errorf("%d dropped, want %d", got, want)
			}
			told := 0
			for _, e := range actions(t, l.o.Dir) {
				if e.Note.Action == ActionUnshippable && e.Severity == Critical && strings.Contains(e.Message, fmt.Sprintf("records 2 to %d ", h.seq-1)) {
					told++
				}
			}
			if told != 1 {
				t.Errorf("told %d times of the records that are gone", told)
			}
		})
	}
}

// TestShippingGoesOnAfterTheLogIsGone: a log whose segments were deleted goes on
// with numbers that nobody waits beyond.
func TestShippingGoesOnAfterTheLogIsGone(t *testing.T) {
	for name, left := range map[string]uint64{"all are gone": 0, "the first is left": 1} {
		t.Run(name, func(t *testing.T) {
			state, r := openTestState(t), &receiver{}
			o := Options{Dir: filepath.Join(t.TempDir(), "audit"), SegmentBytes: 2 << 10, State: state}
			l := openTest(t, o)
			for i := range 30 {
				write(t, l, fmt.Sprintf("h%d.test", i))
			}
			stop := shipping(t, l, r, state)
			eventually(t, "arrival", func() bool { return len(r.got()) == 30 })
			stop()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			list, err := segments(o.Dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range list[left:] {
				if err := os.Remove(l.path(n)); err != nil {
					t.Fatal(err)
				}
			}
			l = openTest(t, o)
			write(t, l, "after.test")
			if last := list[len(list)-1]; l.seg.n <= last {
				t.Errorf("segment %d, although %d was there", l.seg.n, last)
			}
			stop = shipping(t, l, r, state)
			eventually(t, "arrival", func() bool { return slices.Contains(r.got(), "after.test") })
			stop()
			if n := len(r.got()); n != 31 {
				t.Errorf("%d records arrived, want 31", n)
			}
		})
	}
}

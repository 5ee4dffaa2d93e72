package audit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// follow collects the hosts of want events and fails if they do not come. It
// calls ready, which may write some, once they are followed.
func follow(t *testing.T, dirs []string, f Filter, want int, ready func()) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got []string
	next := Follow(ctx, dirs, f)
	if ready != nil {
		go ready()
	}
	for e, err := range next {
		if err != nil {
			t.Error(err)
			continue
		}
		got = append(got, e.Host)
		if len(got) == want {
			break
		}
	}
	if len(got) != want {
		t.Fatalf("%d events, want %d", len(got), want)
	}
	return got
}

func TestFollowHasNoGapAndNoDouble(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Options{Dir: dir, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	const writers, each = 4, 1500
	var begun atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		begun.Store(true)
		writeConcurrently(t, l, writers, each)
	}()
	for !begun.Load() || l.Stats().Records < 500 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	next := uint64(1)
	for e, err := range Follow(ctx, []string{dir}, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != next {
			t.Fatalf("record %d, want %d", e.Seq, next)
		}
		if next++; next > writers*each {
			break
		}
	}
	<-done
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if next != writers*each+1 {
		t.Errorf("followed to %d of %d", next-1, writers*each)
	}
}

func TestFollowBeginsWithTheLast(t *testing.T) {
	l := openTest(t, Options{})
	for i := range 10 {
		write(t, l, fmt.Sprintf("old%d.test", i))
	}
	got := follow(t, []string{l.o.Dir}, Filter{Limit: 2}, 3, func() {
		l.Write(denial("new.test"))
	})
	if want := "[old8.test old9.test new.test]"; fmt.Sprint(got) != want {
		t.Errorf("followed %v, want %s", got, want)
	}
	got = follow(t, []string{l.o.Dir}, Filter{Limit: -1, Host: "live*"}, 1, func() {
		l.Write(denial("other.test"))
		l.Write(denial("live.test"))
	})
	if fmt.Sprint(got) != "[live.test]" {
		t.Errorf("followed %v without history", got)
	}
}

// TestFollowBeginsWithTheCall: what is written after the call of Follow comes,
// though nobody reads yet.
func TestFollowBeginsWithTheCall(t *testing.T) {
	l := openTest(t, Options{})
	write(t, l, "old.test")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next := Follow(ctx, []string{l.o.Dir}, Filter{Limit: -1})
	write(t, l, "new.test")
	for e, err := range next {
		if err != nil || e.Host != "new.test" {
			t.Errorf("followed %v, %v", e, err)
		}
		return
	}
	t.Error("nothing comes")
}

func TestFollowFindsNewLogs(t *testing.T) {
	base := filepath.Join(t.TempDir(), "state", "logs")
	got := follow(t, []string{base}, Filter{}, 2, func() {
		for _, name := range []string{"one", "two"} {
			time.Sleep(50 * time.Millisecond)
			l, err := Open(Options{Dir: filepath.Join(base, name)})
			if err != nil {
				t.Error(err)
				return
			}
			l.Write(denial(name))
			l.Close()
		}
	})
	slices.Sort(got) // logs are not ordered among one another
	if fmt.Sprint(got) != "[one two]" {
		t.Errorf("followed %v", got)
	}
}

// TestFollowGoesOnInALogThatBeginsAnew: the log is deleted with all that
// remembers it, and numbers begin again at 1.
func TestFollowGoesOnInALogThatBeginsAnew(t *testing.T) {
	for name, n := range map[string]int{"in the first segment": 2, "in a later one": 30} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "audit")
			fill := func(host string, n int) {
				l, err := Open(Options{Dir: dir, SegmentBytes: 4 << 10})
				if err != nil {
					t.Error(err)
					return
				}
				for i := range n {
					if err := l.Write(denial(fmt.Sprintf("%s%d.test", host, i))); err != nil {
						t.Error(err)
					}
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			fill("old", n)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var got []string
			for e, err := range Follow(ctx, []string{dir}, Filter{}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e.Host)
				switch {
				case len(got) == n:
					fill("live", 1)
				case len(got) == n+1: // the follower has the last segment open
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond) // file systems count time in ticks
					fill("new", 2)
				}
				if len(got) == n+3 {
					break
				}
			}
			if want := "[live0.test new0.test new1.test]"; len(got) < n || fmt.Sprint(got[n:]) != want {
				t.Errorf("followed %v after the old, want %s", got[min(n, len(got)):], want)
			}
		})
	}
}

func TestFollowAcrossDeletionAndTornEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	first := make(chan struct{})
	go func() {
		defer close(first)
		l, err := Open(Options{Dir: dir})
		if err != nil {
			t.Error(err)
			return
		}
		l.Write(denial("a"))
		time.Sleep(300 * time.Millisecond)
		os.Remove(filepath.Join(dir, segmentName(1)))
		time.Sleep(300 * time.Millisecond)
		l.Write(denial("b"))
		l.Close()
		f, err := os.OpenFile(filepath.Join(dir, segmentName(1)), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		f.WriteString(`{"schema":"sallyport.audit/1","time":"20`)
		f.Close()
		time.Sleep(300 * time.Millisecond)
		l, err = Open(Options{Dir: dir})
		if err != nil {
			t.Error(err)
			return
		}
		l.Write(denial("c"))
		l.Close()
	}()
	got := follow(t, []string{dir}, Filter{Kind: "dns"}, 3, nil)
	<-first
	if fmt.Sprint(got) != "[a b c]" {
		t.Errorf("followed %v", got)
	}
}

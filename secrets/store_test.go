package secrets

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a source whose next answers are set by the test.
type fake struct {
	mu      sync.Mutex
	value   string
	ttl     time.Duration
	delay   time.Duration
	err     error
	calls   int
	at, max atomic.Int32 // fetches at once
	changed func()
}

func (f *fake) Fetch(ctx context.Context) (Fetched, error) {
	f.max.Store(max(f.max.Load(), f.at.Add(1)))
	defer f.at.Add(-1)
	f.mu.Lock()
	f.calls++
	value, ttl, delay, err := f.value, f.ttl, f.delay, f.err
	f.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return Fetched{}, ctx.Err()
		}
	}
	if err != nil {
		return Fetched{}, err
	}
	v, err := NewValue([]byte(value))
	return Fetched{Value: v, TTL: ttl}, err
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// watched is a fake that announces changes.
type watched struct{ fake }

func (w *watched) Watch(_ context.Context, changed func()) error {
	w.set(func(f *fake) { f.changed = changed })
	return nil
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func one(src Source, stale bool) Options {
	return Options{Specs: []Spec{{Name: "KEY", Kind: "fake", Source: src, Stale: stale}}}
}

func want(t *testing.T, s *Store, value string) {
	t.Helper()
	v, err := s.Get(t.Context(), "KEY")
	if err != nil || v.Reveal() != value {
		t.Fatalf("Get = %q, %v; want %q", v.Reveal(), err, value)
	}
}

func wantError(t *testing.T, s *Store, text string) {
	t.Helper()
	v, err := s.Get(t.Context(), "KEY")
	if err == nil || !strings.Contains(err.Error(), text) || !v.IsZero() || !strings.HasPrefix(err.Error(), `secret "KEY": `) {
		t.Fatalf("Get = %v, %v; want %q", v, err, text)
	}
}

func TestOpenRefuses(t *testing.T) {
	for want, specs := range map[string][]Spec{
		"a name is": {{Name: "lower", Source: &fake{}}}, "no source": {{Name: "KEY"}},
		"declared twice": {{Name: "KEY", Source: &fake{}}, {Name: "KEY", Source: &fake{}}},
	} {
		if _, err := Open(Options{Specs: specs}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestGetCachesAndExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{value: "one", ttl: time.Hour}
		s := open(t, one(f, false))
		want(t, s, "one")
		f.set(func(f *fake) { f.value = "two" })
		time.Sleep(30 * time.Minute)
		want(t, s, "one")
		if f.count() != 1 {
			t.Errorf("%d fetches", f.count())
		}
		time.Sleep(31 * time.Minute)
		want(t, s, "two")
		if _, err := s.Get(t.Context(), "NO_SUCH"); !errors.Is(err, ErrUnknown) {
			t.Errorf("error %v", err)
		}
	})
}

func TestTTLIsTheShorter(t *testing.T) {
	for _, tt := range []struct{ spec, source, want time.Duration }{
		{0, 0, 0}, {time.Hour, 0, time.Hour}, {0, time.Hour, time.Hour}, {time.Minute, time.Hour, time.Minute}, {time.Hour, time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := one(&fake{value: "v", ttl: tt.source}, false)
			o.Specs[0].TTL = tt.spec
			s := open(t, o)
			want(t, s, "v")
			got := time.Duration(0)
			if e := s.Status()[0].Expires; !e.IsZero() {
				got = time.Until(e)
			}
			if got != tt.want {
				t.Errorf("spec %v, source %v: good for %v", tt.spec, tt.source, got)
			}
		})
	}
}

func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{value: "one", delay: time.Second}
		s := open(t, one(f, false))
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { want(t, s, "one") })
		}
		wg.Wait()
		if f.count() != 1 || f.max.Load() != 1 {
			t.Errorf("%d fetches, %d at once", f.count(), f.max.Load())
		}
	})
}

func TestRefreshAheadDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{value: "one", ttl: 100 * time.Minute}
		s := open(t, one(f, false))
		want(t, s, "one")
		f.set(func(f *fake) { f.value, f.delay = "two", time.Second })
		time.Sleep(91 * time.Minute) // past 90 %, before the end
		want(t, s, "one")
		time.Sleep(2 * time.Second)
		want(t, s, "two")
	})
}

func TestRefreshIsJittered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Time]bool{}
		for range 20 {
			e := entry{spec: Spec{TTL: 100 * time.Minute}}
			e.take(Fetched{Value: Value{reveal: func() string { return "v" }}}, time.Now(), time.Hour)
			seen[e.refresh] = true
			if d := time.Until(e.refresh); d < 75*time.Minute || d > 90*time.Minute {
				t.Errorf("refresh after %v", d)
			}
		}
		if len(seen) < 10 {
			t.Errorf("%d different times of 20", len(seen))
		}
	})
}

func TestRunRefreshesWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used, idle := &fake{value: "one", ttl: 10 * time.Minute}, &fake{value: "x", ttl: 10 * time.Minute}
		s := open(t, Options{Specs: []Spec{{Name: "KEY", Source: used}, {Name: "IDLE", Source: idle}}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.Run(ctx) })
		want(t, s, "one")
		want(t, s, "one") // used after it was fetched
		if _, err := s.Get(ctx, "IDLE"); err != nil {
			t.Fatal(err)
		}
		used.set(func(f *fake) { f.value = "two" })
		time.Sleep(9*time.Minute + 30*time.Second)
		if used.count() != 2 || idle.count() != 1 {
			t.Errorf("used: %d fetches, idle: %d", used.count(), idle.count())
		}
		want(t, s, "two")
		cancel()
		wg.Wait()
	})
}

func TestSEC26SourceDown(t *testing.T) {
	t.Run("an error, then back-off, then recovery without restart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{err: errors.New("exit status 1")}
			s := open(t, one(f, false))
			wantError(t, s, "exit status 1")
			for range 50 {
				wantError(t, s, "exit status 1")
			}
			if f.count() != 1 {
				t.Errorf("%d fetches within the first pause", f.count())
			}
			f.set(func(f *fake) { f.err, f.value = nil, "back" })
			time.Sleep(1300 * time.Millisecond)
			want(t, s, "back")
		})
	})
	t.Run("pauses grow to a minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{err: errors.New("down")}
			s := open(t, one(f, false))
			end := time.Now().Add(time.Hour)
			for time.Now().Before(end) {
				wantError(t, s, "down")
				time.Sleep(100 * time.Millisecond)
			}
			if n := f.count(); n < 50 || n > 70 {
				t.Errorf("%d fetches in an hour", n)
			}
		})
	})
	t.Run("a source that hangs is waited for 5 s", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{value: "late", delay: 20 * time.Second}
			s := open(t, one(f, false))
			start := time.Now()
			wantError(t, s, "no answer within 5s")
			if d := time.Since(start); d != 5*time.Second {
				t.Errorf("waited %v", d)
			}
			time.Sleep(16 * time.Second) // it goes on for those who ask next
			want(t, s, "late")
			if f.count() != 1 {
				t.Errorf("%d fetches", f.count())
			}
		})
	})
	t.Run("the caller's end ends the wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, one(&fake{value: "late", delay: 20 * time.Second}, false))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.Get(ctx, "KEY"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("a source that hangs is said to", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, one(&fake{value: "late", delay: time.Hour}, false))
			if err := s.Check(t.Context(), "KEY"); err == nil || err.Error() != `secret "KEY": source gave no answer within 30s` {
				t.Errorf("error %v", err)
			}
		})
	})
	t.Run("others are not held up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Options{Specs: []Spec{
				{Name: "HUNG", Source: &fake{delay: 20 * time.Second}}, {Name: "KEY", Source: &fake{value: "v"}},
			}})
			go s.Get(t.Context(), "HUNG")
			synctest.Wait()
			start := time.Now()
			want(t, s, "v")
			if time.Since(start) != 0 {
				t.Error("waited")
			}
			time.Sleep(time.Minute)
		})
	})
}

func TestStaleWithinABound(t *testing.T) {
	for _, stale := range []bool{false, true} {
		t.Run(fmt.Sprintf("stale=%v", stale), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{value: "one", ttl: 10 * time.Minute}
				o := one(f, stale)
				o.StaleFor = 30 * time.Minute
				s := open(t, o)
				want(t, s, "one")
				f.set(func(f *fake) { f.err = errors.New("down") })
				time.Sleep(11 * time.Minute)
				if !stale {
					wantError(t, s, "down")
					return
				}
				want(t, s, "one")
				if st := s.Status()[0]; !st.Stale || !st.Held || st.Error != "down" {
					t.Errorf("status %+v", st)
				}
				time.Sleep(31 * time.Minute)
				wantError(t, s, "down")
			})
		})
	}
}

func TestRotationByWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes atomic.Int32
		w := &watched{fake{value: "one"}}
		o := one(w, false)
		o.OnChange = func(name string) {
			if name == "KEY" {
				changes.Add(1)
			}
		}
		s := open(t, o)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.Run(ctx) })
		synctest.Wait()
		want(t, s, "one")
		inFlight, _ := s.Get(ctx, "KEY")

		w.set(func(f *fake) { f.value, f.delay = "two", time.Second })
		w.changed()
		want(t, s, "two") // waits: the old one is known to be old
		if inFlight.Reveal() != "one" {
			t.Error("a request under way lost its value")
		}
		// A change during a fetch: what it gave is old already.
		w.changed()
		synctest.Wait()
		w.set(func(f *fake) { f.value = "three" })
		w.changed()
		want(t, s, "three")
		// The source goes and comes back.
		w.set(func(f *fake) { f.err = errors.New("no such file") })
		w.changed()
		wantError(t, s, "no such file")
		w.set(func(f *fake) { f.err, f.value = nil, "four" })
		w.changed()
		want(t, s, "four")
		held := map[string]bool{}
		for _, h := range s.Held() {
			held[h.Value.Reveal()] = true
		}
		if diff := cmp.Diff(map[string]bool{"one": true, "two": true, "three": true, "four": true}, held); diff != "" {
			t.Error(diff)
		}
		time.Sleep(2 * time.Hour)
		if n := len(s.Held()); n != 1 {
			t.Errorf("%d values held after two hours", n)
		}
		if n := changes.Load(); n < 4 {
			t.Errorf("%d changes", n)
		}
		cancel()
		wg.Wait()
	})
}

func TestWatchBeforeFirstUseFetchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{fake{value: "one"}}
		s := open(t, one(w, false))
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		synctest.Wait()
		w.changed()
		synctest.Wait()
		if w.count() != 0 {
			t.Errorf("%d fetches", w.count())
		}
		cancel()
		synctest.Wait()
	})
}

func TestCheckFetchesAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{err: errors.New("down")}
		s := open(t, one(f, false))
		for i := range 3 {
			if err := s.Check(t.Context(), "KEY"); err == nil || f.count() != i+1 {
				t.Errorf("error %v after %d fetches", err, f.count())
			}
		}
		f.set(func(f *fake) { f.err, f.value = nil, "v" })
		if err := s.Check(t.Context(), "KEY"); err != nil {
			t.Error(err)
		}
		want(t, s, "v")
		if err := s.Check(t.Context(), "NO_SUCH"); !errors.Is(err, ErrUnknown) {
			t.Errorf("error %v", err)
		}
	})
}

func TestAUD02ErrorsAndStatusShowNoValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{value: hidden, ttl: time.Minute}
		s := open(t, one(f, false))
		want(t, s, hidden)
		f.set(func(f *fake) { f.err = errors.New("cannot renew " + hidden) })
		time.Sleep(2 * time.Minute)
		_, err := s.Get(t.Context(), "KEY")
		if text := fmt.Sprintf("%v %+v %#v %+v", err, s.Status(), s.Held(), s); err == nil || strings.Contains(text, hidden) {
			t.Errorf("shows the value: %s", text)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{value: "v", delay: time.Hour}
		s := open(t, one(f, false))
		go s.Get(t.Context(), "KEY")
		synctest.Wait()
		start := time.Now()
		s.Close()
		if time.Since(start) != 0 || f.at.Load() != 0 {
			t.Error("a fetch outlived Close")
		}
		wantError(t, s, "closed")
		if err := s.Check(t.Context(), "KEY"); !errors.Is(err, ErrClosed) {
			t.Errorf("error %v", err)
		}
	})
}

func TestGetUnderRotation(t *testing.T) {
	f := &fake{value: "v0", ttl: time.Nanosecond}
	s := open(t, one(f, true))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				v, err := s.Get(context.Background(), "KEY")
				if err != nil || !strings.HasPrefix(v.Reveal(), "v") {
					t.Errorf("%q %v", v.Reveal(), err)
					return
				}
				s.Status()
				s.Held()
			}
		})
	}
	for i := range 100 {
		f.set(func(f *fake) { f.value = fmt.Sprintf("v%d", i) })
	}
	wg.Wait()
}

// TestWarm: what is wanted is fetched before it is used, and again until it is
// had; what never answers is not waited for longer than its caller will.
func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, down, slow, idle := &fake{value: "here"}, &fake{value: "later", err: errors.New("down")}, &fake{value: "slow", delay: 20 * time.Second}, &fake{value: "idle"}
		s, err := Open(Options{Specs: []Spec{{Name: "UPP", Source: up}, {Name: "DOWN", Source: down}, {Name: "SLOW", Source: slow}, {Name: "IDLE", Source: idle}}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		held := func() (names []string) {
			for _, h := range s.Held() {
				names = append(names, h.Name)
			}
			return names
		}
		began := time.Now()
		bound, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		s.Warm(bound, []string{"UPP", "DOWN", "SLOW", "NONE"})
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		if diff := cmp.Diff([]string{"UPP"}, held()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(40 * time.Second)
		tried := down.count()
		down.set(func(f *fake) { f.err = nil })
		time.Sleep(2 * time.Minute)
		if diff := cmp.Diff([]string{"DOWN", "SLOW", "UPP"}, held()); diff != "" {
			t.Error(diff)
		}
		if tried < 3 || tried > 8 || up.count() != 1 || slow.count() != 1 || idle.count() != 0 {
			t.Errorf("asked %d, %d, %d and %d times", tried, up.count(), slow.count(), idle.count())
		}
	})
}

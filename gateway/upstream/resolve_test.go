package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a lookup that counts its questions and takes a second.
func counted(n *atomic.Int64, err error) LookupFunc {
	return func(ctx context.Context, host string) ([]netip.Addr, error) {
		n.Add(1)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		return addrs("8.8.8.8"), nil
	}
}

func TestResolverKeepsAnswersForATime(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		ttl  time.Duration
	}{
		{"found", nil, positiveTTL},
		{"not found", &net.DNSError{IsNotFound: true}, negativeTTL},
		{"server failure", &net.DNSError{IsTemporary: true}, failureTTL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked, announced atomic.Int64
				r := newResolver(counted(&asked, tc.err))
				defer r.close()
				before := func() error {
					if announced.Add(1) != asked.Load()+1 {
						t.Error("asked before it was announced")
					}
					return nil
				}
				ask := func(questions int64) {
					t.Helper()
					_, err := r.resolve(t.Context(), "s1", "good.test", before)
					if (err == nil) != (tc.err == nil) {
						t.Error(err)
					}
					if asked.Load() != questions || announced.Load() != questions {
						t.Errorf("asked %d times, announced %d, want %d", asked.Load(), announced.Load(), questions)
					}
				}
				ask(1)
				ask(1)
				time.Sleep(tc.ttl - time.Millisecond)
				ask(1)
				time.Sleep(time.Millisecond)
				ask(2)
			})
		})
	}
}

func TestResolverAsksOnceForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, announced atomic.Int64
		r := newResolver(counted(&asked, nil))
		defer r.close()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				got, err := r.resolve(t.Context(), "s1", "good.test", func() error { announced.Add(1); return nil })
				if err != nil || len(got) != 1 {
					t.Error(got, err)
				}
			})
		}
		wg.Wait()
		if asked.Load() != 1 || announced.Load() != 1 {
			t.Errorf("asked %d times, announced %d", asked.Load(), announced.Load())
		}
	})
}

func TestResolverWhenTheRecordCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := newResolver(counted(&asked, nil))
		defer r.close()
		full := errors.New("disk full")
		var failed, good sync.WaitGroup
		failed.Go(func() {
			_, err := r.resolve(t.Context(), "s1", "good.test", func() error { time.Sleep(time.Second); return full })
			if !errors.Is(err, full) {
				t.Error(err)
			}
		})
		synctest.Wait()
		good.Go(func() { // joins the question that is never asked, and then asks it
			if _, err := r.resolve(t.Context(), "s1", "good.test", func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if asked.Load() != 0 {
			t.Error("asked without a record")
		}
		failed.Wait()
		good.Wait()
		if asked.Load() != 1 {
			t.Errorf("asked %d times", asked.Load())
		}
	})
}

func TestResolverCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := newResolver(counted(&asked, nil))
		defer r.close()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := r.resolve(ctx, "s1", "good.test", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := r.resolve(t.Context(), "s1", "good.test", nil); err != nil || asked.Load() != 1 {
			t.Errorf("%v after %d questions", err, asked.Load())
		}
	})
}

func TestResolverIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := newResolver(counted(&asked, nil))
		defer r.close()
		var wg sync.WaitGroup
		var refused atomic.Int64
		ask := func(sandbox string, names int) {
			for i := range names {
				wg.Go(func() {
					if _, err := r.resolve(t.Context(), sandbox, fmt.Sprintf("q%d.%s.test", i, sandbox), nil); err != nil {
						refused.Add(1)
					}
				})
			}
			synctest.Wait() // a sandbox that asks little is served even when all is taken, so the order counts
		}
		ask("first", 10)
		for i := range maxQuestions / maxQuestionsEach {
			ask(fmt.Sprint("s", i), maxQuestionsEach)
		}
		wg.Wait()
		if asked.Load() != maxQuestions || refused.Load() != 10 {
			t.Errorf("asked %d, refused %d", asked.Load(), refused.Load())
		}
		for i := range maxNames {
			r.mu.Lock()
			a := &answer{done: make(chan struct{}), expires: time.Now().Add(time.Hour)}
			close(a.done)
			r.names[fmt.Sprintf("n%d.test", i)] = a
			r.mu.Unlock()
		}
		for i := range 2 * maxQuestions {
			if _, err := r.resolve(t.Context(), "s1", fmt.Sprintf("m%d.test", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.names); n > maxNames+maxQuestions {
			t.Errorf("%d names kept", n)
		}
	})
}

// TestResolverKeepsTheGreedyApart: names of one sandbox that are slow in coming
// keep no other from asking, however many ask.
func TestResolverKeepsTheGreedyApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		r := newResolver(func(ctx context.Context, host string) ([]netip.Addr, error) {
			if host != "good.test" {
				<-slow
			}
			return addrs("8.8.8.8"), nil
		})
		defer r.close()
		var wg sync.WaitGroup
		var refused atomic.Int64
		greedy := func(sandbox string, names int) {
			for i := range names {
				wg.Go(func() {
					if _, err := r.resolve(t.Context(), sandbox, fmt.Sprintf("%s-%d.test", sandbox, i), nil); err != nil {
						if _, detail := ErrorClass(err); !strings.Contains(detail, "the sandbox is waiting for 64 names already") {
							t.Error(err)
						}
						refused.Add(1)
					}
				})
			}
			synctest.Wait()
		}
		greedy("s1", 300)
		if refused.Load() != 300-maxQuestionsEach {
			t.Errorf("%d names refused", refused.Load())
		}
		for i := 1; i < maxQuestions/maxQuestionsEach; i++ {
			greedy(fmt.Sprint("g", i), maxQuestionsEach)
		}
		if _, err := r.resolve(t.Context(), "s2", "good.test", nil); err != nil {
			t.Errorf("another sandbox: %v", err)
		}
		close(slow)
		wg.Wait()
		if r.asking != 0 || len(r.each) != 0 {
			t.Errorf("%d questions under way, %v", r.asking, r.each)
		}
		if _, err := r.resolve(t.Context(), "s1", "s1-299.test", nil); err != nil {
			t.Errorf("the greedy one afterwards: %v", err)
		}
	})
}

func TestResolverClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := newResolver(counted(&asked, nil))
		go func() {
			time.Sleep(time.Millisecond)
			r.close()
		}()
		if _, err := r.resolve(t.Context(), "s1", "good.test", nil); err == nil {
			t.Error("answered after the end")
		}
		if _, err := r.resolve(t.Context(), "s1", "other.test", nil); !errors.Is(err, errClosed) {
			t.Error(err)
		}
	})
}

func TestResolverBeforePanics(t *testing.T) {
	r := newResolver(answers(addrs("8.8.8.8")...))
	defer r.close()
	func() {
		defer func() { _ = recover() }()
		_, _ = r.resolve(t.Context(), "s1", "good.test", func() error { panic("no") })
	}()
	if _, err := r.resolve(t.Context(), "s1", "good.test", nil); err != nil {
		t.Error(err)
	}
	if r.asking != 0 || len(r.each) != 0 {
		t.Errorf("%d questions under way", r.asking)
	}
}

// TestResolverMakesRoom: a name that is not being asked for goes, and what was
// looked at and has expired.
func TestResolverMakesRoom(t *testing.T) {
	r := newResolver(counted(new(atomic.Int64), nil))
	defer r.close()
	now := time.Now()
	fill := func() {
		for i := 0; len(r.names) < maxNames; i++ {
			a := &answer{done: make(chan struct{}), expires: now.Add(time.Duration(i%100-10) * time.Hour)}
			if i >= maxQuestions { // the others are being asked for
				close(a.done)
			}
			if name := fmt.Sprintf("n%d.test", i); r.names[name] == nil {
				r.names[name] = a
			}
		}
	}
	for range 200 {
		fill()
		r.evict()
		if n := len(r.names); n >= maxNames || n < maxNames-evictLook {
			t.Fatalf("%d names are left", n)
		}
	}
	for i := range maxQuestions {
		if r.names[fmt.Sprintf("n%d.test", i)] == nil {
			t.Fatalf("n%d.test, which is being asked for, is gone", i)
		}
	}
}

func BenchmarkResolverMakesRoom(b *testing.B) {
	r := newResolver(counted(new(atomic.Int64), nil))
	defer r.close()
	done := make(chan struct{})
	close(done)
	for i := 0; b.Loop(); i++ {
		if len(r.names) >= maxNames {
			r.evict()
		}
		r.names[fmt.Sprintf("n%d.test", i)] = &answer{done: done, expires: time.Now().Add(time.Hour)}
	}
}

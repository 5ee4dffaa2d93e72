package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
					_, err := r.resolve(t.Context(), "good.test", before)
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
				got, err := r.resolve(t.Context(), "good.test", func() error { announced.Add(1); return nil })
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
			_, err := r.resolve(t.Context(), "good.test", func() error { time.Sleep(time.Second); return full })
			if !errors.Is(err, full) {
				t.Error(err)
			}
		})
		synctest.Wait()
		good.Go(func() { // joins the question that is never asked, and then asks it
			if _, err := r.resolve(t.Context(), "good.test", func() error { return nil }); err != nil {
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
		if _, err := r.resolve(ctx, "good.test", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := r.resolve(t.Context(), "good.test", nil); err != nil || asked.Load() != 1 {
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
		for i := range maxQuestions + 10 {
			wg.Go(func() {
				if _, err := r.resolve(t.Context(), fmt.Sprintf("q%d.test", i), nil); err != nil {
					refused.Add(1)
				}
			})
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
			if _, err := r.resolve(t.Context(), fmt.Sprintf("m%d.test", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(r.names); n > maxNames+maxQuestions {
			t.Errorf("%d names kept", n)
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
		if _, err := r.resolve(t.Context(), "good.test", nil); err == nil {
			t.Error("answered after the end")
		}
		if _, err := r.resolve(t.Context(), "other.test", nil); !errors.Is(err, errClosed) {
			t.Error(err)
		}
	})
}

func TestResolverBeforePanics(t *testing.T) {
	r := newResolver(answers(addrs("8.8.8.8")...))
	defer r.close()
	func() {
		defer func() { _ = recover() }()
		_, _ = r.resolve(t.Context(), "good.test", func() error { panic("no") })
	}()
	if _, err := r.resolve(t.Context(), "good.test", nil); err != nil {
		t.Error(err)
	}
	if r.asking != 0 {
		t.Errorf("%d questions under way", r.asking)
	}
}

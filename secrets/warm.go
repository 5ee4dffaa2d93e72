package secrets

import (
	"context"
	"sync"
	"time"
)

// Warm says that the named secrets are to be held before they are used, so
// that what knows the values that are held knows them too. It fetches those
// that are not held and waits until each was had or failed once, at most until
// ctx ends; those that failed are fetched again by Run, with growing pauses.
// Of names that no Spec has nothing is done.
func (s *Store) Warm(ctx context.Context, names []string) {
	var all sync.WaitGroup
	for _, name := range names {
		e := s.entries[name]
		if e == nil {
			continue
		}
		all.Go(func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.wanted = true
			if e.value.IsZero() && !time.Now().Before(e.retry) {
				_ = s.await(ctx, e, 0) // the store logs why not
			}
		})
	}
	all.Wait()
}

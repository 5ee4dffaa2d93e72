package secrets

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// start begins a fetch of e, or joins the one under way, and returns a
// channel that is closed when it ends; nil after Close. The caller holds
// e.mu.
func (s *Store) start(e *entry) <-chan struct{} {
	if e.flight != nil {
		return e.flight
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	e.flight = make(chan struct{})
	s.wg.Add(1)
	go s.fetch(e)
	return e.flight
}

// fetch asks the source once, puts in what it gave and closes e.flight. When
// the source announced a change meanwhile, what it gave is not good and the
// next fetch begins before anybody can take it.
func (s *Store) fetch(e *entry) {
	defer s.wg.Done()
	e.mu.Lock()
	generation := e.generation
	e.mu.Unlock()
	f, err := s.fetchOnce(e.spec.Source)
	e.mu.Lock()
	changed := false
	if err != nil {
		e.fail(err, time.Now())
		err = e.err
	} else {
		changed = e.take(f, time.Now(), s.o.Keep)
	}
	close(e.flight)
	e.flight = nil
	if e.generation != generation {
		e.invalidate(time.Now())
		s.start(e)
	}
	e.mu.Unlock()
	s.report(e.spec, changed, err)
}

func (s *Store) report(spec Spec, changed bool, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.o.Logger.Warn("secret could not be fetched", "secret", spec.Name, "source", spec.Kind, "error", err.Error())
	}
	if changed {
		s.o.OnChange(spec.Name)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Store) fetchOnce(src Source) (Fetched, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
	defer cancel()
	f, err := src.Fetch(ctx)
	switch {
	case err == nil && f.Value.IsZero():
		err = errors.New("source gave no value")
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && s.ctx.Err() == nil:
		err = fmt.Errorf("source gave no answer within %s", s.o.Timeout)
	}
	return f, err
}

// Run watches the sources that know of changes and fetches values ahead of
// their end, those that were used since they were last fetched. It returns
// when ctx ends, and the watches end with it; fetches under way end with Close.
func (s *Store) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, name := range s.names {
		e := s.entries[name]
		w, ok := e.spec.Source.(Watcher)
		if !ok {
			continue
		}
		if err := w.Watch(ctx, func() { s.changed(e) }); err != nil {
			s.o.Logger.Warn("secret's source cannot be watched; it is read again when its time is over",
				"secret", name, "source", e.spec.Kind, "error", err.Error())
		}
	}
	for {
		timer := time.NewTimer(s.refreshDue(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// changed is what a Watcher calls.
func (s *Store) changed(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fetched.IsZero() && e.err == nil && e.flight == nil {
		return // never asked for: nothing to replace
	}
	e.generation++
	e.invalidate(time.Now())
	s.start(e)
}

// refreshDue starts the fetches that are due and returns how long nothing
// more will be.
func (s *Store) refreshDue(now time.Time) time.Duration {
	const idle = time.Minute
	next := now.Add(idle)
	for _, e := range s.entries {
		e.mu.Lock()
		switch {
		case e.due(now), e.lacking(now):
			s.start(e)
		case e.flight == nil && e.wanted && e.value.IsZero():
			if e.retry.Before(next) {
				next = e.retry
			}
		case e.flight == nil && !e.refresh.IsZero():
			at := e.refresh
			if e.retry.After(at) {
				at = e.retry
			}
			if at.After(now) && at.Before(next) {
				next = at
			}
		}
		e.mu.Unlock()
	}
	return next.Sub(now)
}

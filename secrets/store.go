package secrets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	defaultStaleFor = time.Hour
	defaultWait     = 5 * time.Second
	defaultTimeout  = 30 * time.Second
	defaultKeep     = time.Hour
)

// ErrUnknown is in the error of a name that no Spec has.
var ErrUnknown = errors.New("no such secret")

// ErrClosed is in every error of a Store after Close.
var ErrClosed = errors.New("store is closed")

// Spec is one secret of a Store.
type Spec struct {
	Name   string // [A-Z][A-Z0-9_]{2,63}
	Kind   string // of the source, for Status: "env", "file", …
	Source Source
	TTL    time.Duration // upper bound on what the source says; 0: what the source says
	Stale  bool          // an expired value may be used while the source is down
}

// Options are what a Store is made of. A duration of 0 is its default.
type Options struct {
	Specs  []Spec
	Logger hclog.Logger // nil: none

	// OnChange is called after each fetch that gave another value than the
	// one before, the first one included. It must not block.
	OnChange func(name string)

	StaleFor time.Duration // how long after its end a value with Stale is used; 1 h
	Wait     time.Duration // how long Get waits for a source; 5 s
	Timeout  time.Duration // of one fetch; 30 s
	Keep     time.Duration // how long Held gives a value that was replaced; 1 h

	// Past remembers the values of this store besides those of others; nil: of
	// this one alone.
	Past *Past
}

// Store keeps secrets fresh: one fetch at a time for each, kept for as long
// as it is good, fetched again shortly before its end when it was used, and
// after a failure with growing pauses. Its methods may be called at once.
type Store struct {
	o       Options
	entries map[string]*entry
	names   []string // sorted

	ctx    context.Context // of fetches; ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: a value came in, so look at the times again

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // fetches under way
	leave  sync.Once      // the values of a closed store
}

// Open makes a Store. It fetches nothing; the first use of a secret or Check
// does. Close ends it.
func Open(o Options) (*Store, error) {
	setDefaults(&o)
	s := &Store{o: o, entries: make(map[string]*entry, len(o.Specs)), wake: make(chan struct{}, 1)}
	for _, spec := range o.Specs {
		switch {
		case !Name(spec.Name):
			return nil, fmt.Errorf("secret %q: a name is [A-Z][A-Z0-9_]{2,63}", spec.Name)
		case spec.Source == nil:
			return nil, fmt.Errorf("secret %q: no source", spec.Name)
		case s.entries[spec.Name] != nil:
			return nil, fmt.Errorf("secret %q: declared twice", spec.Name)
		}
		s.entries[spec.Name] = &entry{spec: spec, past: o.Past}
		s.names = append(s.names, spec.Name)
	}
	slices.Sort(s.names)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func setDefaults(o *Options) {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.StaleFor, defaultStaleFor}, {&o.Wait, defaultWait},
		{&o.Timeout, defaultTimeout}, {&o.Keep, defaultKeep},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.OnChange == nil {
		o.OnChange = func(string) {}
	}
	if o.Past == nil {
		o.Past = &Past{}
	}
}

// Close ends all fetches and waits for them. Values that were handed out
// stay good, and Held gives those that were in use for Options.Keep more.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	s.leave.Do(func() {
		for _, e := range s.entries {
			e.mu.Lock()
			e.leave(time.Now().Add(s.o.Keep))
			e.mu.Unlock()
		}
	})
	return nil
}

// Get returns the value of a secret. When there is none that is good it
// waits for its source, at most Options.Wait or until ctx ends; the fetch
// goes on for those who ask next. Errors name the secret and never quote a
// value.
func (s *Store) Get(ctx context.Context, name string) (Value, error) {
	e := s.entries[name]
	if e == nil {
		return Value{}, fmt.Errorf("secret %q: %w", name, ErrUnknown)
	}
	e.mu.Lock()
	now := time.Now()
	e.used = true
	if e.good(now) {
		if e.due(now) {
			s.start(e)
		}
		v := e.value
		e.mu.Unlock()
		return v, nil
	}
	defer e.mu.Unlock()
	if err := s.open(); err != nil {
		return Value{}, fmt.Errorf("secret %q: %w", name, err)
	}
	if e.flight == nil && now.Before(e.retry) {
		return s.settled(e, now)
	}
	if err := s.await(ctx, e, s.o.Wait); err != nil {
		if v, ok := e.stale(time.Now(), s.o.StaleFor); ok {
			return v, nil
		}
		return Value{}, fmt.Errorf("secret %q: %w", name, err)
	}
	return s.settled(e, time.Now())
}

// await starts or joins a fetch of e and waits until none is under way, at
// most bound if that is not 0. The caller holds e.mu, and does so again when
// await returns.
func (s *Store) await(ctx context.Context, e *entry, bound time.Duration) error {
	var late <-chan time.Time
	if bound > 0 {
		t := time.NewTimer(bound)
		defer t.Stop()
		late = t.C
	}
	for done := s.start(e); done != nil; done = e.flight {
		e.mu.Unlock()
		var err error
		select {
		case <-done:
		case <-ctx.Done():
			err = ctx.Err()
		case <-late:
			err = fmt.Errorf("source gave no answer within %s", bound)
		}
		e.mu.Lock()
		if err != nil {
			return err
		}
	}
	return s.open()
}

// open returns ErrClosed after Close.
func (s *Store) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

// settled returns what e holds when nothing more can be waited for. The
// caller holds e.mu.
func (s *Store) settled(e *entry, now time.Time) (Value, error) {
	if e.good(now) {
		return e.value, nil
	}
	if v, ok := e.stale(now, s.o.StaleFor); ok {
		return v, nil
	}
	if e.err == nil { // fetched, but it ended before the waiter came to it
		return Value{}, fmt.Errorf("secret %q: value has expired", e.spec.Name)
	}
	return Value{}, fmt.Errorf("secret %q: %w", e.spec.Name, e.err)
}

// Check fetches a secret afresh, whatever is held and however lately the
// source failed, and returns the source's error. It waits until ctx ends.
func (s *Store) Check(ctx context.Context, name string) error {
	e := s.entries[name]
	if e == nil {
		return fmt.Errorf("secret %q: %w", name, ErrUnknown)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.generation++ // a fetch under way is done again
	if err := s.await(ctx, e, 0); err != nil {
		return fmt.Errorf("secret %q: %w", name, err)
	}
	if e.err != nil {
		return fmt.Errorf("secret %q: %w", name, e.err)
	}
	return nil
}

// Status is how one secret stands. It never holds a value.
type Status struct {
	Name    string
	Kind    string
	Fetched time.Time // zero: never
	Expires time.Time // zero: not until its source says so
	Error   string    // of the last fetch; "" when it went well
	Stale   bool      // an expired value is being used
	Held    bool      // a value that may be used is held
}

// Status returns how every secret stands, by name.
func (s *Store) Status() []Status {
	out := make([]Status, 0, len(s.names))
	for _, name := range s.names {
		out = append(out, s.entries[name].status(time.Now(), s.o.StaleFor))
	}
	return out
}

// Held is a value, or a part of one, that the store holds or held lately.
type Held struct {
	Name  string
	Value Value
}

// Held returns every value that is in use, and those that were replaced less
// than Options.Keep ago, which an upstream may still reflect: all that
// Options.Past remembers.
func (s *Store) Held() []Held { return s.o.Past.Held() }

package secrets

import (
	"crypto/subtle"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// entry is what a Store knows of one secret.
type entry struct {
	spec Spec
	past *Past // remembers what was taken

	mu         sync.Mutex
	value      Value
	fetched    time.Time
	expires    time.Time // zero: never
	refresh    time.Time // from then on it is fetched ahead; zero: never
	used       bool      // since it was fetched
	wanted     bool      // it is to be held also before it is used
	generation uint64    // counts changes that its source announced

	err      error // of the last fetch
	failures int   // in a row
	retry    time.Time

	flight chan struct{} // closed when the fetch under way ends; nil: none
}

// good says whether the value may be used as it is.
func (e *entry) good(now time.Time) bool {
	return !e.value.IsZero() && (e.expires.IsZero() || now.Before(e.expires))
}

// due says whether a good value should be fetched ahead of its end.
func (e *entry) due(now time.Time) bool {
	return e.used && e.flight == nil && !e.refresh.IsZero() && !now.Before(e.refresh) && !now.Before(e.retry)
}

// lacking says whether a value that is wanted was never had, and its source may
// be asked again.
func (e *entry) lacking(now time.Time) bool {
	return e.wanted && e.value.IsZero() && e.flight == nil && !now.Before(e.retry)
}

// stale returns an expired value that may still be used because its source
// is down.
func (e *entry) stale(now time.Time, bound time.Duration) (Value, bool) {
	if !e.spec.Stale || e.value.IsZero() || now.After(e.expires.Add(bound)) {
		return Value{}, false
	}
	return e.value, true
}

// take puts in what a fetch gave and says whether the value is another one.
// The one before is remembered for keep.
func (e *entry) take(f Fetched, now time.Time, keep time.Duration) (changed bool) {
	changed = !e.value.equal(f.Value)
	if changed {
		e.past.took(e.spec.Name, f.Value)
		e.leave(now.Add(keep))
	}
	e.value, e.fetched, e.used = f.Value, now, false
	e.err, e.failures, e.retry = nil, 0, time.Time{}
	e.expires, e.refresh = time.Time{}, time.Time{}
	ttl := f.TTL
	if ttl <= 0 || e.spec.TTL > 0 && e.spec.TTL < ttl {
		ttl = e.spec.TTL
	}
	if ttl > 0 {
		e.expires = now.Add(ttl)
		// Between 75 and 90 % of its life, so that many gateways do not
		// ask at once.
		e.refresh = now.Add(time.Duration(float64(ttl) * (0.75 + 0.15*rand.Float64())))
	}
	return changed
}

// fail records a failed fetch and sets the time before which none is tried:
// 1 s, doubled with each failure up to a minute, and up to a fifth more.
func (e *entry) fail(err error, now time.Time) {
	if !e.value.IsZero() {
		for _, part := range append(e.value.Parts(), e.value) {
			if strings.Contains(err.Error(), part.Reveal()) {
				err = errors.New("source failed with a message that held the value")
			}
		}
	}
	e.err = err
	pause := maxPause
	if e.failures < 6 {
		pause = firstPause << e.failures
	}
	e.failures++
	e.retry = now.Add(pause + time.Duration(rand.Int64N(int64(pause/5))))
}

// invalidate notes that the source announced a change: the value is not good
// any longer, and what failed before is tried again at once.
func (e *entry) invalidate(now time.Time) {
	e.failures, e.retry = 0, time.Time{}
	if !e.value.IsZero() && (e.expires.IsZero() || now.Before(e.expires)) {
		e.expires = now
	}
}

func (e *entry) status(now time.Time, bound time.Duration) Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	st := Status{Name: e.spec.Name, Kind: e.spec.Kind, Fetched: e.fetched, Expires: e.expires, Held: e.good(now)}
	if e.err != nil {
		st.Error = e.err.Error()
		if _, ok := e.stale(now, bound); ok && !st.Held {
			st.Stale, st.Held = true, true
		}
	}
	return st
}

// leave notes that the value is not in use any longer, if there is one.
func (e *entry) leave(until time.Time) {
	if !e.value.IsZero() {
		e.past.left(e.spec.Name, e.value, until)
	}
}

func (v Value) equal(o Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(o.Reveal())) == 1
}

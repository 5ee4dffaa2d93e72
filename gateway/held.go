package gateway

import (
	"slices"
	"sync"
	"sync/atomic"

	"sallyport/gateway/inject"
	"sallyport/secrets"
)

// Held knows the real values that are held at the moment. It is what masks
// them in answers and stops them in requests.
type Held struct {
	past *secrets.Past // nil: the values stay as they are

	updating sync.Mutex
	latest   atomic.Pointer[heldValues]
}

// heldValues are the values of one count of Past.Changes.
type heldValues struct {
	guard   *inject.Guard
	changes uint64
}

// NewHeld returns a Held of the values that a store holds.
func NewHeld(held []secrets.Held) *Held {
	h := &Held{}
	h.latest.Store(&heldValues{guard: inject.NewGuard(held)})
	return h
}

// Follow returns a Held of the values that past remembers, whatever comes in.
func Follow(past *secrets.Past) *Held {
	h := NewHeld(past.Held())
	h.past = past
	return h
}

// Update takes in what has changed, so that no request has to wait for that.
func (h *Held) Update() { h.now() }

// now returns what knows the values in force. When none has come in it compares
// two numbers.
func (h *Held) now() *inject.Guard {
	if v := h.latest.Load(); v.changes == h.past.Changes() {
		return v.guard
	}
	h.updating.Lock()
	defer h.updating.Unlock()
	changes := h.past.Changes() // before the values, which may be of a later count
	if v := h.latest.Load(); v.changes == changes {
		return v.guard
	}
	v := &heldValues{inject.NewGuard(h.past.Held()), changes}
	h.latest.Store(v)
	return v.guard
}

// held returns what knows the values in force. Without a snapshot there are
// none.
func (s *Snapshot) held() *inject.Guard {
	if s == nil || s.Held == nil {
		return inject.NewGuard(nil)
	}
	return s.Held.now()
}

// heldNow is held of the snapshot that is in force at the moment, for what is
// read of a request long after it was decided.
func (r *request) heldNow() *inject.Guard { return r.g.snap.Load().held() }

// masker returns what covers the values that the exchange's answers may hold,
// those also that come in while an answer is read; nil if there can be none.
func (x *exchange) masker() *inject.Masker {
	if x.r.plan == nil || len(x.r.plan.Covered()) == 0 {
		return nil
	}
	live := &x.live
	live.x = x
	live.is = live.now().Following(live.now)
	live.is.Within((*room)(x.r))
	return &live.is
}

// liveMasker gives the masker of the values that are held when it is asked.
type liveMasker struct {
	x      *exchange
	is     inject.Masker // that follows it
	latest atomic.Pointer[maskerOf]
	first  maskerOf // as most stay
}

type maskerOf struct {
	snap   *Snapshot
	guard  *inject.Guard
	masker *inject.Masker
}

// now compares two pointers when nothing has changed.
func (l *liveMasker) now() *inject.Masker {
	snap := l.x.r.g.snap.Load()
	guard := snap.held()
	if v := l.latest.Load(); v != nil && v.snap == snap && v.guard == guard {
		return v.masker
	}
	names := l.x.r.plan.Covered()
	if snap != nil && snap != l.x.r.snap && snap.Inject != nil {
		names = append(slices.Clone(names), snap.Inject.Covered(l.x.r.c.host)...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	m := guard.Masker(names, l.x.r.values, l.x.r.plan.Made()...)
	if m == nil {
		m = inject.Nothing()
	}
	v := &l.first // masker asks before anybody else can
	if l.latest.Load() != nil {
		v = &maskerOf{}
	}
	*v = maskerOf{snap, guard, m}
	l.latest.Store(v)
	return m
}

package audit

import "time"

// windowSlots is into how many parts a window is counted. A count is exact to
// one of them.
const windowSlots = 60

// maxDistinct bounds the values of a distinct count that are kept.
const maxDistinct = 10_000

// window counts events, or different values, of the time that it is long.
type window struct {
	length time.Duration
	slots  [windowSlots]uint64
	slot   int64 // number of the latest slot since the epoch
	seen   map[string]time.Time
}

func newWindow(length time.Duration, distinct bool) *window {
	w := &window{length: length}
	if distinct {
		w.seen = make(map[string]time.Time)
	}
	return w
}

// add counts n events with the value at a time, and returns what there is in
// the window then. A time before the latest one counts as the latest.
func (w *window) add(at time.Time, value string, n uint64) uint64 {
	if w.seen != nil {
		return w.addValue(at, value)
	}
	w.turn(at)
	w.slots[w.slot%windowSlots] += n
	return w.sum()
}

func (w *window) turn(at time.Time) {
	slot := at.UnixNano() / max(int64(w.length)/windowSlots, 1)
	if slot-w.slot >= windowSlots {
		clear(w.slots[:])
		w.slot = slot
	}
	for w.slot < slot {
		w.slot++
		w.slots[w.slot%windowSlots] = 0
	}
}

func (w *window) sum() (n uint64) {
	for _, c := range w.slots {
		n += c
	}
	return n
}

func (w *window) addValue(at time.Time, value string) uint64 {
	if len(value) > capElement {
		value = Escape(value, capElement)
	}
	if _, ok := w.seen[value]; ok || len(w.seen) < maxDistinct {
		w.seen[value] = at
	}
	for v, t := range w.seen {
		if at.Sub(t) >= w.length {
			delete(w.seen, v)
		}
	}
	return uint64(len(w.seen))
}

// reset forgets everything.
func (w *window) reset() {
	clear(w.slots[:])
	clear(w.seen)
}

package gateway

import "testing"

// TestRemovingTwice: what is out is not taken out again, and what else is open
// is still found by a reload.
func TestRemovingTwice(t *testing.T) {
	var l live
	first, second, third := l.add(&liveEntry{}), l.add(&liveEntry{}), l.add(&liveEntry{})
	for _, e := range []*liveEntry{second, second, third, third} {
		l.remove(e)
	}
	if open := l.all(); len(open) != 1 || open[0] != first || l.n != 1 {
		t.Errorf("%d open, counted as %d", len(open), l.n)
	}
}

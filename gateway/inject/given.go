package inject

import (
	"slices"
	"sync"
)

// maxGiven is how many hosts a given remembers.
const maxGiven = 4096

// given remembers which secrets hosts may be given.
type given struct {
	mu    sync.RWMutex
	names map[string][]string // by canonical host; sorted

	formerly []Secret // that are gone
}

// MayAnswer says whether an answer of a canonical host may hold a value: some
// secret's hosts cover it.
func (t *Table) MayAnswer(host string) bool { return len(t.givenTo(host)) > 0 }

// Covered returns the names of the secrets whose values an answer of a
// canonical host may hold, sorted. They are not to be changed.
func (t *Table) Covered(host string) []string { return t.givenTo(host) }

// givenTo returns the names of the secrets whose hosts cover a host, or did
// so before, sorted; nil for none. They are not to be changed.
func (t *Table) givenTo(host string) []string {
	t.given.mu.RLock()
	names, ok := t.given.names[host]
	t.given.mu.RUnlock()
	if ok {
		return names
	}
	for name, c := range t.creds {
		if c.covers(host) {
			names = append(names, name)
		}
	}
	for _, s := range t.given.formerly {
		if s.Covers(host) {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	t.given.mu.Lock()
	defer t.given.mu.Unlock()
	if t.given.names == nil || len(t.given.names) >= maxGiven {
		t.given.names = make(map[string][]string)
	}
	t.given.names[host] = names
	return names
}

package inject

import (
	"slices"
	"strings"
	"sync"

	"sallyport/secrets"
)

// Guard knows the real values that are held, to cover them where an upstream
// sends them back and to stop them where a sandbox sends them out. It is read
// only and made anew when a value changes.
type Guard struct {
	held map[string][]secrets.Held // by the name of the secret
	out  *outgoing

	mu      sync.Mutex
	maskers map[string]*Masker // by the names of their secrets
}

// NewGuard makes a Guard of the values that a secrets.Store holds.
func NewGuard(held []secrets.Held) *Guard {
	g := &Guard{held: make(map[string][]secrets.Held), out: newOutgoing(held), maskers: make(map[string]*Masker)}
	for _, h := range held {
		g.held[h.Name] = append(g.held[h.Name], h)
	}
	return g
}

// Masker returns what covers the values of the named secrets, those that are
// held and those that were just used, and what was made of them; nil when there
// is nothing to cover.
func (g *Guard) Masker(names []string, used map[string]secrets.Value, made ...secrets.Held) *Masker {
	if len(names) == 0 {
		return nil
	}
	extra := slices.Clip(made)
	for name, whole := range used {
		for _, v := range whole.Parts() {
			known := slices.ContainsFunc(g.held[name], func(h secrets.Held) bool { return h.Value.Reveal() == v.Reveal() })
			if !known {
				// It came in after the guard was made.
				extra = append(extra, secrets.Held{Name: name, Value: v})
			}
		}
	}
	if extra != nil {
		return newMasker(append(extra, g.of(names)...))
	}
	key := strings.Join(names, ",")
	g.mu.Lock()
	defer g.mu.Unlock()
	m, ok := g.maskers[key]
	if !ok {
		m = newMasker(g.of(names))
		g.maskers[key] = m
	}
	return m
}

func (g *Guard) of(names []string) (out []secrets.Held) {
	for _, name := range names {
		out = append(out, g.held[name]...)
	}
	return out
}

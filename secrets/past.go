package secrets

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Past remembers the values that stores take: those in use and, for as long as
// an upstream may still reflect them, those that were replaced. It may outlive
// its stores, so that a value is known also when the secret that it was of, or
// the store, is gone. The zero Past is ready; its methods may be called at
// once, and those of nil remember nothing.
type Past struct {
	changes atomic.Uint64

	mu     sync.Mutex
	values map[string][]*pastValue // by name of the secret; the one taken last is last
}

// pastValue is a value that some store took.
type pastValue struct {
	value Value
	users int       // stores that have it in use
	until time.Time // without users: when it is forgotten
}

// Changes counts the values that have come in. A value is counted before it
// can be had from its store, so that who has the values of the same count
// knows all that are in use.
func (p *Past) Changes() uint64 {
	if p == nil {
		return 0
	}
	return p.changes.Load()
}

// Held returns every value that is in use or was lately, by name of the
// secret, the one that was taken last first.
func (p *Past) Held() (out []Held) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		list := slices.DeleteFunc(p.values[name], func(v *pastValue) bool { return v.users == 0 && !now.Before(v.until) })
		if p.values[name] = list; len(list) == 0 {
			delete(p.values, name)
		}
		for _, v := range slices.Backward(list) {
			for _, part := range v.value.Parts() {
				out = append(out, Held{name, part})
			}
		}
	}
	return out
}

// took notes that a store uses a value.
func (p *Past) took(name string, value Value) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.find(name, value)
	if v == nil {
		if p.values == nil {
			p.values = make(map[string][]*pastValue)
		}
		v = &pastValue{value: value}
		p.values[name] = append(p.values[name], v)
		p.changes.Add(1)
	}
	v.users++
}

// left notes that a store no longer uses a value, which is remembered until
// then at least.
func (p *Past) left(name string, value Value, until time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.find(name, value)
	v.users--
	if until.After(v.until) {
		v.until = until
	}
}

// find returns what is known of a value; nil: nothing.
func (p *Past) find(name string, value Value) *pastValue {
	for _, v := range p.values[name] {
		if v.value.equal(value) {
			return v
		}
	}
	return nil
}

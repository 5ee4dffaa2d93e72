package inject

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// owners knows which shaped placeholder belongs to whom. What it knows is
// derived when it is first needed.
type owners struct {
	shaped    []*credential // those whose placeholder differs from sandbox to sandbox
	sandboxes []string
	key       []byte

	mu   sync.Mutex                                        // held to replace sets
	sets atomic.Pointer[map[string]map[string]*credential] // sandbox → placeholder → secret

	all func() map[string]owner // every sandbox's placeholders
}

type owner struct {
	sandbox string
	cred    *credential
}

func newOwners(creds map[string]*credential, sandboxes []string, key []byte) *owners {
	o := &owners{sandboxes: slices.Clone(sandboxes), key: key}
	for _, name := range slices.Sorted(maps.Keys(creds)) {
		if creds[name].template.Rand > 0 {
			o.shaped = append(o.shaped, creds[name])
		}
	}
	o.sets.Store(new(map[string]map[string]*credential))
	o.all = sync.OnceValue(o.everyone)
	return o
}

// of returns the shaped placeholders of one sandbox.
func (o *owners) of(sandbox string) map[string]*credential {
	if len(o.shaped) == 0 {
		return nil
	}
	if own, ok := (*o.sets.Load())[sandbox]; ok {
		return own
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	sets := *o.sets.Load()
	if own, ok := sets[sandbox]; ok {
		return own
	}
	own := make(map[string]*credential, len(o.shaped))
	for _, c := range o.shaped {
		own[c.template.Placeholder(c.name, o.key, sandbox)] = c
	}
	next := make(map[string]map[string]*credential, len(sets)+1)
	maps.Copy(next, sets)
	next[sandbox] = own
	o.sets.Store(&next)
	return own
}

// owner returns whose placeholder text is. The first call derives the
// placeholders of every sandbox; it is made only for a placeholder that is
// genuine and not the asking sandbox's own.
func (o *owners) owner(text string) (owner, bool) {
	w, ok := o.all()[text]
	return w, ok
}

func (o *owners) everyone() map[string]owner {
	all := make(map[string]owner, len(o.shaped)*len(o.sandboxes))
	for _, c := range o.shaped {
		for _, s := range o.sandboxes {
			all[c.template.Placeholder(c.name, o.key, s)] = owner{s, c}
		}
	}
	return all
}

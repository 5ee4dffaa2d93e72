package inject

import (
	"maps"
	"slices"
	"sync"
)

// owners knows which shaped placeholder belongs to whom. What it knows is
// derived when it is first needed.
type owners struct {
	shaped    []*credential // those whose placeholder differs from sandbox to sandbox
	sandboxes []string
	key       []byte

	sets map[string]func() map[string]*credential // sandbox → placeholder → secret, each derived once

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
	if len(o.shaped) > 0 {
		o.sets = make(map[string]func() map[string]*credential, len(o.sandboxes))
		for _, s := range o.sandboxes {
			o.sets[s] = sync.OnceValue(func() map[string]*credential { return o.derive(s) })
		}
	}
	o.all = sync.OnceValue(o.everyone)
	return o
}

// of returns the shaped placeholders of one sandbox.
func (o *owners) of(sandbox string) map[string]*credential {
	if len(o.shaped) == 0 {
		return nil
	}
	if own, ok := o.sets[sandbox]; ok {
		return own()
	}
	return o.derive(sandbox)
}

func (o *owners) derive(sandbox string) map[string]*credential {
	own := make(map[string]*credential, len(o.shaped))
	for _, c := range o.shaped {
		own[c.template.Placeholder(c.name, o.key, sandbox)] = c
	}
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

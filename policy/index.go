package policy

import (
	"cmp"
	"slices"
	"strings"
)

// setID numbers a rule set: the allows or the denials of one group, one
// sandbox or the org. A group is compiled once, however many sandboxes use it.
type setID int32

// ruleSet is the rules of one set.
type ruleSet struct {
	id    setID
	rules []*rule
}

// members are the rule sets that bind one sandbox.
type members struct {
	ids  []setID // ascending
	bits []uint64
}

func newMembers(ids []setID) members {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	m := members{ids: ids}
	if len(ids) > 0 {
		m.bits = make([]uint64, ids[len(ids)-1]/64+1)
	}
	for _, id := range ids {
		m.bits[id/64] |= 1 << (id % 64)
	}
	return m
}

func (m *members) has(id setID) bool {
	return int(id/64) < len(m.bits) && m.bits[id/64]&(1<<(id%64)) != 0
}

// index finds the rules for a host, over all sets, by map lookups alone: one
// for the host and one for each name above it.
type index struct {
	exact  map[string]*entry
	suffix map[string]*entry // "a.example" for "*.a.example"
	any    *entry
}

// entry is the rules of one pattern, by set, ascending.
type entry struct {
	sets []ruleSet
}

func newIndex(sets []*ruleSet, yield func()) *index {
	x := &index{exact: map[string]*entry{}, suffix: map[string]*entry{}}
	for _, set := range sets { // ascending, so that each entry's are
		yield()
		for _, r := range set.rules {
			x.entryFor(r.host).add(set.id, r)
		}
	}
	return x
}

func (x *index) entryFor(p HostPattern) *entry {
	switch p.kind {
	case hostExact:
		return entryIn(x.exact, p.name)
	case hostSuffix:
		return entryIn(x.suffix, p.name)
	}
	if x.any == nil {
		x.any = &entry{}
	}
	return x.any
}

func entryIn(m map[string]*entry, name string) *entry {
	e := m[name]
	if e == nil {
		e = &entry{}
		m[name] = e
	}
	return e
}

func (e *entry) add(id setID, r *rule) {
	if n := len(e.sets); n == 0 || e.sets[n-1].id != id {
		e.sets = append(e.sets, ruleSet{id: id})
	}
	last := &e.sets[len(e.sets)-1]
	last.rules = append(last.rules, r)
}

// collect appends the rules of the members to out. A nil entry has none.
func (e *entry) collect(m *members, out []*rule) []*rule {
	if e == nil {
		return out
	}
	if len(e.sets) <= len(m.ids) {
		for i := range e.sets {
			if m.has(e.sets[i].id) {
				out = append(out, e.sets[i].rules...)
			}
		}
		return out
	}
	for _, id := range m.ids {
		i, ok := slices.BinarySearchFunc(e.sets, id, func(s ruleSet, id setID) int { return cmp.Compare(s.id, id) })
		if ok {
			out = append(out, e.sets[i].rules...)
		}
	}
	return out
}

// rules appends the members' rules whose pattern covers p, which is one host
// or a wildcard. It does not allocate while out has room.
func (x *index) rules(p HostPattern, m *members, out []*rule) []*rule {
	if p.kind == hostExact {
		out = x.exact[p.name].collect(m, out)
		if IsIP(p.name) {
			return x.anyForLiteral(m, out)
		}
	} else if p.kind == hostSuffix {
		out = x.suffix[p.name].collect(m, out)
	}
	for name := p.name; ; {
		i := strings.IndexByte(name, '.')
		if i < 0 {
			return x.any.collect(m, out)
		}
		name = name[i+1:]
		out = x.suffix[name].collect(m, out)
	}
}

// anyForLiteral appends the denials of "*": no wildcard allows an IP literal,
// but who denies everything means these too.
func (x *index) anyForLiteral(m *members, out []*rule) []*rule {
	n := len(out)
	out = x.any.collect(m, out)
	keep := out[:n]
	for _, r := range out[n:] {
		if r.src.Action == ActionDeny {
			keep = append(keep, r)
		}
	}
	return keep
}

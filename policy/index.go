package policy

import (
	"hash/maphash"
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

// index finds the rules for a host, over all sets, by lookups alone: one for
// the host and one for each name above it. It is a few large tables, of which
// only one has pointers, and not a map of small objects: the collector of
// garbage follows each of those, again and again, while traffic flows.
type index struct {
	order []*rule // by pattern; those of one pattern by set, ascending
	sets  []setID // of each of order
	slots []run   // of the patterns, by hash; a power of two, at least half of it empty
	seed  maphash.Seed
	any   run
}

// run is where in order the rules of one pattern stand.
type run struct{ from, to uint32 }

func (k run) empty() bool { return k.from == k.to }

func newIndex(sets []*ruleSet, yield func()) *index {
	x := &index{seed: maphash.MakeSeed()}
	runs := x.arrange(sets, yield)
	x.share(runs)
	size := 1
	for size < 2*len(runs) {
		size *= 2
	}
	x.slots = make([]run, max(2, size))
	for _, k := range runs {
		i := x.slot(x.order[k.from].host)
		x.slots[i] = k
	}
	x.any = x.find(hostAny, "")
	return x
}

// arrange puts the rules in order and returns the run of each pattern.
func (x *index) arrange(sets []*ruleSet, yield func()) []run {
	var runs []run
	var of []uint32 // pattern of each rule
	number := map[HostPattern]uint32{}
	for _, set := range sets {
		yield()
		for _, r := range set.rules {
			n, ok := number[r.host]
			if !ok {
				n = uint32(len(runs))
				number[r.host], runs = n, append(runs, run{})
			}
			runs[n].to++
			of = append(of, n)
		}
	}
	at := uint32(0)
	for i, k := range runs {
		runs[i] = run{at, at}
		at += k.to
	}
	x.order, x.sets = make([]*rule, len(of)), make([]setID, len(of))
	for _, set := range sets { // ascending, so that each run is
		yield()
		for _, r := range set.rules {
			k := &runs[of[0]]
			x.order[k.to], x.sets[k.to] = r, set.id
			k.to++
			of = of[1:]
		}
	}
	return runs
}

// share has all names stand in one text, each once.
func (x *index) share(runs []run) {
	var text strings.Builder
	for _, k := range runs {
		text.WriteString(x.order[k.from].host.name)
	}
	rest := text.String()
	for _, k := range runs {
		n := len(x.order[k.from].host.name)
		for _, r := range x.order[k.from:k.to] {
			r.host.name = rest[:n]
		}
		rest = rest[n:]
	}
}

// slot is where a pattern stands or, if there is no rule of it, would.
func (x *index) slot(p HostPattern) int {
	mask := len(x.slots) - 1
	for i := int(maphash.String(x.seed, p.name)) + int(p.kind); ; i++ {
		if k := x.slots[i&mask]; k.empty() || x.order[k.from].host == p {
			return i & mask
		}
	}
}

// find returns the rules of one pattern.
func (x *index) find(kind hostKind, name string) run {
	return x.slots[x.slot(HostPattern{kind: kind, name: name})]
}

// scanShare is how many rules of a run are looked at for each member rather
// than the member's searched.
const scanShare = 8

// collect appends the rules of the members to out.
func (x *index) collect(k run, m *members, out []*rule) []*rule {
	sets, rules := x.sets[k.from:k.to], x.order[k.from:k.to]
	if len(sets) <= scanShare*len(m.ids) {
		for i, id := range sets {
			if m.has(id) {
				out = append(out, rules[i])
			}
		}
		return out
	}
	for _, id := range m.ids {
		i, _ := slices.BinarySearch(sets, id)
		for ; i < len(sets) && sets[i] == id; i++ {
			out = append(out, rules[i])
		}
	}
	return out
}

// rules appends the members' rules whose pattern covers p, which is one host
// or a wildcard. It does not allocate while out has room.
func (x *index) rules(p HostPattern, m *members, out []*rule) []*rule {
	if p.kind == hostExact {
		out = x.collect(x.find(hostExact, p.name), m, out)
		if IsIP(p.name) {
			return x.anyForLiteral(m, out)
		}
	} else if p.kind == hostSuffix {
		out = x.collect(x.find(hostSuffix, p.name), m, out)
	}
	for name := p.name; ; {
		i := strings.IndexByte(name, '.')
		if i < 0 {
			return x.collect(x.any, m, out)
		}
		name = name[i+1:]
		out = x.collect(x.find(hostSuffix, name), m, out)
	}
}

// anyForLiteral appends the denials of "*": no wildcard allows an IP literal,
// but who denies everything means these too.
func (x *index) anyForLiteral(m *members, out []*rule) []*rule {
	n := len(out)
	out = x.collect(x.any, m, out)
	keep := out[:n]
	for _, r := range out[n:] {
		if r.like.Action == ActionDeny {
			keep = append(keep, r)
		}
	}
	return keep
}

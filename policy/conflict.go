package policy

import (
	"fmt"
	"slices"
	"strings"
)

// checkConflicts reports rules of one sandbox that would treat one connection
// in two ways: opened for one, relayed unopened for the other. Which it is
// must be known before the first byte.
func (c *compiler) checkConflicts(x *index) {
	f := conflictFinder{c: c, x: x, seen: map[[2]*rule]bool{}, reversed: map[setID][]reversedRule{}}
	for _, name := range sortedNames(c.sandboxes) {
		c.yield()
		f.sandbox(c.sandboxes[name])
	}
}

func sortedNames(m map[string]*sandbox) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

type conflictFinder struct {
	c        *compiler
	x        *index
	seen     map[[2]*rule]bool
	reversed map[setID][]reversedRule // by set, built when first asked for
}

// reversedRule is a rule under its host spelt backwards, so that all hosts
// below a name stand side by side.
type reversedRule struct {
	key string
	r   *rule
}

func (f *conflictFinder) sandbox(sb *sandbox) {
	for _, id := range sb.members.ids {
		for _, r := range f.c.sets[id].rules {
			if r.like.Action == ActionTCP || r.like.Action == ActionPassthrough {
				for _, other := range f.overlapping(r, &sb.members) {
					f.compare(r, other)
				}
			}
		}
	}
}

func (f *conflictFinder) compare(r, other *rule) {
	if other.like.Action == ActionDeny || other.relay() == r.relay() {
		return
	}
	pair := [2]*rule{r, other}
	if other.rank < r.rank {
		pair = [2]*rule{other, r}
	}
	if f.seen[pair] {
		return
	}
	f.seen[pair] = true
	for _, end := range r.ends.list {
		if !other.ends.hasPort(end.port) {
			continue
		}
		first, second := pair[0], pair[1]
		f.c.report(Problem{
			Pos:     second.pos(),
			Related: []Pos{first.pos()},
			Summary: fmt.Sprintf("%s: conflicts with %s on port %d", second.title(), first.title(), end.port),
			Detail:  "A connection is either opened and each request decided, or relayed unopened; it cannot be both.",
			Hint:    "use one kind of rule for this host and port",
		})
		return
	}
}

// overlapping returns the members' rules whose hosts overlap with r's.
func (f *conflictFinder) overlapping(r *rule, m *members) []*rule {
	out := f.x.rules(r.host, m, nil)
	if r.host.kind == hostExact {
		return out
	}
	for _, id := range m.ids {
		out = append(out, f.below(id, r.host)...)
	}
	return out
}

// below returns the rules of a set whose hosts lie below a wildcard.
func (f *conflictFinder) below(id setID, p HostPattern) []*rule {
	list, ok := f.reversed[id]
	if !ok {
		for _, r := range f.c.sets[id].rules {
			list = append(list, reversedRule{key: reverse(r.host.name), r: r})
		}
		slices.SortFunc(list, func(a, b reversedRule) int { return strings.Compare(a.key, b.key) })
		f.reversed[id] = list
	}
	prefix := ""
	if p.kind == hostSuffix {
		prefix = reverse("." + p.name)
	}
	at, _ := slices.BinarySearchFunc(list, prefix, func(r reversedRule, key string) int { return strings.Compare(r.key, key) })
	var out []*rule
	for _, r := range list[at:] {
		if !strings.HasPrefix(r.key, prefix) {
			break
		}
		if p.Overlaps(r.r.host) {
			out = append(out, r.r)
		}
	}
	return out
}

func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

package policy

import (
	"slices"
)

// withPaths writes a set of classes as statements: one for plain paths, with
// patterns, and one for each form besides.
func (g *grid) withPaths(base Change, classes bits) []Change {
	if !slices.Contains([]byte(classes), '0') {
		return []Change{base}
	}
	var out []Change
	forms := map[string]bool{}
	var order []string
	for i, c := range g.classes {
		if classes.has(i) && c.form != "" && !forms[c.form] {
			forms[c.form] = true
			order = append(order, c.form)
		}
	}
	if paths := g.cover(classes); len(paths) > 0 {
		plain := base
		plain.Paths = paths
		plain.part.classes = g.only(classes, "")
		out = append(out, plain)
	}
	for _, form := range order {
		c := base
		c.Form = form
		c.part.classes = g.only(classes, form)
		out = append(out, c)
	}
	return out
}

// only returns the classes of one form.
func (g *grid) only(classes bits, form string) bits {
	set := map[int]bool{}
	for i, c := range g.classes {
		set[i] = classes.has(i) && c.form == form
	}
	return bitsOf(set, len(g.classes))
}

// candidate is a pattern that a statement may name, and the plain classes
// that it holds.
type candidate struct {
	glob    pathGlob
	classes map[int]bool
}

// cover finds few patterns that hold the wanted plain classes and no other:
// each time the one that holds most of what is left.
func (g *grid) cover(wanted bits) []PathSet {
	left := map[int]bool{}
	for i, c := range g.classes {
		if c.form == "" && wanted.has(i) {
			left[i] = true
		}
	}
	candidates := g.candidates()
	var out []PathSet
	for len(left) > 0 {
		best, most := PathSet{}, candidate{}
		gain := 0
		for _, k := range candidates {
			set, ok := k.allowing(wanted, candidates)
			if !ok {
				continue
			}
			n := 0
			for i := range k.classes {
				if left[i] {
					n++
				}
			}
			if n > gain || n == gain && n > 0 && len(set.Except) < len(best.Except) {
				best, most, gain = set, k, n
			}
		}
		if gain == 0 {
			i := slices.Min(keys(left))
			best, most = g.exactly(i), candidate{classes: map[int]bool{i: true}}
		}
		out = append(out, best)
		for i := range most.classes {
			delete(left, i)
		}
	}
	return out
}

func keys(m map[int]bool) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

// candidates are the rules' patterns and that of all paths.
func (g *grid) candidates() []candidate {
	out := make([]candidate, 0, len(g.globs)+1)
	for k := range g.globs {
		out = append(out, candidate{g.globs[k], map[int]bool{}})
	}
	out = append(out, candidate{pathGlob{deep: true}, map[int]bool{}})
	for i, c := range g.classes {
		if c.form != "" {
			continue
		}
		for k := range g.globs {
			if c.hits[k] {
				out[k].classes[i] = true
			}
		}
		out[len(g.globs)].classes[i] = true
	}
	return out
}

// allowing writes the pattern without what is not wanted of it. ok is false
// when no other patterns hold just that.
func (k *candidate) allowing(wanted bits, candidates []candidate) (set PathSet, ok bool) {
	bad := map[int]bool{}
	for i := range k.classes {
		if !wanted.has(i) {
			bad[i] = true
		}
	}
	if len(bad) == len(k.classes) {
		return PathSet{}, false
	}
	set = PathSet{Glob: k.glob.String(), glob: k.glob}
	for len(bad) > 0 {
		at, most := -1, 0
		for n := range candidates {
			if hit := candidates[n].without(k, wanted, bad); hit > most {
				at, most = n, hit
			}
		}
		if at < 0 {
			return PathSet{}, false
		}
		set.Except = append(set.Except, candidates[at].glob.String())
		set.except = append(set.except, candidates[at].glob)
		for i := range candidates[at].classes {
			delete(bad, i)
		}
	}
	return set, true
}

// without counts how much of bad the pattern holds; none, if it holds
// something of k that is wanted.
func (n *candidate) without(k *candidate, wanted bits, bad map[int]bool) int {
	hit := 0
	for i := range n.classes {
		if k.classes[i] && wanted.has(i) {
			return 0
		}
		if bad[i] {
			hit++
		}
	}
	return hit
}

// exactly writes one class: what all its patterns hold, without those that
// hold none of it.
func (g *grid) exactly(i int) PathSet {
	all := pathGlob{deep: true}
	for k, hit := range g.classes[i].hits {
		if hit {
			all, _ = all.intersect(&g.globs[k]) // the class is in both
		}
	}
	set := PathSet{Glob: all.String(), glob: all}
	for k, hit := range g.classes[i].hits {
		if _, meets := all.intersect(&g.globs[k]); !hit && meets {
			set.Except = append(set.Except, g.globs[k].String())
			set.except = append(set.except, g.globs[k])
		}
	}
	return set
}

// holds reports whether a path in normal form is one of the set's.
func (s *PathSet) holds(p Path) bool {
	return s.glob.match(p) && !slices.ContainsFunc(s.except, func(g pathGlob) bool { return g.match(p) })
}

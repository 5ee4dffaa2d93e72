package policy

import (
	"fmt"
	"slices"
	"strings"
)

// withBodies adds, to every variant without WebSocket, a POST's body of each
// kind that the rules tell apart, and a query parameter that no rule names.
// The variants that are there already have a body that nothing can be read
// from.
func (g *grid) withBodies() error {
	if len(g.bodies) == 0 {
		return nil
	}
	bodies, err := bodyKinds(g.bodies)
	if err != nil {
		return err
	}
	for i := range g.variants {
		g.variants[i].body = nil
	}
	plain := slices.DeleteFunc(slices.Clone(g.variants), func(v variant) bool { return v.ws })
	if len(g.variants)+len(plain)*(2*len(bodies)+1) > maxVariants {
		return errTooManyConditions
	}
	name := "z"
	for slices.ContainsFunc(plain, func(v variant) bool { return strings.Contains("&"+v.query, "&"+name+"=") }) {
		name += "z"
	}
	for _, v := range plain {
		for _, extra := range []bool{false, true} {
			w := v
			if extra {
				w.query = strings.TrimPrefix(v.query+"&"+name+"=", "&")
				w.text = strings.TrimPrefix(v.text+", a query parameter that no rule names", ", ")
				g.variants = append(g.variants, w)
			}
			for _, b := range bodies {
				x := w
				x.body = b.body
				x.text = strings.TrimPrefix(w.text+", "+b.text, ", ")
				g.variants = append(g.variants, x)
			}
		}
	}
	return nil
}

// bodyKind is a body that the rules tell apart from others, and how it is
// named.
type bodyKind struct {
	body *Body
	text string
}

// bodyKinds returns a body for every set of things that some conditions let be
// together: a rule takes a body when it lets be everything in it, so a body
// that holds all of what some conditions have in common stands for all that
// they, and no others, take.
func bodyKinds(conds []*bodyCondition) ([]bodyKind, error) {
	var out []bodyKind
	for _, form := range []bodyForm{bodyGraphQL, bodyJSONRPC} {
		var own []*bodyCondition
		var sizes []int64
		for _, c := range conds {
			if c.form == form {
				own = append(own, c)
				sizes = append(sizes, c.max)
			}
		}
		if len(own) == 0 {
			continue
		}
		slices.Sort(sizes)
		sizes = slices.Compact(sizes)
		atoms := bodyAtoms(form, own)
		sets, err := commonSets(own, atoms)
		if err != nil {
			return nil, err
		}
		for _, set := range sets {
			for _, size := range sizes {
				b := UnreadBody("is of another form")
				b.size = size
				b.forms[form] = bodyReading{}
				for i, a := range atoms {
					if set.has(i) {
						b.forms[form].items = append(b.forms[form].items, a.item)
					}
				}
				k := bodyKind{b, fmt.Sprintf("%s %s", form, bodyText(set, sets, atoms))}
				if len(sizes) > 1 {
					k.text += fmt.Sprintf(" in at most %d bytes", size)
				}
				out = append(out, k)
			}
		}
	}
	return out, nil
}

// bodyText names what is in a set and in none that is a part of it: any body
// with one of those is of this kind.
func bodyText(set bits, sets []bits, atoms []bodyAtom) string {
	var all, own []string
	for i, a := range atoms {
		if !set.has(i) {
			continue
		}
		all = append(all, a.text)
		if !slices.ContainsFunc(sets, func(part bits) bool { return part != set && part.within(set) && part.has(i) }) {
			own = append(own, a.text)
		}
	}
	if len(own) == 0 {
		return orText(all) + " together"
	}
	return orText(own)
}

// within reports whether all of b is in o.
func (b bits) within(o bits) bool {
	for i := range b {
		if b[i] == '1' && !o.has(i) {
			return false
		}
	}
	return true
}

// bodyAtom is one thing that a body may ask for, which stands for all that the
// conditions do not tell apart from it.
type bodyAtom struct {
	item bodyItem
	text string
}

// bodyAtoms returns the atoms of some conditions of one form.
func bodyAtoms(form bodyForm, conds []*bodyCondition) []bodyAtom {
	var words, parts []string
	for _, c := range conds {
		words, parts = union(words, c.words), union(parts, c.parts)
	}
	var out []bodyAtom
	inner := []bodyAtom{{}}
	if len(parts) > 0 {
		inner = wordAtoms(parts, "any other")
	}
	if form == bodyGraphQL {
		for _, w := range []string{"query", "mutation", "subscription"} {
			for _, p := range inner {
				out = append(out, bodyAtom{bodyItem{word: w, part: p.item.word}, strings.TrimSpace(w + " " + p.text)})
			}
		}
		return out
	}
	if meetsToolCall(words) && !slices.Contains(words, toolCall) {
		words = append(words, toolCall)
	}
	for _, w := range wordAtoms(words, "any other method") {
		if w.item.word != toolCall {
			out = append(out, w)
			continue
		}
		for _, p := range inner {
			out = append(out, bodyAtom{bodyItem{word: toolCall, part: p.item.word}, strings.TrimSpace(toolCall + " " + p.text)})
		}
	}
	return append(out, bodyAtom{bodyItem{response: true}, "responses"})
}

// wordAtoms returns one word for each pattern that is in no narrower one, and
// one that is in none.
func wordAtoms(patterns []string, other string) []bodyAtom {
	var out []bodyAtom
	for _, p := range append(slices.Clone(patterns), "*") {
		prefix, deep := strings.CutSuffix(p, "*")
		if !deep {
			out = append(out, bodyAtom{bodyItem{word: p}, p})
			continue
		}
		word := prefix + "z"
		for slices.ContainsFunc(patterns, func(x string) bool {
			wide, ok := strings.CutSuffix(x, "*")
			return x == word || ok && len(wide) > len(prefix) && strings.HasPrefix(word, wide)
		}) {
			word += "z"
		}
		text := p
		if prefix == "" {
			text = other
		}
		out = append(out, bodyAtom{bodyItem{word: word}, text})
	}
	return out
}

// commonSets returns the sets of atoms that each of some conditions takes, and
// all that is common to several of them.
func commonSets(conds []*bodyCondition, atoms []bodyAtom) ([]bits, error) {
	var out []bits
	add := func(b bits) {
		if !b.none() && !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	for _, c := range conds {
		set := map[int]bool{}
		for i := range atoms {
			set[i] = c.takes(&atoms[i].item)
		}
		add(bitsOf(set, len(atoms)))
	}
	for i := 0; i < len(out); i++ {
		for j := range i {
			both := map[int]bool{}
			for k := range atoms {
				both[k] = out[i].has(k) && out[j].has(k)
			}
			add(bitsOf(both, len(atoms)))
		}
		if len(out) > maxVariants {
			return nil, errTooManyConditions
		}
	}
	slices.SortFunc(out, func(a, b bits) int { return strings.Count(string(a), "1") - strings.Count(string(b), "1") })
	return out, nil
}

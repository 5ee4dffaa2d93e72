package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// hostAtom is hosts that the patterns of both policies do not tell apart:
// those whose longest pattern is this one. rep is one of them.
type hostAtom struct {
	pattern HostPattern
	rep     string
}

// hostAtoms returns the atoms of some patterns, among them that of all hosts
// that none of them names.
func hostAtoms(lists ...[]HostPattern) []hostAtom {
	seen := map[HostPattern]bool{{kind: hostAny}: true}
	all := []HostPattern{{kind: hostAny}}
	for _, p := range slices.Concat(lists...) {
		if !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b HostPattern) int { return cmp.Or(cmp.Compare(b.kind, a.kind), cmp.Compare(a.name, b.name)) })
	var out []hostAtom
	for _, p := range all {
		if rep := fresh(p, seen); rep != "" {
			out = append(out, hostAtom{p, rep})
		}
	}
	return out
}

// fresh returns a host of a pattern that is in no narrower one; "" when there
// is none.
func fresh(p HostPattern, known map[HostPattern]bool) string {
	if p.kind == hostExact {
		return p.name
	}
	for i := range len(known) + 1 {
		label := "z" + strconv.Itoa(i)
		if p.kind == hostAny {
			label += "-any"
		}
		host := label
		if p.kind == hostSuffix {
			host += "." + p.name
		}
		if known[HostPattern{kind: hostExact, name: host}] || known[HostPattern{kind: hostSuffix, name: host}] {
			continue
		}
		if canonical, err := CanonicalHost(host); err != nil || canonical != host {
			return ""
		}
		return host
	}
	return ""
}

// fewest returns the atoms as a set of few patterns: a wildcard stands for
// all that is below it and not excepted.
func fewest(in []HostPattern, atoms []hostAtom) HostSet {
	member := map[HostPattern]bool{}
	for _, p := range in {
		member[p] = true
	}
	var out HostSet
	above := func(p HostPattern) bool { // what the nearest wildcard above an atom says of it
		best, found := HostPattern{}, false
		for _, a := range atoms {
			if a.pattern != p && a.pattern.Covers(p) && (!found || a.pattern.narrower(best)) {
				best, found = a.pattern, true
			}
		}
		return found && member[best]
	}
	if !slices.ContainsFunc(in, func(p HostPattern) bool { return p.kind != hostExact }) {
		out.In = slices.Clone(in)
	} else {
		for _, a := range atoms {
			switch inherited := above(a.pattern); {
			case member[a.pattern] && !inherited:
				out.In = append(out.In, a.pattern)
			case !member[a.pattern] && inherited:
				out.Except = append(out.Except, a.pattern)
			}
		}
	}
	order := func(a, b HostPattern) int { return cmp.Compare(a.String(), b.String()) }
	slices.SortFunc(out.In, order)
	slices.SortFunc(out.Except, order)
	return out
}

// String writes the set for people.
func (h HostSet) String() string {
	text := patternTexts(h.In)
	if len(h.Except) > 0 {
		text += " except " + patternTexts(h.Except)
	}
	return text
}

func patternTexts(list []HostPattern) string {
	const most = 12
	words := make([]string, 0, min(len(list), most))
	for _, p := range list[:min(len(list), most)] {
		words = append(words, p.String())
	}
	if len(list) > most {
		words = append(words, fmt.Sprintf("%d others", len(list)-most))
	}
	return strings.Join(words, ", ")
}

// print is equal for rules that match and treat requests alike.
func (d *differ) print(r *rule) string {
	if p, ok := d.prints[r]; ok {
		return p
	}
	paths := make([]string, len(r.paths))
	for i := range r.paths {
		paths[i] = strconv.Quote(r.paths[i].String())
	}
	slices.Sort(paths)
	methods := slices.Sorted(slices.Values(r.methods.list))
	ends := slices.Clone(r.ends.list)
	slices.SortFunc(ends, func(a, b endpoint) int { return cmp.Compare(a.port, b.port) })
	git := ""
	if r.git != nil {
		git = fmt.Sprint(r.git.String(), r.git.write)
	}
	s := r.source()
	p := fmt.Sprintf("%d|%s|%v%v|%v%q|%q|%s|%q|%v|%v|%v%v%v%v%v|%v|%s|%s", s.Action, r.host, ends, r.ends.everyone, r.methods.any, methods, paths, git,
		r.inject, s.Addresses, s.Expires.UnixNano(), s.NoWebSocket, s.EncodedSlash, s.Foreign, s.OnLeakPass, s.NoScrub, s.Limits, r.conditions(), r.body)
	d.prints[r] = p
	return p
}

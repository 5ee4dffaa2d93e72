package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// has reports whether a cell is one of the part's.
func (p *part) has(x cell) bool {
	if !slices.Contains(p.places, x.place) {
		return false
	}
	return x.class < 0 || slices.Contains(p.variants, x.variant) && slices.Contains(p.methods, x.method) && p.classes.has(x.class)
}

// matrix is the cells of one place: by variant and method, the classes.
type matrix map[int]map[int]bits

// bits is a set of small numbers, as text so that it can be compared.
type bits string

func bitsOf(set map[int]bool, n int) bits {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
		if set[i] {
			b[i] = '1'
		}
	}
	return bits(b)
}

func (b bits) has(i int) bool { return i < len(b) && b[i] == '1' }

func (b bits) none() bool { return !strings.Contains(string(b), "1") }

// statements covers a set of cells with few statements.
func (g *grid) statements(cells map[cell][]*Rule) []Change {
	raw := map[place]map[int]map[int]map[int]bool{}
	for x := range cells {
		if raw[x.place] == nil {
			raw[x.place] = map[int]map[int]map[int]bool{}
		}
		v := raw[x.place]
		if v[x.variant] == nil {
			v[x.variant] = map[int]map[int]bool{}
		}
		if v[x.variant][x.method] == nil {
			v[x.variant][x.method] = map[int]bool{}
		}
		v[x.variant][x.method][x.class] = true
	}
	byShape := map[string][]place{}
	shapes := map[string]matrix{}
	for p, v := range raw {
		m := matrix{}
		for i, methods := range v {
			m[i] = map[int]bits{}
			for j, classes := range methods {
				m[i][j] = bitsOf(classes, len(g.classes))
			}
		}
		key := fmt.Sprint(p.scheme == TCP, m)
		byShape[key] = append(byShape[key], p)
		shapes[key] = m
	}
	var out []Change
	for _, key := range slices.Sorted(maps.Keys(byShape)) {
		for _, where := range g.places(byShape[key]) {
			if where.Scheme == TCP {
				where.part = part{grid: g, places: byShape[key]}
				out = append(out, where)
				continue
			}
			for _, c := range g.requests(shapes[key]) {
				c.Ports, c.Scheme = where.Ports, where.Scheme
				c.part.places = placesAt(byShape[key], where.Scheme)
				out = append(out, c)
			}
		}
	}
	return out
}

func placesAt(list []place, s Scheme) []place {
	return slices.DeleteFunc(slices.Clone(list), func(p place) bool { return s != SchemeAny && p.scheme != s })
}

// places joins ports of one scheme, and schemes with the same ports.
func (g *grid) places(list []place) []Change {
	ports := map[Scheme]map[int]bool{}
	for _, p := range list {
		if ports[p.scheme] == nil {
			ports[p.scheme] = map[int]bool{}
		}
		ports[p.scheme][p.port] = true
	}
	var out []Change
	if maps.Equal(ports[HTTPS], ports[HTTP]) && ports[HTTPS] != nil {
		ports[SchemeAny] = ports[HTTPS]
		delete(ports, HTTPS)
		delete(ports, HTTP)
	}
	for _, s := range slices.Sorted(maps.Keys(ports)) {
		c := Change{Scheme: s}
		last := len(g.ports) - 1
		c.Ports.Other = ports[s][last]
		for i, p := range g.ports[:last] {
			switch {
			case ports[s][i] && !c.Ports.Other:
				c.Ports.List = append(c.Ports.List, p)
			case !ports[s][i] && c.Ports.Other:
				c.Ports.Except = append(c.Ports.Except, p)
			}
		}
		out = append(out, c)
	}
	return out
}

// requests covers the requests of one place.
func (g *grid) requests(m matrix) []Change {
	groups := g.variantGroups(m)
	post := slices.Index(g.methods, "POST")
	if len(g.bodies) > 0 && post >= 0 && (len(groups) > 1 || len(groups) == 1 && len(groups[0].without) > 0) {
		// Of a request that is no POST no rule looks at the body.
		only, rest := m.split(post)
		return append(g.grouped(only, g.variantGroups(only)), g.grouped(rest, g.variantGroups(rest))...)
	}
	return g.grouped(m, groups)
}

// split divides a matrix into what it says of one method and of all others.
func (m matrix) split(method int) (only, rest matrix) {
	only, rest = matrix{}, matrix{}
	for v, methods := range m {
		for i, classes := range methods {
			to := rest
			if i == method {
				to = only
			}
			if to[v] == nil {
				to[v] = map[int]bits{}
			}
			to[v][i] = classes
		}
	}
	return only, rest
}

// grouped writes the statements of groups of variants.
func (g *grid) grouped(m matrix, groups []variantGroup) []Change {
	var out []Change
	for _, group := range groups {
		byClasses := map[bits][]int{}
		for method, classes := range m[group.rep] {
			byClasses[classes] = append(byClasses[classes], method)
		}
		for _, classes := range slices.Sorted(maps.Keys(byClasses)) {
			base := Change{Methods: g.methodSet(byClasses[classes], g.variants[group.rep].ws), Variant: group.text, Without: group.without,
				part: part{grid: g, variants: group.members, methods: byClasses[classes], classes: classes}}
			out = append(out, g.withPaths(base, classes)...)
		}
	}
	return out
}

func (g *grid) methodSet(list []int, ws bool) MethodSet {
	in := map[int]bool{}
	for _, m := range list {
		in[m] = true
	}
	last := len(g.methods) - 1
	out := MethodSet{Other: in[last]}
	for i, m := range g.methods[:last] {
		switch {
		case in[i] && !out.Other:
			out.List = append(out.List, m)
		case !in[i] && out.Other && !ws:
			out.Except = append(out.Except, m)
		}
	}
	return out
}

// variantGroup is variants that are alike.
type variantGroup struct {
	rep     int
	members []int
	text    string
	without []string
}

// variantGroups joins the variants that are alike. The one that has nothing
// special stands for those that are like it, so that only the others are
// named. A WebSocket handshake is compared with GET alone.
func (g *grid) variantGroups(m matrix) []variantGroup {
	var groups []variantGroup
	var apart []string // of those that are not like the first
	get := slices.Index(g.methods, "GET")
	twins := map[int]int{} // a WebSocket variant that is like its twin without
	for i, v := range g.variants {
		if j := g.twin(i); v.ws && j >= 0 && m[i][get] == m[j][get] {
			twins[i] = j
		}
	}
	for i, v := range g.variants {
		if _, ok := twins[i]; ok {
			continue
		}
		at := slices.IndexFunc(groups, func(x variantGroup) bool {
			return g.variants[x.rep].ws == v.ws && maps.Equal(m[x.rep], m[i])
		})
		if at != 0 || len(groups) == 0 {
			if i > 0 {
				apart = append(apart, v.text)
			}
		}
		if at < 0 {
			groups = append(groups, variantGroup{rep: i, members: []int{i}, text: v.text})
			continue
		}
		groups[at].members = append(groups[at].members, i)
		if at > 0 {
			groups[at].text += " or " + v.text
		}
	}
	for i, j := range twins {
		for k := range groups {
			if slices.Contains(groups[k].members, j) {
				groups[k].members = append(groups[k].members, i)
			}
		}
	}
	groups[0].without = apart
	return slices.DeleteFunc(groups, func(x variantGroup) bool { return len(m[x.rep]) == 0 })
}

// twin returns the variant that is a WebSocket one without WebSocket.
func (g *grid) twin(i int) int {
	v := g.variants[i]
	return slices.IndexFunc(g.variants, func(x variant) bool {
		return !x.ws && x.body == nil && x.query == v.query && maps.EqualFunc(x.header, v.header, slices.Equal[[]string])
	})
}

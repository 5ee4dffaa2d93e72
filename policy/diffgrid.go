package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// grid is the requests to one host that the rules of both policies tell
// apart: one for each choice of port, scheme, variant, method and path class.
type grid struct {
	host     string
	ports    []uint16 // the last one stands for all others
	methods  []string // the last one stands for all others
	variants []variant
	classes  []pathClass
	globs    []pathGlob
	bodies   []*bodyCondition // what the rules ask of bodies
}

// variant is what a request has besides.
type variant struct {
	text   string // "": nothing that matters
	query  string
	header map[string][]string
	ws     bool
	body   *Body
}

// place is a port and what is spoken there. TCP stands for bytes
// that are relayed unopened.
type place struct {
	port   int // index
	scheme Scheme
}

// cell is one kind of request. A relayed connection has method and class -1.
type cell struct {
	place                  place
	variant, method, class int
}

func newGrid(host string, rules []*rule) (*grid, error) {
	g := &grid{host: host}
	ports := map[uint16]bool{}
	methods := map[string]bool{}
	var slash, params, ws bool
	for _, r := range rules {
		for _, e := range r.ends.list {
			ports[e.port] = true
		}
		for _, m := range r.methods.list {
			methods[m] = true
		}
		if r.git != nil {
			methods["GET"], methods["POST"] = true, true
		}
		if r.git == nil {
			g.addGlobs(r.paths)
		}
		if r.body != nil {
			methods["POST"] = true
			g.bodies = append(g.bodies, r.body)
		}
		slash = slash || r.like.EncodedSlash
		params = params || r.like.Action == ActionDeny && len(r.paths) > 0
		ws = ws || r.like.NoWebSocket || !r.methods.any
	}
	if ws {
		methods["GET"] = true
	}
	n := len(g.globs)
	for _, r := range rules {
		if r.git != nil {
			g.addGlobs(r.git.calls())
		}
	}
	g.ports = append(slices.Sorted(maps.Keys(ports)), otherPort(ports))
	g.methods = append(slices.Sorted(maps.Keys(methods)), otherMethod(methods))
	var err error
	if g.classes, err = pathClasses(g.globs, n, slash, params); err != nil {
		return nil, err
	}
	if g.variants, err = variantsOf(rules, ws); err == nil {
		err = g.withBodies()
	}
	return g, err
}

func (g *grid) addGlobs(list []pathGlob) {
	for _, glob := range list {
		if !slices.ContainsFunc(g.globs, func(x pathGlob) bool { return x.String() == glob.String() && x.deep == glob.deep }) {
			g.globs = append(g.globs, glob)
		}
	}
}

func otherPort(ports map[uint16]bool) uint16 {
	p := uint16(65535)
	for ports[p] {
		p--
	}
	return p
}

func otherMethod(methods map[string]bool) string {
	m := "OTHER"
	for methods[m] {
		m += "X"
	}
	return m
}

// maxVariants bounds the combinations of conditions that are compared.
const maxVariants = 1024

var errTooManyConditions = errors.New("the rules' conditions are too many to be compared")

// variantsOf returns one variant for each combination of what the rules ask
// of query and header.
func variantsOf(rules []*rule, ws bool) ([]variant, error) {
	out := []variant{{header: map[string][]string{}}}
	git := false
	asked := map[string]*condition{}
	for _, r := range rules {
		git = git || r.git != nil
		for _, c := range r.conds {
			have := asked[c.String()]
			if have == nil {
				have = &condition{header: c.header, name: c.name}
				asked[c.String()] = have
			}
			have.values = union(have.values, c.values)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		out = asked[key].multiply(out)
		if len(out) > maxVariants {
			return nil, errTooManyConditions
		}
	}
	if git {
		for _, q := range []string{"service=git-upload-pack", "service=git-receive-pack"} {
			out = append(out, variant{text: "query " + q, query: q, header: map[string][]string{}})
		}
	}
	if ws {
		for _, v := range slices.Clone(out) {
			v.ws = true
			v.text = strings.TrimPrefix(v.text+", WebSocket", ", ")
			out = append(out, v)
		}
	}
	return out, nil
}

// multiply returns each variant without what the condition asks for, with
// each of its values, and with another one.
func (c *condition) multiply(list []variant) []variant {
	var out []variant
	other := "z"
	for slices.Contains(c.values, other) {
		other += "z"
	}
	for _, v := range list {
		out = append(out, v)
		for _, value := range append(slices.Clone(c.values), other) {
			w := variant{query: v.query, header: maps.Clone(v.header)}
			if c.header {
				w.header[c.name] = []string{value}
			} else {
				w.query = strings.TrimPrefix(v.query+"&"+formEscape(c.name)+"="+formEscape(value), "&")
			}
			shown := fmt.Sprintf("%s %q", c, value)
			if value == other {
				shown = fmt.Sprintf("another %s", c)
			}
			w.text = strings.TrimPrefix(v.text+", "+shown, ", ")
			out = append(out, w)
		}
	}
	return out
}

func formEscape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

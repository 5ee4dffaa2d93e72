package policy

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Forms of paths that are not plain.
const (
	formAmbiguous = "paths that can be read in more than one way"
	formSlash     = "paths with an encoded slash"
	formParams    = "paths with a semicolon"
	formAsterisk  = "OPTIONS *"
)

// pathClass is paths that the patterns of both policies do not tell apart.
type pathClass struct {
	rep  string // one of them, as it would be sent
	form string // "": plain
	hits []bool // by pattern: whether it holds them
}

// maxPathStates bounds the search for classes.
const maxPathStates = 20_000

// pathClasses returns the classes of paths that some patterns make, found by
// following all of them segment by segment at once, and those of the forms
// that the rules treat in their own way. The first n patterns are those of
// allow and deny rules, which alone look at paths with encoded slashes.
//
// Where a denial reads encoded slashes as slashes while an allow does not,
// every sequence of segments counts, and there may be too many of them.
func pathClasses(globs []pathGlob, n int, slash, params bool) ([]pathClass, error) {
	c := classes{globs: globs, seen: map[string]bool{}}
	var reps []string
	for _, segs := range c.plain() {
		reps = append(reps, joinSegments(segs, nil, ""))
		if params {
			reps = append(reps, parameters(segs)...)
		}
	}
	encoded := classes{globs: globs[:n], every: params, slash: slash}
	if slash {
		for _, segs := range encoded.plain() {
			reps = append(reps, encodings(segs, "")...)
			if params {
				reps = append(reps, encodings(segs, ";p")...)
			}
		}
	}
	if c.over || encoded.over {
		return nil, errors.New("the rules' paths are too many to be compared")
	}
	// Where no rule has paths these are let through as any other.
	reps = append(reps, "/z/../z", "/z%2Fz", "*")
	for _, rep := range reps {
		c.add(rep, params)
	}
	return c.list, nil
}

type classes struct {
	globs []pathGlob
	seen  map[string]bool
	list  []pathClass
	slash bool // some rule admits encoded slashes
	every bool // no two sequences of segments are alike
	over  bool // there are too many
}

// add adds the class of a path unless it is known.
func (c *classes) add(rep string, params bool) {
	p, ambiguous := NormalPath(rep)
	x := pathClass{rep: rep}
	switch {
	case p.asterisk:
		x.form = formAsterisk
	case ambiguous && !p.slash:
		x.form = formAmbiguous
	case p.slash:
		x.form = formSlash
	case p.params && params:
		x.form = formParams
	}
	var sig strings.Builder
	sig.WriteString(x.form)
	for i := range c.globs {
		hit := c.globs[i].match(p)
		x.hits = append(x.hits, hit)
		sig.WriteString(strconv.FormatBool(hit)[:1])
		if x.form != "" {
			sig.WriteString(strconv.FormatBool(c.globs[i].matchAnyReading(p))[:1])
		}
	}
	if !c.seen[sig.String()] {
		c.seen[sig.String()] = true
		c.list = append(c.list, x)
	}
}

// state is where the patterns stand after some segments.
type state struct {
	segs  []string
	alive []int // patterns that those segments fit
}

// plain returns paths of every class, as segments.
func (c *classes) plain() [][]string {
	var all []int
	longest := 0
	for i := range c.globs {
		all = append(all, i)
		longest = max(longest, len(c.globs[i].segs))
	}
	if c.slash {
		longest++ // a segment that holds a slash is two in another reading
	}
	level := []state{{nil, all}}
	out := [][]string{nil}
	for depth := 0; depth <= longest && len(out) <= maxPathStates; depth++ {
		known := map[string]bool{}
		var next []state
		for _, s := range level {
			for _, text := range c.alphabet(s.alive, depth) {
				t := c.step(s, text, depth)
				key := intsKey(t.alive)
				if c.every {
					key = strings.Join(t.segs, "/")
				}
				if !known[key] {
					known[key] = true
					next = append(next, t)
					out = append(out, t.segs)
				}
			}
		}
		level = next
	}
	c.over = len(out) > maxPathStates
	return out
}

// alphabet is the segments that the patterns tell apart at a depth, and one
// that none of them names.
func (c *classes) alphabet(alive []int, depth int) []string {
	out := []string{""}
	if c.every {
		return c.letters()
	}
	for _, i := range alive {
		if g := &c.globs[i]; depth < len(g.segs) && !g.segs[depth].any && !slices.Contains(out, g.segs[depth].text) {
			out = append(out, g.segs[depth].text)
		}
	}
	for n := 0; out[0] == ""; n++ {
		if text := "z" + strconv.Itoa(n); !slices.Contains(out, text) {
			out[0] = text
		}
	}
	return out
}

// letters is the segments that any pattern names anywhere, and one that none
// does.
func (c *classes) letters() []string {
	out := []string{"z"}
	for i := range c.globs {
		for _, seg := range c.globs[i].segs {
			if !seg.any && !slices.Contains(out, seg.text) {
				out = append(out, seg.text)
			}
		}
	}
	for n := 0; slices.Contains(out[1:], out[0]) || n == 0; n++ {
		out[0] = "z" + strconv.Itoa(n)
	}
	return out
}

func (c *classes) step(s state, text string, depth int) state {
	t := state{segs: append(slices.Clone(s.segs), text)}
	for _, i := range s.alive {
		g := &c.globs[i]
		switch {
		case depth >= len(g.segs):
			if g.deep {
				t.alive = append(t.alive, i)
			}
		case g.segs[depth].any || g.segs[depth].text == text:
			t.alive = append(t.alive, i)
		}
	}
	return t
}

func intsKey(list []int) string {
	var b strings.Builder
	for _, i := range list {
		b.WriteString(strconv.Itoa(i))
		b.WriteByte(',')
	}
	return b.String()
}

// joinSegments writes a path; encoded says behind which segments the slash is
// an encoded one.
func joinSegments(segs []string, encoded []bool, suffix string) string {
	var b strings.Builder
	for i, s := range segs {
		if i > 0 && i-1 < len(encoded) && encoded[i-1] {
			b.WriteString("%2F")
		} else {
			b.WriteByte('/')
		}
		b.WriteString(escapeSegment(s))
		b.WriteString(suffix)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// escapeSegment writes a decoded segment as it can be sent.
func escapeSegment(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"#%/<>?[]^{|}`", c) >= 0 {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// maxEncoded is up to how many segments every choice of encoded slashes is
// tried.
const maxEncoded = 7

// encodings returns a path with its slashes encoded in every combination.
func encodings(segs []string, suffix string) []string {
	n := len(segs) - 1
	if n < 1 {
		return nil
	}
	var out []string
	for bits := 1; bits < 1<<min(n, maxEncoded); bits++ {
		encoded := make([]bool, n)
		for i := range min(n, maxEncoded) {
			encoded[i] = bits&(1<<i) != 0
		}
		out = append(out, joinSegments(segs, encoded, suffix))
	}
	return out
}

// parameters returns a path with a parameter behind each of its segments, and
// behind all.
func parameters(segs []string) []string {
	if len(segs) == 0 {
		return nil
	}
	out := []string{joinSegments(segs, nil, ";p")}
	for i := range segs {
		with := slices.Clone(segs)
		with[i] += ";p"
		out = append(out, joinSegments(with, nil, ""))
	}
	return out
}

// intersect returns the paths that both patterns hold; ok is false when there
// are none.
func (g *pathGlob) intersect(o *pathGlob) (out pathGlob, ok bool) {
	short, long := g, o
	if len(short.segs) > len(long.segs) {
		short, long = long, short
	}
	if len(short.segs) < len(long.segs) && !short.deep {
		return pathGlob{}, false
	}
	for i, seg := range long.segs {
		if i < len(short.segs) {
			switch s := short.segs[i]; {
			case seg.any:
				seg = s
			case !s.any && s.text != seg.text:
				return pathGlob{}, false
			}
		}
		out.segs = append(out.segs, seg)
	}
	out.deep = g.deep && o.deep
	return out, true
}

// calls returns the patterns of paths that git rules tell apart.
func (g *gitRepo) calls() []pathGlob {
	var out []pathGlob
	for _, below := range g.globs() {
		out = append(out, below)
		for _, call := range []string{"info/refs", "git-upload-pack", "git-receive-pack", "info/lfs/objects/batch", "info/lfs/locks",
			"info/lfs/locks/verify", "info/lfs/locks/*/unlock"} {
			x := pathGlob{segs: slices.Clone(below.segs)}
			for _, seg := range strings.Split(call, "/") {
				x.segs = append(x.segs, globSegment{any: seg == "*", text: strings.Trim(seg, "*")})
			}
			out = append(out, x)
			if n := len(below.segs); below.segs[n-1].any { // ".git" alone is no repository
				none := pathGlob{segs: slices.Clone(x.segs)}
				none.segs[n-1] = globSegment{text: ".git"}
				out = append(out, none)
			}
		}
	}
	return out
}

package policy

import (
	"errors"
	"fmt"
	"strings"
)

// pathGlob is a path pattern. Its segments are compared one by one with those
// of a path in normal form.
type pathGlob struct {
	segs []globSegment
	deep bool // ends in "**": any number of further segments, also none
}

type globSegment struct {
	any  bool   // "*": any one segment
	text string // decoded
}

// parsePathGlob reads a path pattern of the policy language. encodedSlash
// admits %2F in it.
func parsePathGlob(s string, encodedSlash bool) (pathGlob, error) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return pathGlob{}, errors.New(`does not begin with "/"`)
	case strings.ContainsAny(s, "?#"):
		return pathGlob{}, errors.New("holds a query or fragment; only the path is matched")
	}
	p, ambiguous := NormalPath(s)
	if ambiguous && !p.slash {
		return pathGlob{}, errors.New("can be read in more than one way (dot segments, encoded dots, backslash, //, control characters or double encoding)")
	}
	if ambiguous && !encodedSlash {
		return pathGlob{}, errors.New("holds an encoded slash; set encoded_slash = true on the rule")
	}
	var g pathGlob
	for w := p.walk(false, false); w.more; {
		seg := w.next()
		switch {
		case seg == "**" && !w.more:
			g.deep = true
		case seg == "**":
			return pathGlob{}, errors.New(`has "**" before its end; it stands last`)
		case seg == "*":
			g.segs = append(g.segs, globSegment{any: true})
		case strings.Contains(seg, "*"):
			return pathGlob{}, fmt.Errorf(`has a star inside the segment %q; "*" is one whole segment, "**" any number at the end`, seg)
		default:
			g.segs = append(g.segs, globSegment{text: decodeSegment(seg)})
		}
	}
	return g, nil
}

// match reports whether the pattern holds the path, read segment by segment.
func (g *pathGlob) match(p Path) bool {
	return !p.asterisk && g.matchWalk(p.walk(false, false))
}

// matchAnyReading reports whether the pattern holds the path in any reading
// that some origin has of it: with encoded slashes dividing or not, with what
// follows a semicolon belonging to the segment or not. Denials use it.
func (g *pathGlob) matchAnyReading(p Path) bool {
	if p.asterisk {
		return g.deep && len(g.segs) == 0 // "/**" means all there is
	}
	return g.matchWalk(p.walk(false, false)) ||
		p.slash && g.matchWalk(p.walk(true, false)) ||
		p.params && g.matchWalk(p.walk(false, true)) ||
		p.slash && p.params && g.matchWalk(p.walk(true, true))
}

func (g *pathGlob) matchWalk(w segments) bool {
	for i := range g.segs {
		if !w.more {
			return false
		}
		if seg := w.next(); !g.segs[i].any && !sameSegment(seg, g.segs[i].text) {
			return false
		}
	}
	return g.deep || !w.more
}

// String returns the pattern as the policy language writes it, decoded.
func (g *pathGlob) String() string {
	var b strings.Builder
	for _, seg := range g.segs {
		b.WriteByte('/')
		if seg.any {
			b.WriteByte('*')
		} else {
			b.WriteString(seg.text)
		}
	}
	if g.deep {
		b.WriteString("/**")
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// covers reports whether the pattern holds every path that other holds.
func (g *pathGlob) covers(other *pathGlob) bool {
	for i, seg := range g.segs {
		if i >= len(other.segs) {
			return false
		}
		if o := other.segs[i]; !seg.any && (o.any || o.text != seg.text) {
			return false
		}
	}
	return g.deep || !other.deep && len(g.segs) == len(other.segs)
}

package policy

import "strings"

// PackedRules are lists of rules as written, in little memory: of what many have
// in common there is one. The zero value has no list.
type PackedRules struct {
	shapes []Rule
	hosts  string
	places []packedRule
	ends   []int // of each list, in places
}

// packedRule is one of them.
type packedRule struct {
	shape, host  uint32 // host: where it ends in hosts
	line, column int
}

// PackRules packs lists of rules, which it does not change.
func PackRules(lists ...[]Rule) PackedRules {
	var p PackedRules
	var hosts strings.Builder
	var key []byte
	known := map[string]uint32{}
	n := 0
	for _, list := range lists {
		n += len(list)
	}
	p.places = make([]packedRule, 0, n)
	for _, list := range lists {
		for i := range list {
			r := &list[i]
			key = r.appendShape(key[:0])
			s, ok := known[string(key)]
			if !ok {
				s = uint32(len(p.shapes))
				known[string(key)], p.shapes = s, append(p.shapes, shapeOf(r))
			}
			hosts.WriteString(r.Host)
			p.places = append(p.places, packedRule{s, uint32(hosts.Len()), r.Pos.Line, r.Pos.Column})
		}
		p.ends = append(p.ends, len(p.places))
	}
	p.hosts = hosts.String()
	return p
}

// Unpack returns the lists as they were. They share what no rule's holder may
// change.
func (p PackedRules) Unpack() [][]Rule {
	out := make([][]Rule, len(p.ends))
	host, at := uint32(0), 0
	for i, end := range p.ends {
		if end > at {
			out[i] = make([]Rule, 0, end-at)
		}
		for _, x := range p.places[at:end] {
			out[i] = append(out[i], p.shapes[x.shape].placed(p.hosts[host:x.host], x.line, x.column))
			host = x.host
		}
		at = end
	}
	return out
}

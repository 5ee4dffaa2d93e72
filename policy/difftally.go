package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// tally gathers, for each capability, the cells that gain or lose it.
type tally struct {
	g            *grid
	gained, lost map[capability]map[cell][]*Rule // with the rules that decide
}

// add compares what both sides give for one cell.
func (t *tally) add(x cell, was, now granted) {
	switch had, has := len(was.caps) > 0, len(now.caps) > 0; {
	case !had && !has, had && !has && was.unread, has && !had && now.unread:
		// Of the relay as a whole there is a statement.
	case !has:
		for _, c := range was.caps {
			if c.what == CapAccess || c.what == CapRelay {
				t.note(false, c, x, was.d.Rule, denialOnly(now.d.Rule))
			}
		}
	case !had:
		for _, c := range now.caps {
			if c.what != CapPublic && c.what != CapLimits && c.what != CapForeign {
				t.note(true, c, x, now.d.Rule)
			}
		}
	default:
		t.both(x, was, now)
	}
}

// both compares two sides that both let a cell through.
func (t *tally) both(x cell, was, now granted) {
	foreign := was.injects && now.injects // else the sandbox's own credentials went as they came
	for key, c := range now.caps {
		if c.what == CapForeign && !foreign {
			continue
		}
		if _, ok := was.caps[key]; !ok && !(c.what == CapAddress && containedIn(prefixOf(c.detail), was.d.Addresses)) {
			t.note(true, c, x, now.d.Rule)
		}
	}
	for key, c := range was.caps {
		if c.what == CapForeign && !foreign {
			continue
		}
		if _, ok := now.caps[key]; !ok && !(c.what == CapAddress && containedIn(prefixOf(c.detail), now.d.Addresses)) {
			t.note(false, c, x, was.d.Rule, now.d.Rule)
		}
	}
	a, b := was.caps["limits"], now.caps["limits"]
	if a.detail != b.detail && a.detail != "" && b.detail != "" {
		c := capability{CapLimits, a.detail + " becomes " + b.detail, relaxed(was.d.Rule.Limits, now.d.Rule.Limits)}
		t.note(true, c, x, now.d.Rule)
	}
}

// relaxed reports whether one of the limits is higher or gone.
func relaxed(a, b Limits) bool {
	x := []int64{a.RequestsPerMinute, a.BytesSentPerDay, a.BytesReceivedPerDay, a.Connections, a.MaxRequest, a.MaxResponse}
	y := []int64{b.RequestsPerMinute, b.BytesSentPerDay, b.BytesReceivedPerDay, b.Connections, b.MaxRequest, b.MaxResponse}
	for i := range x {
		if x[i] > 0 && (y[i] == 0 || y[i] > x[i]) {
			return true
		}
	}
	return false
}

func denialOnly(r *Rule) *Rule {
	if r != nil && r.Action == ActionDeny {
		return r
	}
	return nil
}

func (t *tally) note(gained bool, c capability, x cell, rules ...*Rule) {
	to := t.lost
	if gained {
		to = t.gained
	}
	if to[c] == nil {
		to[c] = map[cell][]*Rule{}
	}
	to[c][x] = slices.DeleteFunc(rules, func(r *Rule) bool { return r == nil })
}

// changes writes what was gathered as statements.
func (t *tally) changes() []Change {
	var out []Change
	for _, gained := range []bool{true, false} {
		from := t.lost
		if gained {
			from = t.gained
		}
		caps := slices.SortedFunc(maps.Keys(from), func(a, b capability) int {
			return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.detail, b.detail))
		})
		for _, c := range caps {
			for _, s := range t.g.statements(from[c]) {
				s.Gains, s.What, s.Detail, s.Widening = gained, c.what, c.detail, gained && c.wider
				for x, rules := range from[c] {
					if s.part.has(x) {
						s.Rules = joinRules(s.Rules, rules)
					}
				}
				slices.SortFunc(s.Rules, func(a, b *Rule) int { return comparePos(a.Pos, b.Pos) })
				out = append(out, s)
			}
		}
	}
	return out
}

// key is equal for changes that differ in hosts and rules alone.
func (c *Change) key() string {
	paths := make([]string, len(c.Paths))
	for i, p := range c.Paths {
		paths[i] = fmt.Sprintf("%q %q", p.Glob, p.Except)
	}
	return fmt.Sprintf("%v|%s|%s|%v|%v|%d|%v|%v|%s|%s|%q|%v|%v", c.Gains, c.What, c.Detail, c.Widening, c.Ports, c.Scheme, c.Methods, paths,
		c.Form, c.Variant, c.Without, c.From.UnixNano(), c.Until.UnixNano())
}

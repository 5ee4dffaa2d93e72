package audit

import (
	"bytes"
	"slices"
)

// glance is what can be seen of a line without decoding it: the members that
// stand first in its body, as they are written there.
type glance struct {
	kind, verdict, reason []byte // without their quotes; nil: absent
	would                 []byte // the reason of a denial that was let pass
	known                 bool   // the line could be read so far
}

// glanceAt reads the first members of the body of a line. Their values are
// words of this program; what a sandbox has a say in comes behind them.
func glanceAt(line []byte) (g glance) {
	g.known = true
	word := func(value []byte) []byte {
		n := len(value)
		if n < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
			g.known = false
			return nil
		}
		return value[1 : n-1]
	}
	body(line, func(name, value []byte) bool {
		switch string(name) {
		case "kind":
			g.kind = word(value)
		case "phase":
		case "verdict":
			g.verdict = word(value)
		case "would":
			members(value, func(name, value []byte) bool {
				if string(name) == "reason" {
					g.would = word(value)
				}
				return true
			})
		case "reason":
			g.reason = word(value)
		default:
			return false
		}
		return true
	})
	g.known = g.known && g.kind != nil
	return g
}

// may says whether an event of which g was seen can match r.
func (g glance) may(r *AlertRule) bool {
	switch {
	case !g.known:
		return true
	case r.Verdict != "" && r.Verdict != string(g.verdict),
		r.Kind != "" && r.Kind != string(g.kind):
		return false
	case len(r.Reasons) == 0:
		return true
	}
	return slices.ContainsFunc(r.Reasons, func(reason string) bool {
		return reason == string(g.reason) || reason == string(g.would)
	})
}

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// settingChanges compares what a sandbox says besides rules. A sandbox that
// only one policy has is its rules.
func settingChanges(a, b *Sandbox) []Change {
	var out []Change
	say := func(gains, widening bool, pos Pos, format string, args ...any) {
		out = append(out, Change{Gains: gains, What: CapSetting, Detail: fmt.Sprintf(format, args...), Widening: widening, Pos: pos})
	}
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		say(true, false, b.Pos, "the sandbox is new")
		if !b.Match.empty() {
			say(true, true, b.Match.Pos, "traffic of %s is its own", b.Match.text())
		}
		return out
	case b == nil:
		say(false, false, a.Pos, "the sandbox is gone")
		return out
	}
	if a.Mode != b.Mode {
		say(b.Mode == Report, b.Mode == Report, b.Pos, "mode %s becomes %s", a.Mode, b.Mode)
	}
	if a.IPv6 != b.IPv6 {
		say(b.IPv6, b.IPv6, b.Pos, "ipv6 %v becomes %v", a.IPv6, b.IPv6)
	}
	if x, y := a.Credentials.effective(), b.Credentials.effective(); x != y {
		say(y < x, y < x, b.Pos, "credentials %q becomes %q", x.text(), y.text())
	}
	if a.Limits != b.Limits {
		wider := relaxed(a.Limits, b.Limits)
		say(wider, wider, b.Pos, "limits: %s becomes %s", a.Limits.text(), b.Limits.text())
	}
	if x, y := a.Match.text(), b.Match.text(); x != y {
		wider := !b.Match.within(&a.Match)
		say(wider, wider, matchPos(b), "match: %s becomes %s", x, y)
	}
	return out
}

// String returns the word of the language.
func (m Mode) String() string {
	if m == Report {
		return "report"
	}
	return "enforce"
}

// effective replaces the default by what it is for a sandbox.
func (t Tripwire) effective() Tripwire {
	if t == TripwireDefault {
		return TripwireAlert
	}
	return t
}

func (t Tripwire) text() string { return [...]string{"", "off", "alert", "block"}[t] }

// text writes a match block in one form.
func (m *Match) text() string {
	if m.empty() {
		return "nothing"
	}
	var parts []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			slices.Sort(list)
			parts = append(parts, name+" "+strings.Join(list, ", "))
		}
	}
	cidrs := make([]string, len(m.CIDRs))
	for i, p := range m.CIDRs {
		cidrs[i] = p.String()
	}
	add("cidrs", cidrs)
	add("interfaces", slices.Clone(m.Interfaces))
	add("macs", slices.Clone(m.MACs))
	return strings.Join(parts, " and ")
}

// within reports whether all that m binds was bound by o: each of o's lists
// holds for whatever m's does. It errs towards false.
func (m *Match) within(o *Match) bool {
	if m.empty() {
		return true
	}
	if o.empty() {
		return false
	}
	if len(o.CIDRs) > 0 && (len(m.CIDRs) == 0 || slices.ContainsFunc(m.CIDRs, func(p prefix) bool { return !containedIn(p, o.CIDRs) })) {
		return false
	}
	if len(o.Interfaces) > 0 && (len(m.Interfaces) == 0 || !holds(o.Interfaces, m.Interfaces)) {
		return false
	}
	return len(o.MACs) == 0 || len(m.MACs) > 0 && holds(o.MACs, m.MACs)
}

// secretChanges compares where secrets may go and stand, and where they come
// from.
func secretChanges(old, next *Set) []Change {
	var out []Change
	names := map[string]bool{}
	for _, s := range slices.Concat(old.Secrets(), next.Secrets()) {
		names[s.Name] = true
	}
	for name := range names {
		out = append(out, secretChange(name, old.secrets[name], next.secrets[name])...)
	}
	return out
}

func secretChange(name string, a, b *secret) []Change {
	var out []Change
	say := func(gains, widening bool, pos Pos, format string, args ...any) {
		out = append(out, Change{Gains: gains, What: CapSetting, Detail: "secret " + name + ": " + fmt.Sprintf(format, args...), Widening: widening, Pos: pos})
	}
	switch {
	case a == nil:
		say(true, false, b.src.Pos, "is new, for %s", strings.Join(b.src.Hosts, ", "))
		return out
	case b == nil:
		say(false, false, a.src.Pos, "is gone")
		return out
	}
	x, y := a.src, b.src
	for _, h := range b.hosts {
		if !a.covers(h) {
			say(true, true, y.Pos, "may go to %s", h)
		}
	}
	for _, h := range a.hosts {
		if !b.covers(h) {
			say(false, false, y.Pos, "may no longer go to %s", h)
		}
	}
	if before, after := x.places(), y.places(); !slices.Equal(before, after) {
		wider := !holds(before, after)
		say(wider, wider, y.Pos, "places: %s becomes %s", strings.Join(before, ", "), strings.Join(after, ", "))
	}
	if x.Source.Kind != y.Source.Kind || !reflect.DeepEqual(x.Source.Attrs, y.Source.Attrs) {
		say(true, true, y.Source.Pos, "comes from another source")
	}
	if x.Set != y.Set {
		say(y.Set, y.Set, y.Pos, "set %v becomes %v", x.Set, y.Set)
	}
	if x.Placeholder != y.Placeholder {
		say(true, false, y.Pos, "has another placeholder")
	}
	if x.OnErrorStale != y.OnErrorStale || x.TTL != y.TTL {
		say(y.OnErrorStale && !x.OnErrorStale, false, y.Pos, "is kept differently (ttl, on_error)")
	}
	return out
}

// places are where a secret may stand in a request.
func (s *Secret) places() []string {
	var out []string
	if len(s.Headers) == 0 {
		out = append(out, "the usual credential headers")
	}
	for _, h := range s.Headers {
		out = append(out, "header "+h)
	}
	for _, q := range s.Query {
		out = append(out, "query parameter "+q)
	}
	if s.Path {
		out = append(out, "path")
	}
	if s.WebSocket {
		out = append(out, "WebSocket messages")
	}
	if s.Body != nil {
		for _, t := range s.Body.Types {
			for _, f := range s.Body.Fields {
				out = append(out, "field "+f+" of "+t)
			}
			if len(s.Body.Fields) == 0 {
				out = append(out, "body of "+t)
			}
		}
	}
	slices.Sort(out)
	return out
}

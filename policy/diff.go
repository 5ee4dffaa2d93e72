package policy

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Diff returns what changes for every sandbox, and for the ceiling, from the
// old policy to the new one. Every request that is decided otherwise by the
// two is in one of the changes: they are found by deciding one request of
// each kind that the rules of both tell apart, not by comparing texts. Rules
// that expire are compared at now and at every expiry from then on.
func Diff(old, next *Set, now time.Time) []Change {
	d := differ{old: old, next: next, now: now, prints: map[*rule]string{}, sets: map[*ruleSet]string{}}
	var out []Change
	for _, name := range union(old.names, next.names) {
		found := d.sandbox(name)
		found = append(found, settingChanges(old.Sandbox(name), next.Sandbox(name))...)
		for i := range found {
			found[i].Sandboxes = []string{name}
		}
		out = append(out, found...)
	}
	out = mergeSandboxes(out)
	for _, c := range d.org() {
		c.ceiling = true
		out = append(out, c)
	}
	out = append(out, secretChanges(old, next)...)
	slices.SortStableFunc(out, compareChanges)
	return out
}

type differ struct {
	old, next *Set
	now       time.Time
	prints    map[*rule]string
	sets      map[*ruleSet]string
}

// side is one of the two policies, for one sandbox or for the ceiling.
type side struct {
	s       *Set
	members members // rules that can matter
	decide  func(Request) Decision
}

func (d *differ) sandbox(name string) []Change {
	a, b := d.side(d.old, name), d.side(d.next, name)
	all := a.report() != b.report() || a.report() && d.ceilingPrint(d.old) != d.ceilingPrint(d.next)
	if !all && d.membersPrint(&a) == d.membersPrint(&b) {
		return nil
	}
	return d.compare(a.side, b.side, all)
}

// sandboxSide is a side with the sandbox that it is about.
type sandboxSide struct {
	side
	sb *Sandbox // nil: the policy has no such sandbox
}

func (s *sandboxSide) report() bool { return s.sb != nil && s.sb.Mode == Report }

func (d *differ) side(s *Set, name string) sandboxSide {
	out := sandboxSide{side: side{s: s, decide: s.Decide}, sb: s.Sandbox(name)}
	if out.sb == nil {
		return out
	}
	ids := slices.Clone(s.sandboxes[name].members.ids)
	if out.report() && s.ceiling != nil {
		ids = append(ids, s.ceiling.ids...)
	}
	out.members = newMembers(ids)
	named := out.decide
	out.decide = func(r Request) Decision { r.Sandbox = name; return named(r) }
	return out
}

// org compares the ceilings.
func (d *differ) org() []Change {
	a, b := d.old.ceiling, d.next.ceiling
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		return []Change{{Gains: false, What: CapSetting, Detail: "the org block bounds every sandbox from now on"}}
	case b == nil:
		return []Change{{Gains: true, What: CapSetting, Detail: "there is no org block any more: nothing bounds a sandbox", Widening: true}}
	case d.ceilingPrint(d.old) == d.ceilingPrint(d.next):
		return nil
	}
	return d.compare(ceilingSide(d.old), ceilingSide(d.next), false)
}

func ceilingSide(s *Set) side {
	return side{s: s, members: *s.ceiling, decide: func(r Request) Decision {
		q := query{Request: &r}
		if r.Stage == StageRequest {
			q.path, q.ambiguous = NormalPath(r.Path)
		}
		return s.decide(&q, s.ceiling)
	}}
}

func (d *differ) ceilingPrint(s *Set) string {
	if s.ceiling == nil {
		return "none"
	}
	return d.setsPrint(s, s.ceiling)
}

func (d *differ) membersPrint(s *sandboxSide) string {
	if s.sb == nil {
		return "none"
	}
	meta := "|"
	if s.s.metadata {
		meta = "|metadata"
	}
	return d.setsPrint(s.s, &s.members) + meta
}

// setsPrint is equal for rule sets that say the same.
func (d *differ) setsPrint(s *Set, m *members) string {
	var prints []string
	for _, id := range m.ids {
		set := s.sets[id]
		if len(set.rules) == 0 {
			continue
		}
		p, ok := d.sets[set]
		if !ok {
			var rules []string
			for _, r := range set.rules {
				rules = append(rules, d.print(r))
			}
			slices.Sort(rules)
			p = strings.Join(rules, "\n")
			d.sets[set] = p
		}
		prints = append(prints, p)
	}
	slices.Sort(prints)
	return strings.Join(prints, "\n\n")
}

// compare finds the changes of one sandbox or of the ceiling. With all, every
// host is looked at and not only those of rules that differ.
func (d *differ) compare(a, b side, all bool) []Change {
	atoms := hostAtoms(patterns(&a), patterns(&b))
	touched := d.touched(&a, &b)
	byKey := map[string]*Change{}
	var order []string
	for i, atom := range atoms {
		if !all && !slices.ContainsFunc(touched, func(p HostPattern) bool { return p.Covers(atom.pattern) }) {
			continue
		}
		for _, c := range d.host(&a, &b, atom) {
			key := c.key()
			have := byKey[key]
			if have == nil {
				have = &c
				have.at = map[HostPattern]part{}
				byKey[key] = have
				order = append(order, key)
			} else {
				have.Rules = joinRules(have.Rules, c.Rules)
			}
			have.Hosts.In = append(have.Hosts.In, atoms[i].pattern)
			have.at[atoms[i].pattern] = c.part
		}
	}
	out := make([]Change, 0, len(order))
	for _, key := range order {
		c := byKey[key]
		c.Hosts = fewest(c.Hosts.In, atoms)
		out = append(out, *c)
	}
	return out
}

// touched returns the patterns of rules that only one side has.
func (d *differ) touched(a, b *side) []HostPattern {
	count := map[string]int{}
	hosts := map[string]HostPattern{}
	tally := func(s *side, n int) {
		for _, r := range s.s.rulesIn(&s.members) {
			p := d.print(r)
			count[p] += n
			hosts[p] = r.host
		}
	}
	tally(a, 1)
	tally(b, -1)
	seen := map[HostPattern]bool{}
	var out []HostPattern
	for _, p := range slices.Sorted(maps.Keys(count)) {
		if h := hosts[p]; count[p] != 0 && !seen[h] {
			seen[h] = true
			out = append(out, h)
		}
	}
	if a.s.metadata != b.s.metadata {
		for _, s := range []*side{a, b} {
			for _, r := range s.s.rulesIn(&s.members) {
				if len(r.like.Addresses) > 0 {
					out = append(out, r.host)
				}
			}
		}
	}
	return out
}

func patterns(s *side) []HostPattern {
	var out []HostPattern
	for _, r := range s.s.rulesIn(&s.members) {
		out = append(out, r.host)
	}
	return out
}

// mergeSandboxes joins the changes that several sandboxes have alike.
func mergeSandboxes(list []Change) []Change {
	at := map[string]int{}
	var out []Change
	for _, c := range list {
		key := c.key() + "|" + c.Hosts.String() + "|" + rulesKey(c.Rules)
		if i, ok := at[key]; ok {
			out[i].Sandboxes = append(out[i].Sandboxes, c.Sandboxes...)
			continue
		}
		at[key] = len(out)
		out = append(out, c)
	}
	return out
}

func rulesKey(rules []*Rule) string {
	var b strings.Builder
	for _, r := range rules {
		b.WriteString(r.Pos.String())
		b.WriteByte(' ')
	}
	return b.String()
}

func joinRules(a, b []*Rule) []*Rule {
	for _, r := range b {
		if !slices.ContainsFunc(a, func(x *Rule) bool { return x.Pos == r.Pos }) {
			a = append(a, r)
		}
	}
	return a
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

type prefix = netip.Prefix

// prefixOf reads back a range that a capability carries as text.
func prefixOf(s string) netip.Prefix {
	p, _ := netip.ParsePrefix(s) // it was written by Prefix.String
	return p
}

// containedIn reports whether one of the ranges holds all of p.
func containedIn(p netip.Prefix, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Contains(p.Addr()) })
}

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
)

// LintOptions say when a policy is looked at. The zero value looks at no
// expiry.
type LintOptions struct {
	Now    time.Time     // zero: rules that expire are not reported
	Within time.Duration // a rule that expires sooner is reported
}

// maxCompare bounds with how many rules for the same host one rule is
// compared.
const maxCompare = 64

// Lint reports what a policy may say and its author probably does not mean:
// rules that add nothing, rules that can never allow, wildcards under which
// anybody can register a name, rules that end soon, groups that nobody uses.
// Every problem is a warning.
func (s *Set) Lint(o LintOptions) []Problem {
	l := linter{s: s, o: o}
	for _, scope := range s.scopes() {
		l.scope(scope)
	}
	l.groups()
	l.methods()
	sortProblems(l.problems)
	return l.problems
}

type linter struct {
	s        *Set
	o        LintOptions
	problems []Problem
}

func (l *linter) warn(p Problem) {
	p.Severity = Warning
	l.problems = append(l.problems, p)
}

// scope is some rules and all rules that are always in force together with
// them.
type scope struct {
	rules []*rule
	with  members
	org   bool
}

// scopes returns the own rules of each sandbox with all that bind it, and
// those of each group and of the org with themselves and the org's denials.
func (s *Set) scopes() []scope {
	var out []scope
	for _, set := range s.sets {
		if len(set.rules) == 0 || set.rules[0].like.Action == ActionDeny {
			continue
		}
		by := set.rules[0].owner
		sc := scope{rules: set.rules, org: by.title == "org"}
		if sb := s.owned(set); sb != nil {
			sc.with = sb.members
		} else {
			sc.with = newMembers(append(s.siblings(set.id), s.orgDenials...))
		}
		out = append(out, sc)
	}
	return out
}

// owned returns the sandbox whose own rules a set holds, nil for a group's
// and the org's.
func (s *Set) owned(set *ruleSet) *sandbox {
	if by := set.rules[0].owner; by.sandbox != "" {
		return s.sandboxes[by.sandbox]
	}
	return nil
}

// siblings returns the sets of allows and denials of one owner, of which id
// is one.
func (s *Set) siblings(id setID) []setID {
	if int(id)+1 < len(s.sets) { // buildRules makes the two in a row
		return []setID{id, id + 1}
	}
	return []setID{id}
}

func (l *linter) scope(sc scope) {
	for _, r := range sc.rules {
		l.expiry(r)
		if !sc.org {
			l.suffix(r)
		}
		around := l.s.index.rules(r.host, &sc.with, nil)
		if len(around) > maxCompare {
			around = around[:maxCompare]
		}
		if r.host.onLoopback() && len(r.like.Addresses) == 0 {
			l.warn(Problem{Pos: r.pos(), Summary: r.title() + ": can never allow anything",
				Detail: "localhost and the names below it are the sandbox's own loopback, in which the gateway is not.",
				Hint:   "remove it; what runs beside the gateway is allowed by its own name, with addresses"})
			continue
		}
		if by := deniedByAny(r, around); by != nil && !sc.org {
			l.warn(Problem{Pos: r.pos(), Related: []Pos{by.pos()},
				Summary: r.title() + ": can never allow anything",
				Detail:  fmt.Sprintf("All of it is denied by %s.", by.title()),
				Hint:    "remove one of the two"})
			continue
		}
		if by := shadow(r, around); by != nil {
			l.warn(Problem{Pos: r.pos(), Related: []Pos{by.pos()},
				Summary: r.title() + ": adds nothing",
				Detail:  fmt.Sprintf("All of it is allowed by %s.", by.title()),
				Hint:    "remove it, or narrow the other"})
		}
	}
}

func (l *linter) expiry(r *rule) {
	at := r.like.Expires
	if l.o.Now.IsZero() || at.IsZero() {
		return
	}
	left := at.Sub(l.o.Now)
	switch {
	case left <= 0:
		l.warn(Problem{Pos: r.pos(), Summary: r.title() + ": has expired", Detail: "It is void since " + dateText(r.source()) + ".",
			Hint: "remove it, or give it a new date"})
	case left <= l.o.Within:
		l.warn(Problem{Pos: r.pos(), Summary: r.title() + ": expires soon", Detail: "It is void from " + dateText(r.source()) + " on.",
			Hint: "remove it, or give it a new date"})
	}
}

func (l *linter) suffix(r *rule) {
	if r.host.kind != hostSuffix {
		return
	}
	if ps, _ := publicsuffix.PublicSuffix(r.host.name); ps == r.host.name {
		l.warn(Problem{Pos: r.pos(), Summary: r.title() + ": a wildcard under a public suffix",
			Detail: fmt.Sprintf("Anybody can register a name below %s.", r.host.name),
			Hint:   "name the hosts that are meant"})
	}
}

// methods reports methods that nobody has registered and that are nearly one
// that is known. A denial with one denies nothing.
func (l *linter) methods() {
	for _, set := range l.s.sets {
		for _, r := range set.rules {
			for _, m := range r.methods.list {
				if near := misspelt(m); near != "" {
					l.warn(Problem{Pos: r.pos(), Summary: fmt.Sprintf("%s: %q is no method that is known", r.title(), m),
						Hint: fmt.Sprintf("did you mean %q?", near), Attr: "methods", Value: m})
				}
			}
		}
	}
}

// onLoopback reports whether a pattern is of the names that mean the sandbox
// itself (RFC 6761, section 6.3).
func (p HostPattern) onLoopback() bool {
	return p.kind != hostAny && (p.name == "localhost" || strings.HasSuffix(p.name, ".localhost"))
}

// groups reports groups that neither the org nor a sandbox uses.
func (l *linter) groups() {
	used := map[string]bool{}
	for _, sb := range l.s.sandboxes {
		for _, ref := range sb.src.Use {
			used[ref.Name] = true
		}
	}
	for _, g := range l.s.groups {
		if !used[g.Name] && !l.s.orgGroups[g.Name] {
			l.warn(Problem{Pos: g.Pos, Summary: fmt.Sprintf("group %q: nobody uses it", g.Name), Hint: "remove it, or use it"})
			l.beyondOrg(g.Name)
		}
	}
}

// beyondOrg reports the rules of a group that nobody uses with which it could
// not be used: a ceiling only stops what somebody is allowed.
func (l *linter) beyondOrg(group string) {
	if l.s.ceiling == nil {
		return
	}
	allows := newMembers(slices.Clone(l.s.orgAllows))
	for _, set := range l.s.sets {
		if len(set.rules) == 0 || set.rules[0].owner.group != group {
			continue
		}
		for _, r := range set.rules {
			if r.like.Action == ActionDeny {
				continue
			}
			above := l.s.index.rules(r.host, &allows, nil)
			if fault := beyond(r, above); fault != "" {
				p := ceilingProblem(r, nearestRule(r, above), fault)
				p.Detail = "Nobody uses the group; with this rule nobody could."
				l.warn(p)
			}
		}
	}
}

// deniedByAny returns a denial that takes back all that a rule allows.
func deniedByAny(r *rule, around []*rule) *rule {
	for _, d := range around {
		if d.like.Action == ActionDeny && d.deniesAll(r) {
			return d
		}
	}
	return nil
}

// deniesAll reports whether a denial for the rule's hosts matches everything
// that the rule does.
func (d *rule) deniesAll(r *rule) bool {
	for _, end := range r.ends.list {
		if d.ends.schemesAt(end.port)&end.schemes != end.schemes {
			return false
		}
	}
	if !d.methods.any {
		if r.methods.any || r.git != nil || r.relay() != RelayIntercept {
			return false
		}
		for _, m := range r.methods.list {
			if !d.methods.has(m) {
				return false
			}
		}
	}
	if len(d.paths) == 0 {
		return true
	}
	if len(r.paths) == 0 {
		return slices.ContainsFunc(d.paths, func(g pathGlob) bool { return g.deep && len(g.segs) == 0 })
	}
	for i := range r.paths {
		if !slices.ContainsFunc(d.paths, func(g pathGlob) bool { return g.covers(&r.paths[i]) }) {
			return false
		}
	}
	return true
}

// shadow returns a rule that allows all that another does, with the same
// treatment. Of two equal ones the later is the shadowed.
func shadow(r *rule, around []*rule) *rule {
	for _, o := range around {
		if o == r || o.like.Action != r.like.Action || !sameTreatment(o.source(), r.source()) || !o.outlives(r) {
			continue
		}
		if !holds(o.inject, r.inject) || !holds(o.like.Addresses, r.like.Addresses) || len(o.like.Addresses) != len(r.like.Addresses) {
			continue
		}
		if r.like.EncodedSlash && !o.like.EncodedSlash || beyond(r, []*rule{o}) != "" {
			continue
		}
		if cmp.Compare(o.rank, r.rank) > 0 && o.host == r.host && o.host.Covers(r.host) && beyond(o, []*rule{r}) == "" {
			continue // equal: the later one is reported
		}
		return o
	}
	return nil
}

// sameTreatment compares what a rule says besides what it matches.
func sameTreatment(a, b *Rule) bool {
	return a.Foreign == b.Foreign && a.OnLeakPass == b.OnLeakPass && a.NoScrub == b.NoScrub && a.Limits == b.Limits && a.Alert == b.Alert
}

package policy

import (
	"cmp"
	"slices"
)

// RulesOf returns every rule that binds a sandbox: its own, those of its
// groups and the denials of the org, in the order of files and lines. They
// must not be changed.
func (s *Set) RulesOf(sandbox string) []*Rule {
	if sb := s.sandboxes[sandbox]; sb != nil {
		return sources(s.rulesIn(&sb.members))
	}
	return nil
}

// OwnRules returns the rules that a sandbox's own block has, as written. They
// must not be changed.
func (s *Set) OwnRules(sandbox string) []*Rule {
	var out []*rule
	if sb := s.sandboxes[sandbox]; sb != nil {
		for _, r := range s.rulesIn(&sb.members) {
			if r.owner.sandbox == sandbox {
				out = append(out, r)
			}
		}
	}
	return sources(out)
}

// AllRules returns every rule of the policy once, in the order of files and
// lines.
func (s *Set) AllRules() []*Rule {
	var all []*rule
	for _, set := range s.sets {
		all = append(all, set.rules...)
	}
	sortRank(all)
	return sources(all)
}

// rulesIn returns the rules of the members by rank.
func (s *Set) rulesIn(m *members) []*rule {
	var out []*rule
	for _, id := range m.ids {
		out = append(out, s.sets[id].rules...)
	}
	sortRank(out)
	return out
}

func sortRank(rules []*rule) {
	slices.SortFunc(rules, func(a, b *rule) int { return cmp.Compare(a.rank, b.rank) })
}

func sources(rules []*rule) []*Rule {
	out := make([]*Rule, len(rules))
	for i, r := range rules {
		out[i] = r.source()
	}
	return out
}

// Title names the rule as messages do: its block, what it is about, and whose
// it is.
func (r *Rule) Title() string { return ruleTitle(r) }

// BindingRules returns every rule that binds some sandbox once, in the order
// of files and lines: not those of the org and of groups that only bound
// others.
func (s *Set) BindingRules() []*Rule {
	bound := make([]bool, len(s.sets))
	for _, sb := range s.sandboxes {
		for _, id := range sb.members.ids {
			bound[id] = true
		}
	}
	var all []*rule
	for id, set := range s.sets {
		if bound[id] {
			all = append(all, set.rules...)
		}
	}
	sortRank(all)
	return sources(all)
}

package policy

import (
	"fmt"
	"slices"
)

// secrets reads inject: each secret must be declared and its own hosts must
// cover the rule's.
func (b *ruleBuilder) secrets(title string) {
	refs := b.src.Inject
	if len(refs) == 0 {
		return
	}
	switch {
	case b.src.Action != ActionAllow && b.src.Action != ActionGit:
		b.fault("%s: injects secrets, which only allow and git rules can", title)
		return
	case b.src.Action == ActionAllow && !schemesOf(b.src.Schemes).has(HTTPS) && len(b.src.Schemes) > 0:
		b.report(Problem{
			Summary: title + ": injects secrets over plain HTTP alone",
			Detail:  "A secret is never sent over plain HTTP, so this rule could never inject it.",
			Hint:    `schemes = ["https"], or no inject`,
		})
	}
	for _, ref := range refs {
		b.inject(title, ref)
	}
	slices.Sort(b.out.inject)
	b.out.inject = slices.Compact(b.out.inject)
}

func (b *ruleBuilder) inject(title string, ref Ref) {
	s, ok := b.c.secrets[ref.Name]
	if !ok {
		b.report(Problem{
			Summary: fmt.Sprintf("%s: secret %q is not declared", title, ref.Name),
			Hint:    didYouMean(ref.Name, b.c.secretNames()),
			Attr:    "inject", Value: ref.Name,
		})
		return
	}
	s.used = true
	if b.at.kind != hostNone && !s.bad && !s.covers(b.at) {
		b.report(Problem{
			Related: []Pos{s.src.Pos},
			Summary: fmt.Sprintf("%s: the hosts of secret %q do not cover %q", title, ref.Name, b.at),
			Detail:  "A secret is sent only to hosts that its own block lists.",
			Hint:    fmt.Sprintf("add %q to the hosts of secret %q, or drop it from inject", b.at, ref.Name),
			Attr:    "inject", Value: ref.Name,
		})
	}
	b.out.inject = append(b.out.inject, ref.Name)
}

package inject

// Leak returns the placeholders in a text that is never a place of a secret
// and belongs to no HTTP request: a DNS question, an SNI, the head of a
// CONNECT. Such texts are folded to one case on their way, so names are known
// in any. Where is the place that is recorded. Leak returns nil, and does not
// allocate, when there is none.
func (t *Table) Leak(sandbox, where, text string) []Use {
	s := scan{t: t, in: Input{Sandbox: sandbox}, own: t.owners.of(sandbox)}
	s.folded(place{kind: inOther}, text)
	for i := range s.uses {
		s.uses[i].Place = where
	}
	return s.uses.sorted()
}

package policy

import "slices"

// Set is a compiled policy. It is read only and safe for many goroutines.
// The zero value and nil deny everything.
type Set struct {
	generation uint64
	sha256     string
	compiled   bool // false: no policy at all
	index      *index
	sets       []*ruleSet // by id
	sandboxes  map[string]*sandbox
	names      []string // sorted
	secrets    map[string]*secret
	secretList []*Secret // sorted by name
	claims     []claim
	ceiling    *members // what the org allows and denies; nil without an org block
	metadata   bool
	orgDenials []setID
	orgAllows  []setID
	orgGroups  map[string]bool
	groups     []*Group // sorted by name
}

// sandbox is a Sandbox and the rule sets that bind it.
type sandbox struct {
	src     *Sandbox
	members members
}

// Empty returns a set without a policy. It denies everything.
func Empty(generation uint64) *Set { return &Set{generation: generation} }

// Generation returns the number that the set was compiled with.
func (s *Set) Generation() uint64 { return s.generation }

// SHA256 returns the hex digest of the files the set was compiled from, "" if
// there were none.
func (s *Set) SHA256() string { return s.sha256 }

// Sandbox returns a sandbox of the policy in its normal form, nil if there is
// none of that name. Its rules are told by OwnRules. It must not be changed.
func (s *Set) Sandbox(name string) *Sandbox {
	if sb := s.sandboxes[name]; sb != nil {
		return sb.src
	}
	return nil
}

// Sandboxes returns the names of all sandboxes, sorted.
func (s *Set) Sandboxes() []string { return slices.Clone(s.names) }

// Secret returns a secret of the policy, nil if there is none of that name.
// It must not be changed.
func (s *Set) Secret(name string) *Secret {
	if x := s.secrets[name]; x != nil {
		return x.src
	}
	return nil
}

// Secrets returns all secrets, sorted by name. They must not be changed.
func (s *Set) Secrets() []*Secret { return slices.Clone(s.secretList) }

// SecretCovers reports whether a secret's own hosts cover a canonical host.
func (s *Set) SecretCovers(name, host string) bool {
	x := s.secrets[name]
	return x != nil && x.matches(host)
}

// Package identity says which sandbox is speaking: it knows the live
// sandboxes by lifecycle ID, by socket and by (interface, address).
package identity

import "sallyport/policy"

// Sandbox is one life of a sandbox. Two lives never share an ID, though they
// may share a name and an address.
type Sandbox struct {
	Name   string // as shown and recorded; the policy's sandbox name unless narrowed
	ID     string // ULID
	Parent string // name of the sandbox it narrows, or ""
	Policy string // name of the policy.Sandbox that decides for it
	Labels map[string]string

	// Narrow is what it was narrowed to for one job, nil if it was not.
	Narrow *policy.Narrowing
}

// Request returns the beginning of a policy request by s.
func (s *Sandbox) Request(stage policy.Stage) policy.Request {
	return policy.Request{Sandbox: s.Policy, Stage: stage, Narrow: s.Narrow}
}

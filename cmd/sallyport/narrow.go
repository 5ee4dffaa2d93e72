package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport/gateway/identity"
	"sallyport/policy"
)

// narrowed is what an attachment is narrowed to, as it is kept.
type narrowed struct {
	Name    string    `json:"name,omitempty"` // of the job; "": the parent's
	Only    []string  `json:"only,omitempty"`
	Methods []string  `json:"methods,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

// Bounds of one narrowing.
const (
	maxNarrowedHosts   = 1000
	maxNarrowedMethods = 50
	minTTL             = time.Second
	maxTTL             = 10 * 365 * 24 * time.Hour
)

func (n *narrowed) spec() policy.NarrowingSpec {
	return policy.NarrowingSpec{Only: n.Only, Methods: n.Methods, Expires: n.Expires}
}

// apply narrows sb, whose name is still its policy's. A nil narrowed leaves it
// whole. The parent may have changed since it was checked: what is decided is
// what both allow.
func (n *narrowed) apply(sb *identity.Sandbox) error {
	if n == nil {
		return nil
	}
	n.name(sb)
	var err error
	if sb.Narrow, err = policy.NewNarrowing(n.spec()); err != nil {
		return fmt.Errorf("narrowed sandbox of %q: %w", sb.Parent, err)
	}
	return nil
}

// name makes sb the narrowed one of the sandbox that it is named by.
func (n *narrowed) name(sb *identity.Sandbox) {
	if n == nil {
		return
	}
	sb.Parent = sb.Name
	if n.Name != "" {
		sb.Name = n.Name
	}
}

// over says whether its time is past.
func (n *narrowed) over(now time.Time) bool {
	return n != nil && !n.Expires.IsZero() && !now.Before(n.Expires)
}

// describe says for a record what was taken away.
func (n *narrowed) describe() string {
	if n == nil {
		return ""
	}
	text := ", narrowed"
	if len(n.Only) > 0 {
		text += " to " + strings.Join(n.Only, ", ")
	}
	if len(n.Methods) > 0 {
		text += " with " + strings.Join(n.Methods, ", ")
	}
	if !n.Expires.IsZero() {
		text += " until " + n.Expires.UTC().Format(time.RFC3339)
	}
	return text
}

// endAtExpiry ends a narrowed sandbox when its time is over. The caller holds
// mu. Policy denies it from that instant on by itself.
func (c *captures) endAtExpiry(oc *openCapture) {
	a := oc.attached
	if a.Narrow == nil || a.Narrow.Expires.IsZero() {
		return
	}
	oc.expiry = time.AfterFunc(time.Until(a.Narrow.Expires), func() {
		if _, live := c.attachedAt(a.ID); !live {
			return
		}
		if err := c.endAttached(a.ID, "its time is over", false); err != nil {
			c.st.settings.log.Error("end of a narrowed sandbox", "id", a.ID, "error", err)
		}
	})
}

// apiNarrowed is what a sandbox was narrowed to, as the control socket shows it.
type apiNarrowed struct {
	Parent  string    `json:"parent"`
	Only    []string  `json:"only,omitempty"`
	Methods []string  `json:"methods,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

func showNarrowed(sb *identity.Sandbox) *apiNarrowed {
	s := sb.Narrow.Spec()
	return &apiNarrowed{Parent: sb.Parent, Only: s.Only, Methods: s.Methods, Expires: s.Expires}
}

// apiFault is something that a narrowing names and that its parent lacks.
type apiFault struct {
	Pointer string    `json:"pointer"` // JSON pointer (RFC 6901) into the request
	Detail  string    `json:"detail"`
	Nearest *jsonRule `json:"nearest,omitempty"` // rule of the parent
}

// String is the line for who made the call.
func (f apiFault) String() string { return f.text(f.Pointer) }

// flag is the flag that the fault is of, for who called by a command.
func (f apiFault) flag() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(f.Pointer, "/"), "/")
	if name == "methods" {
		name = "method"
	}
	return "--" + name
}

// text is the line for people; at is what they know its place by.
func (f apiFault) text(at string) string {
	text := at + ": " + f.Detail
	if f.Nearest != nil {
		text += fmt.Sprintf("; nearest rule %s:%d: %s", f.Nearest.File, f.Nearest.Line, f.Nearest.Title)
	}
	return text
}

func refusedNarrowing(faults []apiFault) apiError {
	return apiError{Error: "the sandbox cannot be narrowed to this; nothing was made: " + faults[0].String(), Faults: faults}
}

// narrowing reads what a call narrows; nil if it narrows nothing. in names the
// sandbox of the policy afterwards.
func (c *control) narrowing(in *apiAttach) (*narrowed, []apiFault) {
	if in.Name == "" && in.Parent == "" && in.TTL == "" && in.Only == nil && in.Methods == nil {
		return nil, nil
	}
	at := "/parent"
	switch {
	case in.Parent == "":
		at, in.Parent = "/sandbox", in.Sandbox
	case in.Sandbox != "" && in.Sandbox != in.Parent:
		return nil, []apiFault{{Pointer: "/sandbox", Detail: "it is not the parent; give one of them"}}
	}
	in.Sandbox = in.Parent
	n := &narrowed{Name: in.Name, Only: in.Only, Methods: in.Methods}
	set := c.d.gateway.Policy()
	faults := slices.Concat(c.checkName(in.Name, in.Parent, set), n.live(in.TTL), n.bounds())
	if len(faults) > 0 {
		return nil, faults
	}
	for _, f := range set.CheckNarrowing(in.Parent, n.spec(), time.Now()) {
		if f.Pointer == "/parent" {
			f.Pointer = at
			f.Detail += "; it has " + strings.Join(set.Sandboxes(), ", ")
		}
		faults = append(faults, apiFault{Pointer: f.Pointer, Detail: f.Detail, Nearest: ruleJSON(f.Nearest)})
	}
	return n, faults
}

// checkName refuses a name under which records could be taken for another's.
func (c *control) checkName(name, parent string, set *policy.Set) []apiFault {
	other := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/:", r)
	}
	switch {
	case len(name) > 128 || strings.ContainsFunc(name, other):
		return []apiFault{{Pointer: "/name", Detail: "a name has up to 128 letters, digits and . _ - / :"}}
	case name != "" && name != parent && set.Sandbox(name) != nil:
		return []apiFault{{Pointer: "/name", Detail: fmt.Sprintf("%q is another sandbox of the policy", name)}}
	}
	return nil
}

// live sets when n is over.
func (n *narrowed) live(ttl string) []apiFault {
	if ttl == "" {
		return nil
	}
	d, err := duration(ttl)
	switch {
	case err != nil:
		return []apiFault{{Pointer: "/ttl", Detail: fmt.Sprintf("%q is no duration, such as 30m, 12h or 7d", ttl)}}
	case d < minTTL || d > maxTTL:
		return []apiFault{{Pointer: "/ttl", Detail: fmt.Sprintf("%s is not between a second and ten years", ttl)}}
	}
	n.Expires = time.Now().Add(d).UTC().Round(0)
	return nil
}

func (n *narrowed) bounds() []apiFault {
	var out []apiFault
	if n.Only != nil && len(n.Only) == 0 {
		out = append(out, apiFault{Pointer: "/only", Detail: "no host is left; leave it out to keep them all"})
	}
	if n.Methods != nil && len(n.Methods) == 0 {
		out = append(out, apiFault{Pointer: "/methods", Detail: "no method is left; leave it out to keep them all"})
	}
	if len(n.Only) > maxNarrowedHosts {
		out = append(out, apiFault{Pointer: "/only", Detail: fmt.Sprintf("more than %d hosts", maxNarrowedHosts)})
	}
	if len(n.Methods) > maxNarrowedMethods {
		out = append(out, apiFault{Pointer: "/methods", Detail: fmt.Sprintf("more than %d methods", maxNarrowedMethods)})
	}
	return out
}

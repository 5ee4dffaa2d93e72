package policy

import (
	"cmp"
	"slices"
	"time"
)

// Change is one statement of what a new policy gives or takes: some hosts,
// ports, methods and paths, and what may be done with them.
type Change struct {
	Sandboxes []string   // sorted; empty for the org and for secrets
	Gains     bool       // the new policy gives it; else it takes it
	What      Capability //
	Detail    string     // name of a secret, address range, or a setting in words
	Widening  bool       // more may go out, or go out with less care

	Hosts   HostSet
	Ports   PortSet
	Scheme  Scheme    // SchemeAny: every scheme
	Methods MethodSet // of requests
	Paths   []PathSet // empty: every path, in whatever form
	Form    string    // "": plain paths; else the form that some paths have which are meant
	Variant string    // "": whatever the rest of the request; else what it has, such as "WebSocket"
	Without []string  // what it has not

	From  time.Time // zero: at once
	Until time.Time // zero: for good

	Rules []*Rule // that decide: the new ones of a gain; the old ones of a loss, and the new denials
	Pos   Pos     // of a setting

	ceiling bool

	part part                 // what it was read from, of one host
	at   map[HostPattern]part // the same of every host
}

// part is the cells of one host that a change is about.
type part struct {
	grid     *grid
	places   []place
	variants []int
	methods  []int
	classes  bits
}

// Org reports whether the change is one of the ceiling, which bounds every
// sandbox.
func (c *Change) Org() bool { return c.ceiling }

// Capability is a kind of thing that a policy gives.
type Capability string

// Capabilities of a Change.
const (
	CapAccess   Capability = "access"      // requests, which the gateway reads
	CapRelay    Capability = "relay"       // bytes that are relayed unopened
	CapSecret   Capability = "secret"      // a secret is put in
	CapAddress  Capability = "address"     // an address range that is not public
	CapPublic   Capability = "public"      // public addresses
	CapMetadata Capability = "metadata"    // cloud metadata addresses
	CapForeign  Capability = "foreign"     // other credentials go out or are dropped, not refused
	CapLeak     Capability = "placeholder" // the text of placeholders goes out
	CapReflect  Capability = "reflection"  // values in answers are not masked
	CapLimits   Capability = "limits"      // how much
	CapSetting  Capability = "setting"     // of a sandbox or a secret
)

// HostSet is some hosts: those whose longest pattern in both lists is in In.
type HostSet struct{ In, Except []HostPattern }

// Match reports whether a canonical host is in the set.
func (h HostSet) Match(host string) bool {
	var best HostPattern
	in := false
	look := func(list []HostPattern, is bool) {
		for _, p := range list {
			if p.Match(host) && (best.kind == hostNone || p.narrower(best)) {
				best, in = p, is
			}
		}
	}
	look(h.In, true)
	look(h.Except, false)
	return in
}

// PortSet is some ports: those listed or, with Other, all that are not in
// Except.
type PortSet struct {
	List   []uint16
	Other  bool
	Except []uint16
}

// Has reports whether a port is in the set.
func (p PortSet) Has(port uint16) bool {
	if p.Other {
		return !slices.Contains(p.Except, port)
	}
	return slices.Contains(p.List, port)
}

// MethodSet is some methods: those listed or, with Other, all that are ever
// forwarded and not in Except.
type MethodSet struct {
	List   []string
	Other  bool
	Except []string
}

// Has reports whether a method is in the set.
func (m MethodSet) Has(method string) bool {
	if m.Other {
		return forwardable(method) && !slices.Contains(m.Except, method)
	}
	return slices.Contains(m.List, method)
}

// PathSet is the paths of one pattern without those of others.
type PathSet struct {
	Glob   string
	Except []string
	glob   pathGlob
	except []pathGlob
}

func compareChanges(a, b Change) int {
	number := func(b bool) int {
		if b {
			return 0
		}
		return 1
	}
	return cmp.Or(
		slices.Compare(a.Sandboxes, b.Sandboxes),
		cmp.Compare(number(a.Widening), number(b.Widening)),
		cmp.Compare(number(a.Gains), number(b.Gains)),
		cmp.Compare(a.Hosts.String(), b.Hosts.String()),
		cmp.Compare(a.What, b.What),
		cmp.Compare(a.Detail, b.Detail),
		cmp.Compare(a.key(), b.key()),
	)
}

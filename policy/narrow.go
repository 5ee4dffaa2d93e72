package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// NarrowingSpec is what is asked for one job in a sandbox, as written. An
// empty list takes nothing away, nor does a zero time.
type NarrowingSpec struct {
	Only    []string  // host patterns
	Methods []string  // HTTP methods
	Expires time.Time // from this instant on nothing is allowed
}

// Narrowing is what one job may use of a sandbox: a request with one is
// allowed if the sandbox allows it and the Narrowing does. It can take away,
// never add. The zero value takes away everything.
type Narrowing struct {
	everyHost, everyMethod bool
	hosts                  []HostPattern
	methods                []string
	expires                time.Time
}

// NewNarrowing reads a spec. Whether a sandbox allows what it names is for
// Set.CheckNarrowing to say; a Narrowing of what is not allowed allows nothing.
func NewNarrowing(spec NarrowingSpec) (*Narrowing, error) {
	n := &Narrowing{everyHost: len(spec.Only) == 0, everyMethod: len(spec.Methods) == 0, expires: spec.Expires}
	for _, text := range spec.Only {
		p, err := narrowedHost(text)
		if err != nil {
			return nil, err
		}
		n.hosts = append(n.hosts, p)
	}
	for _, m := range spec.Methods {
		if err := narrowedMethod(m); err != nil {
			return nil, err
		}
		n.methods = append(n.methods, m)
	}
	return n, nil
}

// Spec returns what the Narrowing was made of, in its normal form.
func (n *Narrowing) Spec() NarrowingSpec {
	out := NarrowingSpec{Methods: slices.Clone(n.methods), Expires: n.expires}
	for _, p := range n.hosts {
		out.Only = append(out.Only, p.String())
	}
	return out
}

// narrowedHost reads a host pattern. What only an org may permit is for the
// sandbox's own rules to have.
func narrowedHost(text string) (HostPattern, error) {
	return ParseHostPattern(text, HostOptions{AnyHost: true, PublicSuffix: true})
}

func narrowedMethod(m string) error {
	switch {
	case !forwardable(m):
		return fmt.Errorf("method %q is never forwarded", m)
	case !standardMethod(m) && standardMethod(strings.ToUpper(m)):
		return fmt.Errorf("method %q: methods are case-sensitive; write %q", m, strings.ToUpper(m))
	}
	return nil
}

// bound takes back what d allows and the Narrowing does not. A nil Narrowing
// leaves d as it is.
func (n *Narrowing) bound(r *Request, d Decision) Decision {
	if n == nil || d.Verdict != Allow {
		return d
	}
	host := "host " + r.Host
	switch {
	case !n.expires.IsZero() && (r.Now.IsZero() || !r.Now.Before(n.expires)):
		return Decision{Reason: RuleExpired, Message: "the time that this sandbox was given is over"}
	case !n.everyHost && !slices.ContainsFunc(n.hosts, func(p HostPattern) bool { return p.Match(r.Host) }):
		return Decision{Reason: HostNotAllowed, Message: host + " is not among what this sandbox was narrowed to"}
	case n.everyMethod:
		return d
	case r.Stage == StageConn && (d.Relay == RelayTCP || d.Relay == RelayPassthrough):
		return Decision{Reason: MethodNotAllowed, Message: host + " is reached unopened, and this sandbox was narrowed to some methods"}
	case r.Stage == StageRequest && !slices.Contains(n.methods, r.Method):
		return Decision{Reason: MethodNotAllowed, Message: methodText(r.Method) + " is not among what this sandbox was narrowed to"}
	}
	return d
}

// NarrowingFault is something that a NarrowingSpec names and that the sandbox
// does not allow.
type NarrowingFault struct {
	Pointer string // JSON pointer (RFC 6901) into the spec, as /only/0
	Detail  string
	Nearest *Rule // the sandbox's rule that comes nearest, or that denies; nil if it has none
}

// CheckNarrowing returns everything that the spec names and that the sandbox
// parent does not allow at now. Each method must be allowed on each host that
// is named. A sandbox in report mode allows what its rules do.
func (s *Set) CheckNarrowing(parent string, spec NarrowingSpec, now time.Time) []NarrowingFault {
	var sb *sandbox
	if s != nil && s.compiled {
		sb = s.sandboxes[parent]
	}
	if sb == nil {
		return []NarrowingFault{{Pointer: "/parent", Detail: fmt.Sprintf("the policy has no sandbox %q", parent)}}
	}
	c := narrowingCheck{set: s, sb: sb, parent: parent, now: now}
	if !spec.Expires.IsZero() && !now.Before(spec.Expires) {
		c.fault("/ttl", "it would be over before it began", nil)
	}
	hosts := c.checkHosts(spec.Only)
	c.checkMethods(spec.Methods, hosts)
	return c.faults
}

// narrowingCheck is a spec that is being compared with its parent.
type narrowingCheck struct {
	set    *Set
	sb     *sandbox
	parent string
	now    time.Time
	faults []NarrowingFault
}

func (c *narrowingCheck) fault(pointer, detail string, near *rule) {
	f := NarrowingFault{Pointer: pointer, Detail: detail}
	if near != nil {
		f.Nearest = near.source()
	}
	c.faults = append(c.faults, f)
}

// checkHosts returns the patterns that the parent allows something of.
func (c *narrowingCheck) checkHosts(only []string) []HostPattern {
	var out []HostPattern
	for i, text := range only {
		pointer := fmt.Sprintf("/only/%d", i)
		p, err := narrowedHost(text)
		if err != nil {
			c.fault(pointer, err.Error(), nil)
			continue
		}
		rules := c.set.index.rules(p, &c.sb.members, nil)
		if d := c.denial(p, rules); d != nil {
			c.fault(pointer, fmt.Sprintf("sandbox %q denies host %q", c.parent, p), d)
			continue
		}
		if !slices.ContainsFunc(rules, c.admits) {
			c.fault(pointer, fmt.Sprintf("sandbox %q does not allow host %q", c.parent, p), c.nearest(p))
			continue
		}
		out = append(out, p)
	}
	return out
}

// denial returns a rule that denies all of p, nil if none does.
func (c *narrowingCheck) denial(p HostPattern, rules []*rule) *rule {
	for _, r := range rules {
		if r.like.Action == ActionDeny && r.unseen() == yes && r.ends.everyone == allSchemes && !r.expired(c.now) {
			return r
		}
	}
	if p.kind != hostExact {
		return nil
	}
	q := query{Request: &Request{Sandbox: c.parent, Stage: StageName, Host: p.name, Now: c.now}}
	if a := gather(&q, rules); a.rule == nil {
		return a.denial
	}
	return nil
}

// admits reports whether a rule allows something now.
func (c *narrowingCheck) admits(r *rule) bool {
	return r.like.Action != ActionDeny && !r.expired(c.now)
}

// checkMethods asks for each method on each host, or where no host is named
// on some host.
func (c *narrowingCheck) checkMethods(methods []string, hosts []HostPattern) {
	for i, m := range methods {
		pointer := fmt.Sprintf("/methods/%d", i)
		if err := narrowedMethod(m); err != nil {
			c.fault(pointer, err.Error(), nil)
			continue
		}
		if len(hosts) == 0 {
			if all := c.all(); !slices.ContainsFunc(all, func(r *rule) bool { return c.admitsMethod(r, m) }) {
				c.fault(pointer, fmt.Sprintf("sandbox %q allows method %s on no host", c.parent, m), first(all))
			}
			continue
		}
		for _, p := range hosts {
			rules := c.set.index.rules(p, &c.sb.members, nil)
			if c.deniesMethod(rules, m) || !slices.ContainsFunc(rules, func(r *rule) bool { return c.admitsMethod(r, m) }) {
				c.fault(pointer, fmt.Sprintf("sandbox %q does not allow method %s on host %q", c.parent, m, p), c.nearest(p))
			}
		}
	}
}

// admitsMethod reports whether a rule allows some request with a method. What
// is relayed unopened is not known to have one.
func (c *narrowingCheck) admitsMethod(r *rule, m string) bool {
	switch {
	case !c.admits(r) || r.relay() != RelayIntercept:
		return false
	case r.git != nil:
		return m == "GET" || m == "POST"
	}
	return r.methods.has(m)
}

// deniesMethod reports whether a rule denies every request with a method.
func (c *narrowingCheck) deniesMethod(rules []*rule, m string) bool {
	return slices.ContainsFunc(rules, func(r *rule) bool {
		return r.like.Action == ActionDeny && !r.expired(c.now) && r.ends.everyone == allSchemes &&
			len(r.paths) == 0 && len(r.conds) == 0 && r.body == nil && r.methods.has(m)
	})
}

func (c *narrowingCheck) nearest(p HostPattern) *rule {
	return nearestRule(&rule{shape: &shape{like: Rule{Action: ActionAllow}}, host: p}, c.all())
}

// all are the rules by which the parent allows anything.
func (c *narrowingCheck) all() []*rule {
	var out []*rule
	for _, id := range c.sb.members.ids {
		for _, r := range c.set.sets[id].rules {
			if r.like.Action != ActionDeny {
				out = append(out, r)
			}
		}
	}
	return out
}

func first(list []*rule) *rule {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

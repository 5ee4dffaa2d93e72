package policy

import (
	"fmt"
	"slices"
)

// maxNearest bounds the search for the nearest org rule where no org rule
// covers the host: the first problems get it, the rest of a long list do not.
const maxNearest = 50

// checkCeiling reports every allow, git, tcp and passthrough of a group or
// sandbox that reaches beyond the org's. Nothing is trimmed. Under an org with
// errors of its own it says nothing: what lies beyond is not known.
func (c *compiler) checkCeiling(x *index) {
	if c.doc.Org == nil || c.org.broken {
		return
	}
	m := newMembers(slices.Clone(c.org.allows))
	searches := 0
	for _, r := range c.all {
		c.yield()
		if r.like.Action == ActionDeny || c.isOrg(r) || c.idle(r) {
			continue
		}
		above := x.rules(r.host, &m, nil)
		if fault := beyond(r, above); fault != "" {
			near := nearestRule(r, above)
			if near == nil && searches < maxNearest {
				searches++
				near = nearestRule(r, c.orgRules(&m))
			}
			c.report(ceilingProblem(r, near, fault))
		}
	}
}

// idle reports whether a rule is of a group that nobody uses, so that nothing
// is allowed by it. Lint tells what lies beyond the org.
func (c *compiler) idle(r *rule) bool {
	return r.owner.group != "" && !c.used[r.owner.group]
}

func (c *compiler) isOrg(r *rule) bool {
	return r.owner.title == "org" || c.org.groups[r.owner.group]
}

func (c *compiler) orgRules(m *members) []*rule {
	var out []*rule
	for _, id := range m.ids {
		out = append(out, c.sets[id].rules...)
	}
	return out
}

func ceilingProblem(r, near *rule, fault string) Problem {
	p := Problem{
		Pos:     r.pos(),
		Summary: r.title() + ": not covered by the org: " + fault,
		Detail:  "No rule of the org allows this, and the org has no rule near it.",
		Hint:    "narrow the rule, or have the org block allow it",
	}
	if near != nil {
		p.Related = []Pos{near.pos()}
		p.Detail = fmt.Sprintf("The nearest rule of the org is %s", near.title())
		if at := near.pos().String(); at != "" {
			p.Detail += " at " + at
		}
		p.Detail += "."
	}
	return p
}

// beyond says what of the rule none of the org's rules for its host covers;
// "" if they cover it all. Each port, scheme, method and path must lie whole
// inside one of them.
func beyond(r *rule, above []*rule) string {
	if len(above) == 0 {
		return fmt.Sprintf("host %q", r.host)
	}
	above = slices.DeleteFunc(slices.Clone(above), func(o *rule) bool { return !o.outlives(r) })
	if len(above) == 0 {
		return "a life longer than the org's own rule has (expires)"
	}
	for _, end := range r.ends.list {
		for _, s := range []Scheme{HTTPS, HTTP, TCP} {
			if !end.schemes.has(s) || r.like.Action == ActionTCP && s != TCP {
				continue
			}
			at := slices.DeleteFunc(slices.Clone(above), func(o *rule) bool { return !o.ends.schemesAt(end.port).has(s) })
			if len(at) == 0 {
				return fmt.Sprintf("%s on port %d", schemeName(s), end.port)
			}
			if fault := beyondAt(r, at); fault != "" {
				return fault
			}
		}
	}
	return ""
}

// outlives reports whether the rule holds as long as another does.
func (r *rule) outlives(other *rule) bool {
	return r.like.Expires.IsZero() ||
		!other.like.Expires.IsZero() && !other.like.Expires.After(r.like.Expires)
}

// beyondAt compares what is said on one port and scheme.
func beyondAt(r *rule, above []*rule) string {
	above = slices.DeleteFunc(above, func(o *rule) bool { return !admitsKind(o, r) })
	switch {
	case len(above) == 0:
		return fmt.Sprintf("rule kind %q", r.like.Action.String())
	case r.relay() != RelayIntercept:
		return beyondAddresses(r, above)
	}
	if slices.ContainsFunc(above, func(o *rule) bool { return o.relay() != RelayIntercept || r.git != nil && o.git != nil }) {
		return beyondAddresses(r, above)
	}
	above = slices.DeleteFunc(slices.Clone(above), func(o *rule) bool { return !conditionsCover(o, r) })
	if len(above) == 0 {
		return "a request without the query or header that the org's rule asks for"
	}
	above = slices.DeleteFunc(above, func(o *rule) bool { return !o.body.covers(r.body) })
	if len(above) == 0 {
		return "a body other than the org's rule asks for"
	}
	methods := r.methods.list
	if r.git != nil {
		methods = []string{"GET", "POST"}
	} else if r.methods.any {
		methods = []string{""}
	}
	for _, method := range methods {
		if fault := beyondPaths(r, method, above); fault != "" {
			return fault
		}
	}
	return beyondAddresses(r, above)
}

// admitsKind reports whether an org rule can cover a rule at all. Bytes that
// nobody looks into need an org rule that says so: allow does not.
func admitsKind(o, r *rule) bool {
	switch o.like.Action {
	case ActionTCP:
		return true
	case ActionPassthrough:
		return r.like.Action != ActionTCP
	case ActionGit:
		return r.like.Action == ActionGit && o.git.covers(r.git)
	case ActionAllow:
		return r.relay() == RelayIntercept
	}
	return false
}

// beyondPaths compares the paths of one method; "" stands for any method.
func beyondPaths(r *rule, method string, above []*rule) string {
	fitting := slices.DeleteFunc(slices.Clone(above), func(o *rule) bool {
		return o.git != nil || !o.methods.any && (method == "" || !o.methods.has(method))
	})
	if len(fitting) == 0 {
		if method == "" {
			return "any method"
		}
		return "method " + method
	}
	webSocket := r.git == nil && !r.like.NoWebSocket && (method == "" || method == "GET")
	globs := r.paths
	if r.git != nil {
		globs = r.git.globs()
	}
	if len(globs) == 0 {
		if !slices.ContainsFunc(fitting, func(o *rule) bool { return len(o.paths) == 0 && !(webSocket && o.like.NoWebSocket) }) {
			return restOf("any path", fitting, webSocket)
		}
		return ""
	}
	for i := range globs {
		if !slices.ContainsFunc(fitting, func(o *rule) bool { return coversPath(o, r, &globs[i], webSocket) }) {
			return restOf(fmt.Sprintf("path %q", globs[i].String()), fitting, webSocket)
		}
	}
	return ""
}

// restOf names WebSocket where that may be all that is not covered.
func restOf(what string, above []*rule, webSocket bool) string {
	if webSocket && slices.ContainsFunc(above, func(o *rule) bool { return o.like.NoWebSocket }) {
		return what + " with WebSocket (set websocket = false, or narrow it)"
	}
	return what
}

func coversPath(o, r *rule, g *pathGlob, webSocket bool) bool {
	if webSocket && o.like.NoWebSocket {
		return false
	}
	if len(o.paths) == 0 {
		return true
	}
	if r.like.EncodedSlash && !o.like.EncodedSlash {
		return false
	}
	return slices.ContainsFunc(o.paths, func(p pathGlob) bool { return p.covers(g) })
}

// beyondAddresses compares non-public ranges. An org rule that names none
// leaves them to the rules below it.
func beyondAddresses(r *rule, above []*rule) string {
	for _, a := range r.like.Addresses {
		if !slices.ContainsFunc(above, func(o *rule) bool {
			if len(o.like.Addresses) == 0 {
				return true
			}
			for _, b := range o.like.Addresses {
				if b.Bits() <= a.Bits() && b.Contains(a.Addr()) {
					return true
				}
			}
			return false
		}) {
			return fmt.Sprintf("addresses %s", a)
		}
	}
	return ""
}

// nearestRule returns the rule whose host is most like that of r: first one
// for the same hosts, then the least different text.
func nearestRule(r *rule, among []*rule) *rule {
	var best *rule
	bestDistance := 0
	for _, o := range among {
		d := distance(r.host.String(), o.host.String())
		if o.like.Action != r.like.Action {
			d++
		}
		if best == nil || d < bestDistance || d == bestDistance && o.rank < best.rank {
			best, bestDistance = o, d
		}
	}
	return best
}

func schemeName(s Scheme) string {
	switch s {
	case HTTPS:
		return "HTTPS"
	case HTTP:
		return "plain HTTP"
	}
	return "raw TCP"
}

package policy

import "net/netip"

// candidateRoom is how many rules for one host are looked at without
// allocation.
const candidateRoom = 48

// Decide answers a request at its stage. What it allows may still be denied
// at a later stage; what it denies stays denied.
//
// It is a hot path: an allow costs no allocation for a host with a few dozen
// rules, whatever the size of the policy.
func (s *Set) Decide(r Request) Decision {
	if s == nil || !s.compiled {
		return Decision{Reason: PolicyUnavailable, Message: "no policy is loaded, so nothing is allowed; `sallyport init` writes a first one"}
	}
	sb := s.sandboxes[r.Sandbox]
	if sb == nil {
		return Decision{Reason: UnknownSandbox, Message: "this sandbox is not known to the policy, so nothing is allowed"}
	}
	if canonical, err := CanonicalHost(r.Host); err != nil || canonical != r.Host {
		return Decision{Reason: BadHostname, Message: "the request names no valid host"}
	}
	if r.Stage < StageName || r.Stage > StageRequest {
		return Decision{Reason: NoRuleMatched, Message: "the request is at no stage that can be decided"}
	}
	q := query{Request: &r}
	if r.Stage == StageRequest {
		q.path, q.ambiguous = NormalPath(r.Path)
	}
	d := s.decide(&q, &sb.members)
	if d.Verdict == Deny && sb.src.Mode == Report {
		d = s.spare(&q, d)
	}
	return r.Narrow.bound(&r, d)
}

// decide answers for the rules of the members.
func (s *Set) decide(q *query, m *members) Decision {
	var room [candidateRoom]*rule
	rules := s.index.rules(HostPattern{kind: hostExact, name: q.Host}, m, room[:0])
	q.pathed = looksAtPaths(q, rules)
	if denial := namedDenial(q, rules); denial != nil {
		return Decision{Reason: HostDenied, Message: deniedMessage(q, denial.source()), Rule: denial.source()}
	}
	if q.Stage == StageRequest && !forwardable(q.Method) && anyAllow(rules) {
		return Decision{Reason: MethodNotAllowed, Message: denialMessage(MethodNotAllowed, q)}
	}
	a := gather(q, rules)
	var d Decision
	if a.rule == nil {
		d = refuse(q, rules, &a)
	} else {
		d = s.allow(q, &a)
	}
	d.NeedsBody, d.BodyForms = a.needsBody, a.bodyForms
	return d
}

// admission is what the allow rules say together.
type admission struct {
	rule      *rule // the one that is named; nil: none allows
	expired   *rule // one that would have allowed but for its expiry
	denial    *rule // one that leaves nothing of what the allows would let through
	inject    []string
	addresses []netip.Prefix
	needsBody int64 // bytes of the body on which it depends; 0: on none
	bodyForms BodyForms
}

// gather matches every allow rule and joins what the matching ones carry.
func gather(q *query, rules []*rule) admission {
	var a admission
	partial := hasPartialDenial(q, rules)
	for _, r := range rules {
		if r.like.Action == ActionDeny {
			continue
		}
		if o := r.fit(q); o.whole() == no {
			if q.Body == nil && o.head() != no && !r.expired(q.Now) {
				a.needsBody = max(a.needsBody, r.body.max)
				a.bodyForms |= 1 << r.body.form
			}
			continue
		}
		if r.expired(q.Now) {
			if r.beats(a.expired) {
				a.expired = r
			}
			continue
		}
		if d := deniedBefore(q, r, rules, partial); d != nil {
			if d.beats(a.denial) {
				a.denial = d
			}
			continue
		}
		if r.beats(a.rule) {
			a.rule = r
		}
		a.inject = joinNames(a.inject, r.inject)
		a.addresses = joinPrefixes(a.addresses, r.like.Addresses)
	}
	return a
}

func (s *Set) allow(q *query, a *admission) Decision {
	d := Decision{
		Verdict:   Allow,
		Reason:    RuleAllow,
		Rule:      a.rule.source(),
		Addresses: a.addresses,
		Metadata:  s.metadata,
	}
	switch {
	case a.rule.like.Action == ActionPassthrough:
		d.Reason = PassthroughAllow
	case a.rule.owner.group != "":
		d.Reason = GroupAllow
	}
	if q.Stage != StageName {
		d.Relay = a.rule.relay()
	}
	if q.Stage == StageRequest && q.Scheme == HTTPS {
		d.Inject = a.inject
	}
	return d
}

// spare lets through in report mode what the sandbox's own policy denies. The
// ceiling is not the sandbox's: what lies beyond it stays denied, and so does
// what could not be forwarded at all.
func (s *Set) spare(q *query, denied Decision) Decision {
	if q.Stage == StageRequest && !forwardable(q.Method) {
		return denied
	}
	relay := RelayIntercept
	if q.Scheme == TCP {
		relay = RelayTCP
	}
	d := Decision{Metadata: s.metadata}
	if s.ceiling != nil {
		d = s.decide(q, s.ceiling)
		if d.Verdict == Deny {
			return denied
		}
		if d.Relay == RelayTCP || d.Relay == RelayPassthrough {
			relay = d.Relay
		}
	}
	if q.Stage == StageName {
		relay = RelayNone
	}
	return Decision{
		Verdict:   Allow,
		NeedsBody: max(d.NeedsBody, denied.NeedsBody),
		BodyForms: d.BodyForms | denied.BodyForms,
		Reason:    ReportMode,
		Rule:      denied.Rule,
		Relay:     relay,
		Addresses: d.Addresses,
		Metadata:  d.Metadata,
		Would:     &Would{Reason: denied.Reason, Message: denied.Message, Rule: denied.Rule},
	}
}

// looksAtPaths reports whether a live rule that holds for the request's port
// and scheme has paths.
func looksAtPaths(q *query, rules []*rule) bool {
	if q.Stage != StageRequest {
		return false
	}
	for _, r := range rules {
		if r.hasPaths() && r.ends.portFit(q.Stage, q.Port) != no && r.schemeFit(q) != no && !r.expired(q.Now) {
			return true
		}
	}
	return false
}

func anyAllow(rules []*rule) bool {
	for _, r := range rules {
		if r.like.Action != ActionDeny {
			return true
		}
	}
	return false
}

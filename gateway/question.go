package gateway

import (
	"context"
	"errors"
	"net/netip"

	mdns "github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
	"sallyport/gateway/inject"
	"sallyport/policy"
)

// TTLs of answers, in seconds. A denied name is asked again soon, so that a
// policy that now allows it is noticed; see RFC 2308 for negative answers.
const (
	leaseTTL  = 60
	deniedTTL = 5
)

// Extended DNS error codes (RFC 8914, section 4).
const (
	edeBlocked    = 15
	edeProhibited = 18
	edeNotReady   = 14
)

// question answers one DNS question of sb. Nothing is asked upstream: an
// allowed name gets an address that stands for it in this sandbox alone.
func (g *Gateway) question(sb *identity.Sandbox, q dns.Question) dns.Answer {
	g.idle.note()
	snap := g.snap.Load()
	leaks := snap.leaks(sb, q.Name)
	d, a := g.answer(snap, sb, q, leaks, g.Pool.Lease)
	if err := g.record(&newQuestionEvent(nil, snap, sb, q, leaks, d, a).event); err != nil {
		return unrecorded()
	}
	return a
}

// leaser gives the address that stands for host in a sandbox.
type leaser func(sandboxID, host string, v6 bool) (netip.Addr, error)

// questions answers questions that came together. Their records are written
// together, and those that need a lease first are left undecided.
func (g *Gateway) questions(in *Inbound, asked []dns.Asked) {
	g.idle.note()
	snap := g.snap.Load()
	events, at := make([]*event, 0, len(asked)), make([]*dns.Asked, 0, len(asked))
	var last *questionEvent
	for i := range asked {
		x := &asked[i]
		sb, _ := in.Identify(x.Peer.Addr())
		leaks := snap.leaks(sb, x.Name)
		waits := false
		d, a := g.answer(snap, sb, x.Question, leaks, func(id, host string, v6 bool) (netip.Addr, error) {
			addr, known := g.Pool.Leased(id, host, v6)
			waits = !known
			return addr, nil
		})
		if waits {
			continue
		}
		x.Answer, x.Decided = a, true
		last = newQuestionEvent(last, snap, sb, x.Question, leaks, d, a)
		events, at = append(events, &last.event), append(at, x)
	}
	for i, err := range g.recordAll(events) {
		if err != nil {
			at[i].Answer = unrecorded()
		}
	}
}

// unrecorded is the answer to a question of which there is no record.
func unrecorded() dns.Answer {
	return dns.Answer{RCode: mdns.RcodeRefused, EDECode: edeNotReady, EDEText: "audit log unavailable"}
}

// answer decides a question and says what is answered.
func (g *Gateway) answer(snap *Snapshot, sb *identity.Sandbox, q dns.Question, leaks []inject.Use, lease leaser) (policy.Decision, dns.Answer) {
	if sb == nil {
		return policy.Decision{Reason: policy.UnknownSandbox, Message: "no sandbox claims this address"},
			dns.Answer{RCode: mdns.RcodeRefused, EDECode: edeProhibited, EDEText: "unknown sandbox"}
	}
	own := policy.Decision{Verdict: policy.Allow, Reason: policy.GatewayName}
	if a, ok := dns.Special(q); ok {
		return own, a
	}
	if a, ok := g.Pool.Reverse(sb.ID, q); ok {
		return own, a
	}
	if q.Host == Name {
		return own, g.addressed(snap, sb, q, func(v6 bool) (netip.Addr, error) { return g.Pool.Gateway(v6), nil })
	}
	d := g.decideQuestion(snap, sb, q, leaks)
	if d.Verdict != policy.Allow {
		return d, g.deniedAnswer(snap, sb, q, d)
	}
	if !ordinary(q.Type) {
		return policy.Decision{Reason: policy.QtypeNotAllowed, Message: "records of type " + q.TypeName + " are not answered", Rule: d.Rule},
			dns.Answer{NoData: true, TTL: deniedTTL}
	}
	var failed error
	a := g.addressed(snap, sb, q, func(v6 bool) (netip.Addr, error) {
		addr, err := lease(sb.ID, q.Host, v6)
		failed = err
		return addr, err
	})
	if failed != nil {
		d = policy.Decision{Reason: policy.ResolveFailed, Message: failed.Error()}
	}
	return d, a
}

// ordinary says whether clients ask for records of a type by themselves when
// they want to connect. Others are asked for on purpose, and carry more than
// an address.
func ordinary(t uint16) bool {
	switch t {
	case mdns.TypeA, mdns.TypeAAAA, mdns.TypeHTTPS, mdns.TypeSVCB, mdns.TypeSRV, mdns.TypePTR:
		return true
	}
	return false
}

// leaks finds placeholders in a name that is asked.
func (s *Snapshot) leaks(sb *identity.Sandbox, name string) []inject.Use {
	if s == nil || s.Inject == nil || sb == nil {
		return nil
	}
	return s.Inject.Leak(sb.Policy, "name", name)
}

// decideQuestion asks policy about the name.
func (g *Gateway) decideQuestion(snap *Snapshot, sb *identity.Sandbox, q dns.Question, leaks []inject.Use) policy.Decision {
	if len(leaks) > 0 {
		return policy.Decision{Reason: policy.PlaceholderLeak, Message: "a placeholder of a secret is part of the name that was asked"}
	}
	if refused := snap.held().Name(q.Name); refused != nil {
		return policy.Decision{Reason: refused.Reason, Message: refused.Message}
	}
	if q.Bad != nil {
		return policy.Decision{Reason: policy.BadHostname, Message: q.Bad.Error()}
	}
	return snap.decide(g.nameRequest(sb, q.Host))
}

func (g *Gateway) nameRequest(sb *identity.Sandbox, host string) policy.Request {
	r := sb.Request(policy.StageName)
	r.Host, r.Now = host, g.Now()
	return r
}

// addressed answers an allowed name: an address for A and, where the sandbox
// has IPv6, for AAAA; no data for every other type.
func (g *Gateway) addressed(snap *Snapshot, sb *identity.Sandbox, q dns.Question, lease func(v6 bool) (netip.Addr, error)) dns.Answer {
	v6 := q.Type == mdns.TypeAAAA
	if v6 && !snap.ipv6(sb) || q.Type != mdns.TypeA && !v6 {
		return dns.Answer{NoData: true, TTL: deniedTTL}
	}
	addr, err := lease(v6)
	if err != nil {
		return dns.Answer{RCode: mdns.RcodeServerFailure, EDECode: edeNotReady, EDEText: err.Error()}
	}
	return dns.Answer{Addrs: []netip.Addr{addr}, TTL: leaseTTL}
}

// deniedAnswer refuses in the same way for every type, so that no resolver
// tries another server for one of them.
func (g *Gateway) deniedAnswer(snap *Snapshot, sb *identity.Sandbox, q dns.Question, d policy.Decision) dns.Answer {
	a := dns.Answer{TTL: deniedTTL, EDECode: edeBlocked, EDEText: string(d.Reason) + ": " + d.Message}
	allowed := func(host string) bool { return snap.decide(g.nameRequest(sb, host)).Verdict == policy.Allow }
	switch {
	case q.Bad != nil || g.Denied == NXDomain:
		a.RCode = mdns.RcodeNameError
	case g.Denied == Refused:
		a.RCode = mdns.RcodeRefused
	case d.Reason != policy.HostDenied && dns.Unexplained(q.Host, allowed): // somebody denied this very name, and may say why
		a.RCode = mdns.RcodeNameError
	case q.Type == mdns.TypeA, q.Type == mdns.TypeAAAA && snap.ipv6(sb):
		a.Addrs = []netip.Addr{g.Pool.Denied(q.Type == mdns.TypeAAAA)}
	default:
		a.NoData = true
	}
	return a
}

// ipv6 says whether AAAA questions of sb are answered.
func (s *Snapshot) ipv6(sb *identity.Sandbox) bool {
	if s == nil || s.Policy == nil {
		return false
	}
	p := s.Policy.Sandbox(sb.Policy)
	return p != nil && p.IPv6
}

// malformed records what came to port 53 and is no question.
func (g *Gateway) malformed(sb *identity.Sandbox, m dns.Malformed) {
	e := g.event(g.snap.Load(), audit.KindDNS, audit.PhaseDecision, sb)
	d := policy.Decision{Reason: policy.ProtocolError, Message: "malformed DNS message: " + m.Err.Error()}
	switch {
	case errors.Is(m.Err, dns.ErrTransfer):
		d = policy.Decision{Reason: policy.QtypeNotAllowed, Message: m.Err.Error()}
	case errors.Is(m.Err, dns.ErrUnused) && sb != nil: // it might have gone on, as any other connection
		d = policy.Decision{Verdict: policy.Allow, Reason: policy.GatewayName, Message: m.Err.Error()}
	}
	e.decide(d)
	e.peers(m.Peer, m.Resolver)
	e.DNS = &audit.DNS{QName: m.Name, QType: m.TypeName, Transport: m.Transport}
	if !m.Dropped {
		e.DNS.RCode = mdns.RcodeToString[m.RCode]
	}
	if err := g.record(e); err != nil {
		g.Logger.Error("malformed DNS message was not recorded", "error", err)
	}
}

// serveQuestions adapts question to the sandbox that in identifies.
func (g *Gateway) serveQuestions(in *Inbound) dns.Handler {
	return func(_ context.Context, q dns.Question) dns.Answer {
		sb, _ := in.Identify(q.Peer.Addr())
		return g.question(sb, q)
	}
}

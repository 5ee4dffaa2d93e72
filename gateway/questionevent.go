package gateway

import (
	"net/netip"

	mdns "github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
	"sallyport/gateway/inject"
	"sallyport/policy"
)

// questionEvent is the event of a question in one piece of memory.
type questionEvent struct {
	event
	dns      audit.DNS
	src, dst audit.Addr
	answer   [1]string
	about    asker
}

// asker is whom a question is of. Questions that come together mostly have that
// in common, and share what is recorded of it.
type asker struct {
	sb       *identity.Sandbox
	src, dst netip.Addr
}

// newQuestionEvent returns the event of q. last is that of the question before;
// nil is none.
func newQuestionEvent(last *questionEvent, snap *Snapshot, sb *identity.Sandbox, q dns.Question, leaks []inject.Use, d policy.Decision, a dns.Answer) *questionEvent {
	e := &questionEvent{about: asker{sb, q.Peer.Addr(), q.Resolver.Addr()}}
	e.Kind, e.Phase, e.Policy = audit.KindDNS, audit.PhaseDecision, policyOf(snap)
	e.decide(d)
	if last != nil && last.about == e.about {
		e.Sandbox, e.src.IP, e.dst.IP = last.Sandbox, last.src.IP, last.dst.IP
	} else {
		e.Sandbox = sandboxOf(sb)
		e.src.IP, e.dst.IP = q.Peer.Addr().Unmap().String(), q.Resolver.Addr().Unmap().String()
	}
	if q.Peer.IsValid() {
		e.src.Port, e.Src = q.Peer.Port(), &e.src
	}
	if q.Resolver.IsValid() {
		e.dst.Port, e.Dst = q.Resolver.Port(), &e.dst
	}
	e.uses(leaks)
	e.Host = q.Host
	e.DNS = &e.dns
	e.dns = audit.DNS{QName: q.Name, QType: q.TypeName, RCode: mdns.RcodeToString[a.RCode], Transport: q.Transport}
	if len(a.Addrs) > 0 {
		e.dns.Answers = e.answer[:0]
	}
	for _, addr := range a.Addrs {
		e.dns.Answers = append(e.dns.Answers, addr.String())
	}
	return e
}

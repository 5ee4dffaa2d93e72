package gateway

import (
	"net/netip"
	"time"

	"sallyport/audit"
	"sallyport/gateway/identity"
	"sallyport/gateway/inject"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// event is an audit event with the conversions from the gateway's own types.
type event struct {
	audit.Event
	of *Snapshot // under which it happened; nil: none
}

// event begins an event about sb under the policy of s.
func (g *Gateway) event(s *Snapshot, kind audit.Kind, phase audit.Phase, sb *identity.Sandbox) *event {
	e := &event{of: s}
	e.Kind, e.Phase = kind, phase
	e.Sandbox, e.Policy = sandboxOf(sb), policyOf(s)
	return e
}

// sandboxOf is sb for the record; nil is nobody.
func sandboxOf(sb *identity.Sandbox) *audit.Sandbox {
	if sb == nil {
		return nil
	}
	return &audit.Sandbox{Name: sb.Name, ID: sb.ID, Parent: sb.Parent, Labels: sb.Labels}
}

// policyOf is the policy of s for the record.
func policyOf(s *Snapshot) *audit.Policy {
	if s == nil || s.Policy == nil {
		return nil
	}
	if s.recorded != nil {
		return s.recorded
	}
	return &audit.Policy{Generation: s.Policy.Generation(), SHA256: s.Policy.SHA256()}
}

// cover covers the values that are held in what the sandbox said.
func (e *event) cover(held *inject.Guard) {
	host := e.Host
	for _, name := range []*string{&e.Host, &e.SNI, &e.Authority} {
		*name = held.CoverName(*name)
	}
	switch {
	case e.DNS == nil:
	case e.DNS.QName == host:
		e.DNS.QName = e.Host
	default:
		e.DNS.QName = held.CoverName(e.DNS.QName)
	}
	if h := e.HTTP; h != nil { // made for this event
		h.Method, h.Path, h.UserAgent = held.Cover(h.Method), held.Cover(h.Path), held.Cover(h.UserAgent)
		for i, key := range h.QueryKeys {
			h.QueryKeys[i] = held.Cover(key)
		}
	}
}

// record writes e and returns when it would survive the end of the process.
func (g *Gateway) record(e *event) error {
	g.ready(e, g.snap.Load().held())
	return g.Audit.Write(&e.Event)
}

// recordAll is record of decisions that were made together. It returns nil or
// the error of each.
func (g *Gateway) recordAll(es []*event) []error {
	if len(es) == 0 {
		return nil
	}
	held := g.snap.Load().held()
	events := make([]*audit.Event, len(es))
	for i, e := range es {
		g.ready(e, held)
		events[i] = &e.Event
	}
	return g.Audit.WriteAll(events)
}

// ready makes e fit to be written, and counts it.
func (g *Gateway) ready(e *event, held *inject.Guard) {
	e.cover(held)
	if e.Verdict == policy.Deny.String() {
		g.denied.Add(max(e.Count, 1))
	}
}

// Denials returns how many attempts were denied since the start.
func (g *Gateway) Denials() uint64 { return g.denied.Load() }

// recordOrLog writes an event that nothing waits for.
func (g *Gateway) recordOrLog(e *event) {
	if err := g.record(e); err != nil {
		g.Logger.Error("event was not recorded", "kind", e.Kind, "phase", e.Phase, "error", err)
	}
}

func (e *event) decide(d policy.Decision) {
	e.Verdict = d.Verdict.String()
	e.Reason, e.Message = string(d.Reason), d.Message
	e.Severity = severity(d)
	if d.Rule != nil {
		e.Rule = e.of.rule(d.Rule)
		e.Alert = d.Rule.Alert
	}
	if d.Would != nil {
		e.Would = &audit.Would{Verdict: policy.Deny.String(), Reason: string(d.Would.Reason)}
		if d.Would.Rule != nil && e.Rule == nil {
			e.Rule = e.of.rule(d.Would.Rule)
		}
	}
}

// rule is r for the record; events share it.
func (s *Snapshot) rule(r *policy.Rule) *audit.Rule {
	if s == nil {
		return newRule(r)
	}
	if known, ok := s.rules.Load(r); ok {
		return known.(*audit.Rule)
	}
	known, _ := s.rules.LoadOrStore(r, newRule(r))
	return known.(*audit.Rule)
}

func newRule(r *policy.Rule) *audit.Rule {
	out := &audit.Rule{ID: r.Owner + " " + r.Action.String() + ` "` + r.Host + `"`, Action: r.Action.String(),
		File: r.Pos.File, Line: r.Pos.Line, Ticket: r.Ticket}
	if !r.Expires.IsZero() {
		out.Expires = r.Expires.UTC().Format(time.RFC3339)
	}
	return out
}

func (e *event) peers(src, dst netip.AddrPort) { e.Src, e.Dst = addrOf(src), addrOf(dst) }

// addrOf is a for the record; nil is none.
func addrOf(a netip.AddrPort) *audit.Addr {
	if !a.IsValid() {
		return nil
	}
	return &audit.Addr{IP: a.Addr().Unmap().String(), Port: a.Port()}
}

// refusedAddress records the one address of a name for which it was refused.
func (e *event) refusedAddress(r upstream.Route) {
	if len(r.Addrs) == 1 {
		e.Upstream = &audit.Upstream{IP: r.Addrs[0].String(), Port: r.Port}
	}
}

func (e *event) uses(us []inject.Use) {
	for _, u := range us {
		e.Secrets = append(e.Secrets, audit.SecretUse{Name: u.Name, Place: u.Place, Action: u.Action, Count: u.Count})
	}
}

// severity grades a decision by what its reason says about intent.
func severity(d policy.Decision) audit.Severity {
	if d.Verdict == policy.Allow {
		return audit.Info
	}
	switch d.Reason {
	case policy.PlaceholderLeak, policy.SecretExfiltration, policy.ResolvesMetadata, policy.SpoofedSource:
		return audit.Critical
	case policy.AuthorityMismatch, policy.AuthorityAmbiguous, policy.Smuggling, policy.PlaintextInjection, policy.PlaceholderPlace,
		policy.ForeignCredential, policy.CredentialPattern, policy.ResolvesPrivate, policy.ResolvesLoopback,
		policy.ResolvesLinkLocal, policy.ResolvesEmbedded, policy.ResolvesSelf, policy.ResolvesReserved, policy.AddressNotInRule,
		policy.UnknownSandbox, policy.AuditUnavailable:
		return audit.High
	case policy.HostDenied, policy.IPLiteral, policy.NoSNI, policy.ECHUnsupported, policy.BadHostname, policy.DoTBlocked,
		policy.ConnectRefused, policy.GitPushNotAllowed, policy.SecretUnavailable, policy.PolicyUnavailable, policy.Revoked:
		return audit.Medium
	}
	return audit.Low
}

// milliseconds is a duration in the log's unit.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

package gateway

import (
	"errors"

	"sallyport/audit"
	"sallyport/gateway/inject"
	"sallyport/policy"
)

// findRoute resolves the host to addresses that may be dialled.
func (r *request) findRoute() *policy.Decision {
	if r.c.internal || r.token != "" {
		return nil
	}
	ctx := r.working()
	route, d := r.g.route(ctx, r.c.target(r.decision), func() *event { return r.event(audit.KindDNS, audit.PhaseEvent) })
	if d != nil {
		if d.Reason == policy.ResolveFailed && ctx.Err() != nil {
			d = deny(policy.ProtocolError, "the client gave the request up before its host was found")
		}
		d.Rule, r.refused = r.decision.Rule, route
		return d
	}
	r.route = route
	return nil
}

// prepare makes the request as it is to leave, so that one which cannot be
// made is not admitted.
func (r *request) prepare() *policy.Decision {
	if r.c.internal || r.token != "" {
		return nil
	}
	r.x = r.exchange()
	if d := r.showCertificate(); d != nil {
		return d
	}
	out, err := r.x.outgoing()
	if err == nil {
		r.out = out
		return nil
	}
	d := deny(policy.SecretUnavailable, "the secret cannot stand where its placeholder does")
	refused, ok := errors.AsType[*inject.Refusal](err)
	switch unread := r.x.unread.Load(); {
	case ok:
		d = deny(refused.Reason, refused.Message)
		r.refusedUses(refused.Uses)
	case errors.Is(err, errTarget):
		d = deny(policy.ProtocolError, errTarget.Error())
	case unread != nil:
		if d = r.x.taken(*unread); d == nil {
			d = deny(policy.ProtocolError, "the request body broke off")
		}
	}
	d.Rule = r.decision.Rule
	return d
}

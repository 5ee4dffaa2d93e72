package gateway

import "sallyport/policy"

// showCertificate puts the client certificate of the plan, if there is one,
// into the route, so that the handshake with the upstream has it.
func (r *request) showCertificate() *policy.Decision {
	if r.plan == nil {
		return nil
	}
	certificate, err := r.plan.ClientCertificate(r.values)
	if err != nil {
		r.g.Logger.Warn("client certificate cannot be used", "error", err)
		d := deny(policy.SecretUnavailable, "the client certificate cannot be had at the moment")
		d.Rule = r.decision.Rule
		return d
	}
	r.route.Certificate = certificate
	return nil
}

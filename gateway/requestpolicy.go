package gateway

import (
	"slices"

	"sallyport/policy"
)

// askPolicy decides.
func (r *request) askPolicy() *policy.Decision {
	if r.c.internal {
		return nil
	}
	d := r.snap.decide(r.policyRequest())
	if d.NeedsBody > 0 && r.body == nil {
		if why := r.checkSandboxLimits(); why != nil {
			return why
		}
		if why := r.holdBody(d.NeedsBody); why != nil {
			return why
		}
		d = r.decideByBody(d)
		if why := r.brokenBody(); why != nil {
			return why
		}
	}
	if d.Verdict != policy.Allow {
		denial := d // not d itself, which costs an allow nothing
		return &denial
	}
	r.decision = d
	return nil
}

// policyRequest is what policy is asked, now and at each reload.
func (r *request) policyRequest() policy.Request {
	q := r.c.sandbox.Request(policy.StageRequest)
	q.Host, q.Port, q.Scheme = r.c.host, r.c.dst.Port(), r.c.scheme
	q.Method, q.Path, q.Query, q.WebSocket = r.method, r.path, r.query, r.websocket
	q.Header, q.Body = r.header, r.body
	q.Now = r.g.Now()
	return q
}

// checkSandboxLimits takes the request from what the sandbox may use before
// its body is looked at, which costs more than a head does.
func (r *request) checkSandboxLimits() *policy.Decision {
	r.charged = r.g.allowances.of(r.snap.Policy, r.c.sandbox, nil)
	for _, w := range r.charged {
		if d := w.request(r.in.ContentLength); d != nil {
			return d
		}
	}
	return nil
}

// checkLimits takes the request from what the sandbox and the rule may use.
func (r *request) checkLimits() *policy.Decision {
	if r.c.internal {
		return nil
	}
	r.meters = r.g.allowances.of(r.snap.Policy, r.c.sandbox, r.decision.Rule)
	for _, w := range r.meters {
		if slices.Contains(r.charged, w) {
			continue
		}
		if d := w.request(r.in.ContentLength); d != nil {
			d.Rule = r.decision.Rule
			return d
		}
	}
	return nil
}

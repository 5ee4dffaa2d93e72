package gateway

import (
	"sallyport/gateway/inject"
	"sallyport/policy"
	"sallyport/secrets"
)

// planSecrets finds placeholders and says what is to be done with them.
func (r *request) planSecrets() *policy.Decision {
	if r.c.internal {
		return nil
	}
	if r.snap.Inject == nil || r.snap.Secrets == nil || r.snap.Held == nil {
		return deny(policy.PolicyUnavailable, "the gateway has no secrets in force")
	}
	plan, refusal := r.snap.Inject.Plan(r.injectInput())
	if refusal != nil {
		d := deny(refusal.Reason, refusal.Message)
		d.Rule = r.decision.Rule
		r.refusedUses(refusal.Uses)
		return d
	}
	r.plan = plan
	return r.checkConditions()
}

// checkConditions refuses a request that was decided by a credential which is
// not to leave: what no host sees decides nothing.
func (r *request) checkConditions() *policy.Decision {
	if r.decision.Rule == nil {
		return nil
	}
	for name := range r.decision.Rule.Headers {
		if r.plan.Drops(name) {
			d := deny(policy.ForeignCredential, "the rule asks for header "+name+", which is taken out as a credential that is not the gateway's; the policy needs foreign = \"pass\" there, or no condition on that header")
			d.Rule = r.decision.Rule
			return d
		}
	}
	return nil
}

// fetchSecrets gets the values that the plan needs, before the decision, so
// that the decision is true.
func (r *request) fetchSecrets() *policy.Decision {
	if r.plan == nil || r.plan.Empty() && r.token == "" {
		return nil
	}
	names := r.plan.Secrets()
	if r.token != "" {
		names = []string{r.token} // nothing else leaves
	}
	ctx := r.working()
	r.values = make(map[string]secrets.Value, len(names))
	for _, name := range names {
		v, err := r.snap.Secrets.Get(ctx, name)
		if err != nil {
			r.g.Logger.Warn("secret is not available", "secret", name, "error", err)
			d := deny(policy.SecretUnavailable, "secret "+name+" cannot be had at the moment")
			d.Rule = r.decision.Rule
			r.refusedUses([]inject.Use{{Name: name, Action: "withheld", Count: 1}})
			return d
		}
		r.values[name] = v
	}
	return nil
}

func (r *request) refusedUses(us []inject.Use) { r.withheld = us }

// unsent is what becomes of the request's secrets when it is refused.
func (r *request) unsent() []inject.Use {
	us := r.withheld
	if len(us) == 0 {
		us = r.uses()
	}
	return inject.Unsent(us)
}

// uses is what the plan does, for the record.
func (r *request) uses() []inject.Use {
	if r.plan == nil || r.token != "" {
		return nil
	}
	return r.plan.Uses()
}

package gateway

import (
	"sallyport/audit"
	"sallyport/gateway/http2guard"
	"sallyport/policy"
)

// recordFault writes the decision of an HTTP/2 request that its handler never
// sees, or of some together. When it cannot be written the
// connection ends.
func (c *conn) recordFault(f http2guard.Fault) error {
	reason := policy.Smuggling
	switch {
	case f.TooLarge:
		reason = policy.HeaderTooLarge
	case f.Crowd:
		reason = policy.ConnectionLimit
	case f.Flood, f.Lost:
		reason = policy.ProtocolError
	}
	e := c.event(audit.KindHTTP, audit.PhaseDecision)
	e.Req = audit.NewID()
	if f.Count > 0 {
		e.Count, e.FirstSeen, e.LastSeen = f.Count, &f.First, &f.Last
	}
	if f.Authority != c.host {
		e.Authority = f.Authority
	}
	e.HTTP = &audit.HTTP{Version: "2", Method: f.Method, Scheme: "https", Path: f.Path}
	e.decide(*deny(reason, f.Detail))
	return c.g.record(e)
}

package gateway

import (
	"errors"

	"sallyport/policy"
)

var errRevoked = errors.New("the connection is no longer allowed")

// takenBack says why e, which s allowed and which is entered now, must not go
// on, or returns nil: what came between the decision and the entry, the end of
// the sandbox or a reload, did not see it.
func (c *conn) takenBack(e *liveEntry, s *Snapshot) *policy.Decision {
	if why := c.forgotten(); why != nil {
		return why
	}
	now := c.g.snap.Load()
	if now == s {
		return nil
	}
	r := e.request
	r.Now = c.g.Now()
	if why, cut := e.noLonger(now.decide(r)); cut {
		return &why
	}
	return nil
}

// forgotten says that the sandbox has ended, or returns nil.
func (c *conn) forgotten() *policy.Decision {
	if c.state == nil || !c.state.ended.Load() { // without one nothing is admitted
		return nil
	}
	return deny(policy.Revoked, errForgotten.Error())
}

// cutShort says why the gateway has closed the connection, or is about to, or
// returns nil.
func (c *conn) cutShort() *policy.Decision {
	if cut := c.client.revoked.Load(); cut != nil {
		return deny(policy.Revoked, cut.Message)
	}
	return c.forgotten()
}

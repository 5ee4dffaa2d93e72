package gateway

import "sallyport/policy"

// countIn counts a request among those of its sandbox that run. Over HTTP/1.1
// there are no more of them than connections; over HTTP/2 one connection
// carries many, and each may hold a connection upstream and what it answers.
// So they are bounded like connections, and by the same limit.
func (r *request) countIn() *policy.Decision {
	s := r.c.state
	if s.running.Add(1) > r.g.atOnce(r.c.connectionLimit()) {
		s.running.Add(-1)
		return deny(policy.ConnectionLimit, "the sandbox makes too many requests at once")
	}
	r.counted = s
	return nil
}

// countOut counts it out, if it was counted in.
func (r *request) countOut() {
	if r.counted != nil {
		r.counted.running.Add(-1)
	}
}

// atOnce is how much of a kind one sandbox may have open at once, by the limit
// that its policy sets; 0 is none.
func (g *Gateway) atOnce(limit int64) int64 {
	if limit <= 0 {
		return int64(g.Limits.SandboxConnections)
	}
	return limit
}

package gateway

import (
	"sync/atomic"

	"sallyport/policy"
)

// How many bytes of bodies are held at once, to decide by them and to put
// credentials into them. A client may leave any number of them unfinished.
const (
	sandboxHolds = 16 << 20
	gatewayHolds = 256 << 20
)

// holding counts bytes that are held.
type holding struct{ used atomic.Int64 }

// take counts n bytes more, if they stay within most.
func (h *holding) take(n, most int64) bool {
	if h.used.Add(n) > most {
		h.used.Add(-n)
		return false
	}
	return true
}

// hold is what one request has taken from what its sandbox and the gateway may
// hold. The zero value has taken nothing.
type hold struct {
	sandbox, gateway *holding
	bytes            int64
}

// take takes n bytes more, and says whether there are so many.
func (h *hold) take(sandbox, gateway *holding, n int64) bool {
	if !sandbox.take(n, sandboxHolds) {
		return false
	}
	if !gateway.take(n, gatewayHolds) {
		sandbox.used.Add(-n)
		return false
	}
	*h = hold{sandbox, gateway, h.bytes + n}
	return true
}

// keep gives back all but n bytes.
func (h *hold) keep(n int64) {
	if n >= h.bytes {
		return
	}
	h.sandbox.used.Add(n - h.bytes)
	h.gateway.used.Add(n - h.bytes)
	h.bytes = n
}

// holdMore takes n bytes more, and says whether there are so many.
func (r *request) holdMore(n int64) bool {
	return r.hold.take(&r.g.state(r.c.sandbox.ID).holds, &r.g.holds, n)
}

// holdBody takes what a body may need of which at most so many bytes are read.
func (r *request) holdBody(most int64) *policy.Decision {
	n := most + 1 // by which it is seen to be longer
	if length := r.in.ContentLength; length >= 0 && length < n {
		n = length
	}
	if !r.holdMore(n) {
		return deny(policy.RateLimited, "too many requests that are decided by their bodies are under way; send fewer at once")
	}
	return nil
}

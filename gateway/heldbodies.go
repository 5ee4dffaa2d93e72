package gateway

import (
	"sync"
	"sync/atomic"

	"sallyport/policy"
)

// How many bytes of bodies are held at once, to decide by them and to put
// credentials into them. A client may leave any number of them unfinished.
const (
	sandboxHolds = 16 << 20
	gatewayHolds = 256 << 20
)

// How many bytes are taken at once to look into what is compressed. A client
// may leave any number of answers unread.
const (
	sandboxUnpacks = 256 << 20
	gatewayUnpacks = 1 << 30
)

// holding counts bytes that are held.
type holding struct{ used atomic.Int64 }

// take counts n bytes more, if they stay within most; there is always room for
// less.
func (h *holding) take(n, most int64) bool {
	if h.used.Add(n) > most && n > 0 {
		h.used.Add(-n)
		return false
	}
	return true
}

// hold is what one request has taken from what its sandbox and the gateway may
// hold. The zero value has taken nothing. Its body and its answer may take at
// the same time.
type hold struct {
	mu               sync.Mutex
	sandbox, gateway *holding
	bytes            int64
	over             bool // the request has ended; who still reads its body gets no more
}

// take takes n bytes more, and says whether there are so many.
func (h *hold) take(sandbox, gateway *holding, n int64) bool {
	return h.within(sandbox, gateway, n, sandboxHolds, gatewayHolds)
}

// within is take with other bounds than those of bodies.
func (h *hold) within(sandbox, gateway *holding, n, ofSandbox, ofGateway int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return n <= 0 // which was given back
	}
	if !sandbox.take(n, ofSandbox) {
		return false
	}
	if !gateway.take(n, ofGateway) {
		sandbox.used.Add(-n)
		return false
	}
	h.sandbox, h.gateway = sandbox, gateway
	h.bytes += n
	return true
}

// keep gives back all but n bytes.
func (h *hold) keep(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveBack(n)
}

// end gives everything back, for good.
func (h *hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.giveBack(0)
	h.over = true
}

// giveBack is keep; its caller holds mu.
func (h *hold) giveBack(n int64) {
	if n >= h.bytes {
		return
	}
	h.sandbox.used.Add(n - h.bytes)
	h.gateway.used.Add(n - h.bytes)
	h.bytes = n
}

// holdMore takes n bytes more, and says whether there are so many.
func (r *request) holdMore(n int64) bool {
	return r.hold.take(&r.c.state.holds, &r.g.holds, n)
}

// room is the inject.Room of a request and its answer.
type room request

// Take implements inject.Room.
func (m *room) Take(n int64) bool {
	r := (*request)(m)
	return r.unpacks.within(&r.c.state.unpacks, &r.g.unpacks, n, sandboxUnpacks, gatewayUnpacks)
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

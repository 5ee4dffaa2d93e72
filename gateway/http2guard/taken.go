package http2guard

import (
	"errors"
	"hash/maphash"
	"strings"
	"time"
)

// awaited is a sound request that no handler has taken yet.
type awaited struct {
	id    uint32
	key   uint64 // of the whole of what the handler gets to see
	fault Fault  // what is said of it if none ever does, shortened
	came  time.Time
	gone  bool // the client has cancelled it
}

// Bounds on what is kept of requests that wait.
const (
	maxWaiting   = 2000 // over what net/http keeps for later, of 250 at once
	maxGone      = 500  // of those
	maxMethod    = 64   // bytes
	maxAuthority = 256
	maxPath      = 1 << 10
)

// How requests that were too many are told: the first one by one, then at
// intervals with their number.
const (
	toldAlone     = 8
	crowdSize     = 100
	crowdInterval = time.Second
)

// crowd are requests that were too many at once and are not reported yet.
type crowd struct {
	told  int // one by one
	count uint64
	first time.Time
}

// Taken is called by a request's handler before all else, with the request's
// method, host and URI as the server has them. When it is false the request
// has been reported already, and the handler must not go on.
func (g *Guard) Taken(method, host, uri string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := g.key(method, host, uri)
	for i := range g.waiting {
		// Which of several that are alike does not matter.
		if g.waiting[i].key == key {
			g.drop(i)
			return true
		}
	}
	return false
}

func (g *Guard) key(method, host, uri string) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	for _, s := range []string{method, host, uri} {
		_, _ = h.WriteString(s) // never fails
		_ = h.WriteByte(0)      // likewise
	}
	return h.Sum64()
}

func (g *Guard) drop(i int) {
	last := len(g.waiting) - 1
	copy(g.waiting[i:], g.waiting[i+1:])
	g.waiting[last] = awaited{}
	g.waiting = g.waiting[:last]
}

// await expects the request of the head that was judged.
func (g *Guard) await(h *request) error {
	if len(g.waiting) >= maxWaiting {
		return errors.Join(g.report(Fault{Flood: true, Detail: "too many requests wait"}), ErrFlood)
	}
	f := h.told("")
	f.Method, f.Authority, f.Path = short(f.Method, maxMethod), short(f.Authority, maxAuthority), short(f.Path, maxPath)
	g.waiting = append(g.waiting, awaited{id: g.id, key: g.key(h.value(":method"), h.authority(), h.target()), fault: f, came: g.now()})
	return nil
}

// short keeps no more of s than is said of it, and not the bytes behind it.
func short(s string, most int) string { return strings.Clone(s[:min(len(s), most)]) }

// refused takes note that the server has reset a stream.
func (g *Guard) refused(id uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w.id != id {
			continue
		}
		g.drop(i)
		return errors.Join(g.tooMany(w), g.reset())
	}
	return nil
}

const crowdDetail = "too many requests at once on the connection"

func (g *Guard) tooMany(w awaited) error {
	if g.crowd.told < toldAlone {
		g.crowd.told++
		w.fault.Crowd, w.fault.Detail = true, crowdDetail
		return g.report(w.fault)
	}
	if g.crowd.count++; g.crowd.count == 1 {
		g.crowd.first = g.now()
	}
	if g.crowd.count < crowdSize && g.now().Sub(g.crowd.first) < crowdInterval {
		return nil
	}
	return g.crowdEnds()
}

// crowdEnds reports those that were counted.
func (g *Guard) crowdEnds() error {
	n := g.crowd.count
	if n == 0 {
		return nil
	}
	g.crowd.count = 0
	return g.report(Fault{Crowd: true, Count: n, First: g.crowd.first, Last: g.now(), Detail: crowdDetail})
}

// cancel takes note that the client resets the stream of the frame. Its
// handler may have begun, or may never do.
func (g *Guard) cancel() error {
	gone := 0
	for i := range g.waiting {
		if g.waiting[i].id == g.id {
			g.waiting[i].gone = true
		}
		if g.waiting[i].gone {
			gone++
		}
	}
	if gone <= maxGone {
		return nil
	}
	var lost, kept []awaited
	for _, w := range g.waiting {
		if w.gone {
			lost = append(lost, w)
		} else {
			kept = append(kept, w)
		}
	}
	g.waiting = kept
	return g.tell(lost, "the request was cancelled before it was taken")
}

// lose reports the requests that no handler will take: their connection has
// ended.
func (g *Guard) lose() error {
	left := g.waiting
	g.waiting = nil
	return g.tell(left, "the connection ended before the request was taken")
}

func (g *Guard) tell(left []awaited, detail string) error {
	var errs []error
	if len(left) > toldAlone {
		rest := left[toldAlone:]
		errs = append(errs, g.report(Fault{Lost: true, Count: uint64(len(rest)), First: rest[0].came, Last: rest[len(rest)-1].came, Detail: detail}))
		left = left[:toldAlone]
	}
	for _, w := range left {
		w.fault.Lost, w.fault.Detail = true, detail
		errs = append(errs, g.report(w.fault))
	}
	return errors.Join(errs...)
}

package http2guard

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// awaited is a sound request that no handler has taken yet.
type awaited struct {
	id    uint32 // stream; 0 if only an alike one's was known
	key   uint64 // of the whole of what the handler gets to see
	fault Fault  // what is said of it if none ever does, shortened
	since time.Time
	gone  bool // the client has cancelled it

	length int64  // of the body as announced; -1: it is not
	came   int64  // of the body, in bytes
	broken string // what the client did that the server resets the stream for
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
	w := awaited{id: g.id, key: g.key(h.value(":method"), h.authority(), h.target()), fault: f, since: g.now(), length: -1}
	if n, err := strconv.ParseInt(h.length, 10, 64); err == nil && n >= 0 && !g.ends {
		w.length = n
	}
	if g.itself {
		w.broken = "the stream depends on itself"
	}
	g.waiting = append(g.waiting, w)
	return nil
}

// short keeps no more of s than is said of it, and not the bytes behind it.
func short(s string, most int) string { return strings.Clone(s[:min(len(s), most)]) }

// waits returns the request of a stream if no handler has taken it yet.
func (g *Guard) waits(id uint32) *awaited {
	for i := range g.waiting {
		if id != 0 && g.waiting[i].id == id {
			return &g.waiting[i]
		}
	}
	return nil
}

// breaks takes note of what the server will reset the stream of the frame for.
func (g *Guard) breaks(detail string) {
	if w := g.waits(g.id); w != nil {
		w.broken = detail
	}
}

// number says whether the frame under way is a short one that says a number.
func (g *Guard) number() bool {
	return g.size <= 5 && (g.kind == framePriority || g.kind == frameWindow)
}

// inspect looks at a frame that is no piece of a head, and is whole.
func (g *Guard) inspect() {
	if g.kind == frameData && g.flags&flagEndStream != 0 {
		g.ended(g.id)
	}
	switch {
	case g.kind == frameData && g.flags&flagPadded == 0:
		w := g.waits(g.id)
		if w == nil || w.length < 0 {
			return
		}
		if w.came += int64(g.size); w.came > w.length {
			w.broken = "the body is longer than its Content-Length"
		}
	case g.kind == frameWindow && len(g.payload) == 4 && binary.BigEndian.Uint32(g.payload)&^(1<<31) == 0:
		g.breaks("a window update of nothing")
	case g.kind == framePriority && len(g.payload) == 5 && binary.BigEndian.Uint32(g.payload)&^(1<<31) == g.id:
		g.breaks("the stream depends on itself")
	}
}

// Codes with which the server resets a stream before its handler has ended (RFC
// 9113, section 7). The first and the last are for one too many.
const (
	codeProtocol = 0x1
	codeFlow     = 0x3
	codeClosed   = 0x5
	codeRefused  = 0x7
)

// refused takes note that the server has reset a stream, with a code.
func (g *Guard) refused(id, code uint32) error {
	switch code {
	case codeProtocol, codeFlow, codeClosed, codeRefused:
	default:
		g.handled(id) // it has ended
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cutOff(id)
	at := slices.IndexFunc(g.waiting, func(w awaited) bool { return id != 0 && w.id == id })
	if at < 0 {
		return nil
	}
	w := g.waiting[at]
	g.drop(at)
	if w.broken == "" && code != codeProtocol && code != codeRefused {
		w.broken = "a frame of the request breaks the protocol"
	}
	g.owe(w.key, w.broken != "")
	if w.broken != "" {
		w.fault.Lost, w.fault.Detail = true, w.broken
		return errors.Join(g.report(w.fault), g.reset())
	}
	return errors.Join(g.tooMany(w), g.reset())
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
	if w := g.waits(g.id); w != nil {
		w.gone = true
	}
	gone := 0
	for i := range g.waiting {
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
	g.waiting, g.debts = nil, nil
	return g.tell(left, "the connection ended before the request was taken")
}

func (g *Guard) tell(left []awaited, detail string) error {
	var errs []error
	if len(left) > toldAlone {
		rest := left[toldAlone:]
		errs = append(errs, g.report(Fault{Lost: true, Count: uint64(len(rest)), First: rest[0].since, Last: rest[len(rest)-1].since, Detail: detail}))
		left = left[:toldAlone]
	}
	for _, w := range left {
		w.fault.Lost, w.fault.Detail = true, detail
		errs = append(errs, g.report(w.fault))
	}
	return errors.Join(errs...)
}

package http2guard

import (
	"context"
	"hash/maphash"
	"slices"
	"time"
)

// Taken is called by a request's handler before all else, with the request's
// context and its method, host and URI as the server has them. When it is false
// the request has been reported already, and the handler must not go on.
//
// A handler does not know its stream. Of requests that are alike it takes the
// first that fares as its own does: whose stream has ended, or has not. The
// server starts handlers in the order of the requests.
func (g *Guard) Taken(ctx context.Context, method, host, uri string) bool {
	key := g.key(method, host, uri)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owes(key) {
		g.mu.Unlock()
		soon(ctx) // it may be the one that was told: the server ends its context only after the reset is written
		g.mu.Lock()
	}
	over := ctx.Err() != nil // looked at with the lock: of a reset by the client the server ends it first
	if over && g.settle(key) {
		return false
	}
	found := -1
	for i := range g.waiting {
		w := &g.waiting[i]
		if w.key != key {
			continue
		}
		if over == (w.gone || w.broken != "") {
			found = i
			break
		}
		if found < 0 {
			found = i
		}
	}
	if found < 0 {
		// The request that was told had been taken, for one that is alike.
		return !over && g.settle(key)
	}
	g.drop(found)
	return true
}

// debt is a request that was told, whose handler may yet come.
type debt struct {
	key   uint64
	at    time.Time
	begun bool // it may have begun; the server begins none for one too many
}

// maxDebts is how many handlers of requests that were told are awaited, and
// freshDebt how long one may be about to come. It waits for its context to end
// as long as endsSoon.
const (
	maxDebts  = 500
	freshDebt = time.Second
	endsSoon  = 20 * time.Millisecond
)

// soon waits for ctx to end, if it is about to.
func soon(ctx context.Context) {
	t := time.NewTimer(endsSoon)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// owe takes note that a request is told, and that its handler may yet come.
func (g *Guard) owe(key uint64, begun bool) {
	if len(g.debts) >= maxDebts {
		g.debts = slices.Delete(g.debts, 0, 1)
	}
	g.debts = append(g.debts, debt{key, g.now(), begun})
}

// owes says whether one that is alike has just been told.
func (g *Guard) owes(key uint64) bool {
	return len(g.debts) > 0 && slices.ContainsFunc(g.debts, func(d debt) bool { return d.begun && d.key == key && g.now().Sub(d.at) < freshDebt })
}

// settle says whether one that is alike is owed, which it then is no more.
func (g *Guard) settle(key uint64) bool {
	i := slices.IndexFunc(g.debts, func(d debt) bool { return d.key == key })
	if i < 0 {
		return false
	}
	g.debts = slices.Delete(g.debts, i, i+1)
	return true
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

// handled takes note that the handler of a stream has begun. If its request
// still waits it has taken one that is alike, which then waits in its place.
func (g *Guard) handled(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.waits(id); w != nil {
		w.id, w.gone, w.length, w.broken = 0, false, -1, ""
	}
}

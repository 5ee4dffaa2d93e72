package gateway

import (
	"context"
	"sync"
	"time"

	"sallyport/policy"
)

// live is what is open at the moment: connections, requests and relays, each
// with what policy was asked about it, so that it can be asked again.
//
// Each request comes and goes: so it is a list, whose ends cost nothing but its
// lock.
type live struct {
	mu    sync.Mutex
	first *liveEntry
	n     int           // entries
	idle  chan struct{} // closed when the last entry goes, while somebody waits
}

type liveEntry struct {
	sandboxID string
	request   policy.Request
	relay     policy.Relay // how a connection is carried; zero for a request

	of decided

	before, behind *liveEntry // in the list; of live
}

// decided is what policy was asked about. A connection is a carrier as well,
// and what does not watch itself a lingerer.
type decided interface {
	// still looks at what a new decision to allow says besides: whether the
	// address that was dialled and the secrets that are sent are still
	// allowed. It returns why not, or nil.
	still(policy.Decision) *policy.Decision

	// revoke cuts it.
	revoke(policy.Decision)
}

// carrier is what requests are on.
type carrier interface {
	// mark notes why a connection is about to be cut: it may close before,
	// because a request on it is.
	mark(policy.Decision)
}

// lingerer is what may make no progress.
type lingerer interface {
	// overdue ends what has made no progress for too long, if it is so.
	overdue(now time.Time)
}

func (l *live) add(e *liveEntry) *liveEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.behind = l.first; e.behind != nil {
		e.behind.before = e
	}
	l.first = e
	l.n++
	return e
}

// remove takes out what was added.
func (l *live) remove(e *liveEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.before == nil && l.first != e {
		return // it is out
	}
	if e.behind != nil {
		e.behind.before = e.before
	}
	if e.before != nil {
		e.before.behind = e.behind
	} else {
		l.first = e.behind
	}
	e.before, e.behind = nil, nil
	if l.n--; l.n == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// all returns what is open.
func (l *live) all() []*liveEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*liveEntry, 0, l.n)
	for e := l.first; e != nil; e = e.behind {
		list = append(list, e)
	}
	return list
}

// recheck asks s about everything that is open and cuts what it denies.
func (l *live) recheck(s *Snapshot, now time.Time) {
	l.cutWhere(func(e *liveEntry) (policy.Decision, bool) {
		r := e.request
		r.Now = now
		return e.noLonger(s.decide(r))
	})
}

// noLonger turns a new decision about what is open into why it is to be cut,
// if it is.
func (e *liveEntry) noLonger(d policy.Decision) (why policy.Decision, cut bool) {
	if why, cut := noLonger(e.relay, d); cut {
		return why, true
	}
	if why := e.of.still(d); why != nil {
		return *why, true
	}
	return d, false
}

// noLonger is what a decision says of a connection that is carried as relay.
// Bytes that nobody looks into are not what a rule allows that looks into
// them.
func noLonger(relay policy.Relay, d policy.Decision) (why policy.Decision, cut bool) {
	unopened := relay == policy.RelayTCP || relay == policy.RelayPassthrough
	if d.Verdict == policy.Allow && unopened && d.Relay != relay {
		return policy.Decision{Reason: policy.Revoked, Rule: d.Rule, Message: "the policy no longer lets the connection pass unopened"}, true
	}
	return d, d.Verdict != policy.Allow
}

// expire ends what has made no progress for too long.
func (l *live) expire(now time.Time) {
	for _, e := range l.all() {
		if w, ok := e.of.(lingerer); ok {
			w.overdue(now)
		}
	}
}

// cutSandbox cuts everything of one life of a sandbox.
func (l *live) cutSandbox(id string) {
	l.cutWhere(func(e *liveEntry) (policy.Decision, bool) {
		return policy.Decision{Reason: policy.Revoked, Message: errForgotten.Error()}, e.sandboxID == id
	})
}

// cutAll cuts what is left when the gateway stops.
func (l *live) cutAll() {
	l.cutWhere(func(*liveEntry) (policy.Decision, bool) {
		return policy.Decision{Reason: policy.Revoked, Message: "the gateway is stopping"}, true
	})
}

func (l *live) cutWhere(match func(*liveEntry) (policy.Decision, bool)) {
	type cut struct {
		e *liveEntry
		d policy.Decision
	}
	// Outside the lock: nothing new waits until all that is open is decided
	// again, and a cut removes its entry. What comes meanwhile asks by itself
	// (conn.takenBack).
	var cuts []cut
	for _, e := range l.all() {
		if d, ok := match(e); ok {
			cuts = append(cuts, cut{e, d})
		}
	}
	// A request is cut before its connection, whose end would else seem to be
	// the client's.
	for _, c := range cuts {
		if m, ok := c.e.of.(carrier); ok {
			m.mark(c.d)
		}
	}
	for _, conns := range []bool{false, true} {
		for _, c := range cuts {
			if _, ok := c.e.of.(carrier); ok == conns {
				c.e.of.revoke(c.d)
			}
		}
	}
}

// waitFor waits until nothing is open or ctx ends.
func (l *live) waitFor(ctx context.Context) {
	l.mu.Lock()
	if l.n == 0 {
		l.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

package audit

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// judge says, before an event is written, whether alert rules can be about it.
// What it knows is what the rules were made of; other rules have another judge.
type judge struct {
	rules []AlertRule

	mu    sync.RWMutex
	known map[usage]struct{} // to the rules about what is first
}

// usage is what is used for the first time only once.
type usage struct{ sandbox, host string }

func newJudge(rules []*ruleState) *judge {
	j := &judge{known: make(map[usage]struct{})}
	for _, r := range rules {
		if !r.empty() {
			j.rules = append(j.rules, r.AlertRule)
		}
	}
	return j
}

// quiet reports that no rule counts e, nor any rule of bytes wants to know of
// it. It compares what a line has as the event has it: words of this program. It
// is asked for every event.
func (j *judge) quiet(e *Event) bool {
	if e.Kind == KindAlert {
		return true // an alert raises no alert
	}
	if e.Alert != "" {
		return false
	}
	for i := range j.rules {
		if j.may(&j.rules[i], e) {
			return false
		}
	}
	return true
}

// may reports whether e can matter to r.
func (j *judge) may(r *AlertRule, e *Event) bool {
	switch {
	case r.Sum != "" && e.Bytes == nil:
		return false
	case r.Sum != "" && r.Kind == "":
		return true // it may count, or be told of by the end of its connection
	case r.Verdict != "" && r.Verdict != e.Verdict,
		r.Kind != "" && r.Kind != string(e.Kind),
		r.AtLeast != "" && severityNumber(e.Severity) < severityNumber(r.AtLeast),
		len(r.Reasons) > 0 && !slices.Contains(r.Reasons, effectiveReason(e)),
		r.mayEvent != nil && !r.mayEvent(e),
		r.first && j.used(e):
		return false
	}
	return true
}

// mayTunnelEvent is mayTunnel of an event. A name that is written otherwise than
// it was asked may have another shape there.
func mayTunnelEvent(e *Event) bool {
	if e.DNS == nil {
		return false
	}
	name := e.DNS.QName
	return len(name) >= tunnelLong && tunnelShaped(name) || plainPrefix(name) < len(name) || len(name) > capHost
}

// isUse reports whether e is decided by a rule for many names.
func isUse(e *Event) bool {
	return e.Rule != nil && strings.Contains(e.Rule.ID, `"*`) && e.Host != ""
}

func (j *judge) used(e *Event) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	_, known := j.known[usage{sandboxOf(e), e.Host}]
	return known
}

// use notes that the rules have looked at e.
func (j *judge) use(e *Event) {
	if e.Various() {
		return // of which it has only the first one's host
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.known) >= maxGroups {
		clear(j.known)
	}
	j.known[usage{sandboxOf(e), e.Host}] = struct{}{}
}

// quiet is what a log remembers of what it has written, for the alert rules of
// the same process: which lines they need not read. It knows nothing of what was
// written before they asked.
type quiet struct {
	judge atomic.Pointer[judge] // who is asked; nil: nobody wants to know
	wake  chan struct{}         // there is something that is not quiet

	mu         sync.Mutex
	of         *judge  // whose all below is
	from, upto place   // all lines between are quiet, but for
	loud       []place // those that begin there
}

// maxLoud bounds how many lines are remembered. If there are more, those who
// read look at every line again, from where they are.
const maxLoud = 4096

// ask has j asked from now on, nil nobody. Nothing that was written before is
// quiet to j.
func (q *quiet) ask(j *judge) {
	q.mu.Lock()
	q.of, q.from, q.upto, q.loud = j, place{}, place{}, nil
	q.judge.Store(j)
	q.mu.Unlock()
	q.signal()
}

func (q *quiet) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// note takes lines that were written at a place, of which each entry says how
// long it is.
func (q *quiet) note(entries []*entry, at place) {
	if q.judge.Load() == nil {
		return
	}
	q.mu.Lock()
	if q.upto != at && (at.off > 0 || at.n != q.upto.n+1 || q.upto == (place{})) {
		q.from, q.loud = at, q.loud[:0] // something else is in between
	}
	heard := false
	for _, x := range entries {
		if x.quietTo == nil || x.quietTo != q.of {
			heard = true
			if len(q.loud) == maxLoud {
				q.from, q.loud = at, q.loud[:0]
			}
			q.loud = append(q.loud, at)
		}
		at.off += int64(x.size)
	}
	q.upto = at
	q.mu.Unlock()
	if heard {
		q.signal()
	}
}

// doubt forgets everything: what is in the file is not what was handed to note.
func (q *quiet) doubt() {
	q.mu.Lock()
	q.from, q.upto, q.loud = place{}, place{}, nil
	q.mu.Unlock()
}

// skip returns from where on j has to read that has read up to at.
func (q *quiet) skip(j *judge, at place) place {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.of != j || at.before(q.from) || !at.before(q.upto) {
		return at
	}
	n := 0
	for n < len(q.loud) && q.loud[n].before(at) {
		n++
	}
	if q.loud = q.loud[n:]; len(q.loud) > 0 {
		return q.loud[0]
	}
	return q.upto
}

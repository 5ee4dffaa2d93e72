package audit

import (
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// savedAlert is what of an active group survives a restart. After a crash it is
// that of the place in the log that was saved with it.
type savedAlert struct {
	Alert Alert     `json:"alert"`
	Told  time.Time `json:"told"`
	Quiet int       `json:"quiet"` // intervals without an event
}

// Buckets of State.
const (
	alertBucket = "alerts"
	muteBucket  = "alert_mutes"
	seenBucket  = "alert_seen"
)

// load takes up what was firing. What no rule has any more is forgotten.
func (a *Alerts) load() error {
	var gone [][]byte
	err := a.o.State.ForEach(alertBucket, func(k, v []byte) error {
		var s savedAlert
		if json.Unmarshal(v, &s) == nil && s.Alert.Event != nil {
			for _, r := range a.rules {
				if r.Name == s.Alert.Name {
					g := r.groupFor(s.Alert.Event)
					g.state, g.active, g.used = s, true, s.Alert.LastSeen
					r.adopt()
					return nil
				}
			}
		}
		gone = append(gone, slices.Clone(k))
		return nil
	})
	for _, k := range gone {
		err = errors.Join(err, a.o.State.Delete(alertBucket, k))
	}
	return err
}

// mark notes that what is saved of g is no longer so. Called with mu held.
func (a *Alerts) mark(r *ruleState, g *alertGroup) { a.unsaved[r.Name+"\x00"+g.key] = g }

// reach notes up to where the log is counted. Called with mu held.
func (a *Alerts) reach(at place) {
	if at != a.at {
		a.at, a.moved = at, true
	}
}

// save puts on disk, all at once, what has changed: what is firing with its
// counts, and the place in the log that they belong to, so that after a crash
// every record counts once. It is called with telling and mu held, when all
// notices were handed on, and does nothing while a spool has one of them in
// memory alone: a crash before makes another notice, and loses none.
func (a *Alerts) save() {
	if len(a.unsaved) == 0 && len(a.unseen) == 0 && !a.moved {
		return
	}
	if !a.o.State.spooled() {
		return // with the next tick
	}
	var list []pair
	for k, g := range a.unsaved {
		x := pair{bucket: alertBucket, key: []byte(k)}
		if g.active {
			b, err := json.Marshal(&g.state)
			if err != nil {
				a.o.Logger.Warn("alert state not saved", "alert", g.state.Alert.Name, "error", err)
				continue
			}
			x.value = b
		}
		list = append(list, x)
	}
	for k, v := range a.unseen {
		list = append(list, pair{seenBucket, []byte(k), v})
	}
	if a.moved {
		list = append(list, pair{placeBucket, []byte(a.dir), append(key(a.at.n), key(uint64(a.at.off))...)})
	}
	if err := a.o.State.apply(list); err != nil {
		a.o.Logger.Warn("alert state and place in the log not saved; they are tried again", "error", err)
		return
	}
	clear(a.unsaved)
	clear(a.unseen)
	a.moved = false
}

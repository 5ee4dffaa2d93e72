package audit

import (
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// savedAlert is what of an active group survives a restart. After a crash the
// counts are those of the last notice.
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

func (a *Alerts) save(r *ruleState, g *alertGroup) {
	k := []byte(r.Name + "\x00" + g.key)
	var err error
	if !g.active {
		err = a.o.State.Delete(alertBucket, k)
	} else {
		var b []byte
		if b, err = json.Marshal(&g.state); err == nil {
			err = a.o.State.Put(alertBucket, k, b)
		}
	}
	if err != nil {
		a.o.Logger.Warn("alert state not saved", "alert", r.Name, "error", err)
	}
}

// saveAll saves what is firing with its counts.
func (a *Alerts) saveAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rules {
		for _, g := range r.groups {
			if g.active {
				a.save(r, g)
			}
		}
	}
}

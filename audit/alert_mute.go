package audit

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// Mute silences notices of alerts, never their records. A list that is empty
// takes all; in the others one that matches is enough.
type Mute struct {
	ID        string    `json:"id"`
	Alerts    []string  `json:"alerts,omitempty"`    // globs
	Sandboxes []string  `json:"sandboxes,omitempty"` // globs
	Hosts     []string  `json:"hosts,omitempty"`     // globs
	Reasons   []string  `json:"reasons,omitempty"`
	Until     time.Time `json:"until"`
	Why       string    `json:"why,omitempty"`
}

func (m *Mute) silences(a *Alert, now time.Time) bool {
	if !now.Before(m.Until) {
		return false
	}
	sandbox, host, reason := "", "", ""
	if a.Event != nil {
		sandbox, host, reason = sandboxOf(a.Event), strings.ToLower(hostOf(a.Event)), effectiveReason(a.Event)
	}
	return anyGlob(m.Alerts, a.Name) && anyGlob(m.Sandboxes, sandbox) && anyGlob(m.Hosts, host) &&
		(len(m.Reasons) == 0 || slices.Contains(m.Reasons, reason))
}

// anyGlob reports whether one of globs matches s, or there are none.
func anyGlob(globs []string, s string) bool {
	return len(globs) == 0 || slices.ContainsFunc(globs, func(g string) bool { return glob(g, s) || glob(strings.ToLower(g), s) })
}

// loadMutes takes up the mutes of Mute, and forgets those that are over.
func (a *Alerts) loadMutes() error {
	now := a.o.Now()
	var gone [][]byte
	err := a.o.State.ForEach(muteBucket, func(k, v []byte) error {
		var m Mute
		if json.Unmarshal(v, &m) == nil && now.Before(m.Until) {
			a.mutes = append(a.mutes, m)
		} else {
			gone = append(gone, slices.Clone(k))
		}
		return nil
	})
	for _, k := range gone {
		err = errors.Join(err, a.o.State.Delete(muteBucket, k))
	}
	return err
}

// muted reports whether a mute silences x. Called with mu held.
func (a *Alerts) muted(x *Alert) bool {
	now := a.o.Now()
	silences := func(m Mute) bool { return m.silences(x, now) }
	return slices.ContainsFunc(a.fixed, silences) || slices.ContainsFunc(a.mutes, silences)
}

// Mute adds a mute that survives restarts, and returns its ID.
func (a *Alerts) Mute(m Mute) (string, error) {
	if !m.Until.After(a.o.Now()) {
		return "", errors.New("mute: until is not in the future")
	}
	m.ID = NewID()
	b, err := json.Marshal(m)
	if err == nil {
		err = a.o.State.Put(muteBucket, []byte(m.ID), b)
	}
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	a.mutes = slices.DeleteFunc(a.mutes, func(m Mute) bool { return !now.Before(m.Until) })
	a.mutes = append(a.mutes, m)
	return m.ID, nil
}

// Mutes returns the mutes that are in force.
func (a *Alerts) Mutes() []Mute {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	return slices.DeleteFunc(slices.Concat(a.fixed, a.mutes), func(m Mute) bool { return !now.Before(m.Until) })
}

// Unmute ends a mute of Mute before its time. It reports whether there was one
// of that ID.
func (a *Alerts) Unmute(id string) (bool, error) {
	a.mu.Lock()
	n := len(a.mutes)
	a.mutes = slices.DeleteFunc(a.mutes, func(m Mute) bool { return m.ID == id })
	found := len(a.mutes) < n
	a.mu.Unlock()
	if !found {
		return false, nil
	}
	return true, a.o.State.Delete(muteBucket, []byte(id))
}

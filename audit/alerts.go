package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// AlertOptions of NewAlerts. State and Log are required.
type AlertOptions struct {
	Rules  []AlertRule
	Mutes  []Mute
	State  *State                     // keeps what is firing, and how far the log was read
	Log    Writer                     // gets an event of kind alert for every notice
	Notify func(Alert)                // hands a notice to the sinks that it names, and does not block; nil is none
	Count  func(alert, result string) // of every notice: firing, resolved or muted; nil is none
	Logger hclog.Logger               // nil is silence
	Now    func() time.Time
}

// Alerts evaluates alert rules over the events of a log. The first occurrence
// is told at once, what follows once per interval, and when nothing has
// followed for two intervals that it is over. It is safe for concurrent use.
type Alerts struct {
	o      AlertOptions
	cursor *cursor // of Open
	dir    string

	mu     sync.Mutex
	rules  []*ruleState
	fixed  []Mute // of the policy
	mutes  []Mute // of Mute
	outbox []told // told as soon as mu is free

	usages map[string]struct{} // sandboxes and hosts that are known to the rules about what is first
	usage  []byte              // one of them; scratch
}

// told is a notice on its way, and whose it is.
type told struct {
	Alert
	rule  *ruleState
	group *alertGroup
}

// ruleState is a rule and its groups.
type ruleState struct {
	AlertRule
	groups map[string]*alertGroup
	seen   map[string]bool // of a rule about what is first: what is not; nil: not read yet
}

// alertGroup is one group of a rule.
type alertGroup struct {
	key    string
	group  map[string]string
	window *window
	used   time.Time // of the latest event
	state  savedAlert
	active bool
}

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

// maxGroups bounds the groups of one rule; more share one.
const maxGroups = 10_000

// NewAlerts returns the rules ready to run, with what State knows of them.
func NewAlerts(o AlertOptions) (*Alerts, error) {
	if o.State == nil || o.Log == nil {
		return nil, errors.New("alerts: no state or no log")
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Alerts{o: o, fixed: slices.Clone(o.Mutes)}
	var err error
	if a.rules, err = ruleStates(o.Rules); err != nil {
		return nil, err
	}
	if err := a.load(); err != nil {
		return nil, err
	}
	return a, a.loadMutes()
}

// ruleStates checks rules and returns them without a past.
func ruleStates(rules []AlertRule) ([]*ruleState, error) {
	var out []*ruleState
	for _, r := range rules {
		r, err := r.withDefaults()
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(x *ruleState) bool { return x.Name == r.Name }) {
			return nil, fmt.Errorf("alert %q: declared twice", r.Name)
		}
		out = append(out, &ruleState{AlertRule: r, groups: make(map[string]*alertGroup)})
	}
	return out, nil
}

// CheckRules returns the error that NewAlerts and Replace would have for rules.
func CheckRules(rules []AlertRule) error {
	_, err := ruleStates(rules)
	return err
}

// Replace puts other rules and mutes of a policy in the place of those that are
// in force. A rule that counts what its namesake has counted goes on with its
// windows and with what is firing; what a rule that is gone had firing is
// resolved. Mutes of Mute stay.
func (a *Alerts) Replace(rules []AlertRule, mutes []Mute) error {
	next, err := ruleStates(rules)
	if err != nil {
		return err
	}
	a.mu.Lock()
	old := a.rules
	a.rules, a.fixed = next, slices.Clone(mutes)
	a.usages = nil
	for _, was := range old {
		i := slices.IndexFunc(next, func(r *ruleState) bool { return r.Name == was.Name && r.countsAs(&was.AlertRule) })
		if i >= 0 {
			next[i].groups, next[i].seen = was.groups, was.seen
			next[i].adopt()
			continue
		}
		for _, g := range was.groups {
			if g.active {
				g.state.Alert.State = Resolved
				a.notice(was, g)
				g.active = false
			}
		}
	}
	a.mu.Unlock()
	a.tell()
	return nil
}

// adopt puts what r says now into what is firing.
func (r *ruleState) adopt() {
	for _, g := range r.groups {
		g.state.Alert.Severity, g.state.Alert.Notify = r.Severity, r.Notify
	}
}

// countsAs reports whether r and old count the same in the same windows, so
// that the one can go on where the other was.
func (r *ruleState) countsAs(old *AlertRule) bool {
	x, y := r.AlertRule, *old
	for _, z := range []*AlertRule{&x, &y} {
		z.Severity, z.Threshold, z.Interval, z.Notify = "", 0, 0, nil
		z.match, z.value = nil, nil // the same in rules of one name that are built in
	}
	return (r.match == nil) == (old.match == nil) && reflect.DeepEqual(x, y)
}

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

// groupFor returns the group of e, made if it is not there.
func (r *ruleState) groupFor(e *Event) *alertGroup {
	group, key := r.groupOf(e)
	g := r.groups[key]
	if g == nil && len(r.groups) >= maxGroups {
		group, key = nil, "\x00others"
		g = r.groups[key]
	}
	if g == nil {
		g = &alertGroup{key: key, group: group, window: newWindow(r.Window, r.Distinct != "")}
		r.groups[key] = g
	}
	return g
}

// Observe evaluates the rules on e.
func (a *Alerts) Observe(e *Event) { a.observe(e, false) }

// observe is Observe; with prime it only fills the windows.
func (a *Alerts) observe(e *Event, prime bool) {
	a.mu.Lock()
	for _, r := range a.rules {
		if r.matches(e) {
			a.count(r, e, prime)
		}
	}
	a.mu.Unlock()
	a.tell()
}

// count counts e for r, and fires if that is enough. Called with mu held.
func (a *Alerts) count(r *ruleState, e *Event, prime bool) {
	if r.first && (prime || !a.isFirst(r, e)) {
		return
	}
	g := r.groupFor(e)
	weight := r.weight(e)
	total := g.window.add(e.Time, r.dimension(e, r.Distinct), weight)
	g.used = e.Time
	if prime {
		return
	}
	if g.active {
		s := &g.state
		s.Alert.Count += weight
		s.Alert.New += weight
		s.Alert.Event, s.Alert.LastSeen = e, e.Time
		return
	}
	if total < r.Threshold {
		return
	}
	g.active = true
	g.state = savedAlert{Alert: Alert{
		ID: NewID(), Name: r.Name, State: Firing, Severity: r.Severity, Group: g.group, Count: total, New: total,
		FirstSeen: e.Time, LastSeen: e.Time, Event: e, Notify: r.Notify,
	}}
	if e.FirstSeen != nil {
		g.state.Alert.FirstSeen = *e.FirstSeen
	}
	a.notice(r, g)
}

// notice puts a notice of g into the outbox. The group is saved when the notice
// is on its way: a crash in between makes another notice, and loses none. Called
// with mu held.
func (a *Alerts) notice(r *ruleState, g *alertGroup) {
	s := &g.state
	s.Alert.Message = s.Alert.message(&r.AlertRule)
	s.Told = a.o.Now()
	a.outbox = append(a.outbox, told{s.Alert, r, g})
	s.Alert.New, s.Quiet = 0, 0
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

// Tick tells of what goes on and what is over. It is to be called about once a
// second.
func (a *Alerts) Tick() {
	now := a.o.Now()
	a.mu.Lock()
	for _, r := range a.rules {
		for key, g := range r.groups {
			switch {
			case g.active:
				a.tickGroup(r, g, now)
			case now.Sub(g.used) > 2*r.Window:
				delete(r.groups, key)
			}
		}
	}
	a.mu.Unlock()
	a.tell()
}

// tickGroup tells of an active group when its interval is over. Called with mu
// held.
func (a *Alerts) tickGroup(r *ruleState, g *alertGroup, now time.Time) {
	s := &g.state
	if now.Sub(s.Told) < r.Interval {
		return
	}
	if s.Alert.New > 0 {
		a.notice(r, g)
		return
	}
	s.Quiet++
	s.Told = now
	if s.Quiet < 2 {
		a.save(r, g)
		return
	}
	s.Alert.State = Resolved
	a.notice(r, g)
	g.active, g.state = false, savedAlert{}
	g.window.reset()
}

// tell writes and sends what is in the outbox.
func (a *Alerts) tell() {
	a.mu.Lock()
	out := a.outbox
	a.outbox = nil
	var muted []bool
	for i := range out {
		muted = append(muted, a.muted(&out[i].Alert))
	}
	a.mu.Unlock()
	for i := range out {
		if err := a.o.Log.Write(out[i].event(muted[i])); err != nil {
			a.o.Logger.Error("alert not recorded", "alert", out[i].Name, "message", out[i].Message, "error", err)
		}
		if a.o.Count != nil {
			result := out[i].State
			if muted[i] {
				result = "muted"
			}
			a.o.Count(out[i].Name, result)
		}
		if !muted[i] && a.o.Notify != nil {
			a.o.Notify(out[i].Alert)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range out {
		a.save(x.rule, x.group)
		a.saveSeen(x)
	}
}

// event is the record of a notice.
func (a *Alert) event(muted bool) *Event {
	first, last := a.FirstSeen, a.LastSeen
	e := &Event{
		Kind: KindAlert, Phase: PhaseEvent, Alert: a.Name, Severity: a.Severity, Message: a.State + ": " + a.Message, Req: a.ID,
		Count: a.Count, FirstSeen: &first, LastSeen: &last,
	}
	if muted {
		e.Message += " (muted)"
	}
	if a.Event != nil {
		e.Sandbox, e.Host, e.Port, e.Reason, e.Rule = a.Event.Sandbox, a.Event.Host, a.Event.Port, effectiveReason(a.Event), a.Event.Rule
	}
	return e
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

// Active returns what is firing now.
func (a *Alerts) Active() []Alert {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []Alert
	for _, r := range a.rules {
		for _, g := range r.groups {
			if g.active {
				list = append(list, g.state.Alert)
			}
		}
	}
	slices.SortFunc(list, func(x, y Alert) int { return x.FirstSeen.Compare(y.FirstSeen) })
	return list
}

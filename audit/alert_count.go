package audit

import "time"

// alertGroup is one group of a rule.
type alertGroup struct {
	key    string
	group  map[string]string
	window *window
	used   time.Time // of the latest event
	state  savedAlert
	active bool
}

// maxGroups bounds the groups of one rule; more share one.
const maxGroups = 10_000

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
func (a *Alerts) Observe(e *Event) { a.observe(e, nil, false) }

// observe is Observe of what the log of Open has before a place; with prime it
// only fills the windows.
func (a *Alerts) observe(e *Event, at *place, prime bool) {
	if a.take(e, at, prime) > 0 {
		a.tell()
	}
}

// take is observe without telling: it returns how many notices wait for that.
func (a *Alerts) take(e *Event, at *place, prime bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := a.ends.add(e)
	for _, r := range a.rules {
		if r.matches(e) {
			a.count(r, e, r.weight(e, told), prime)
		}
	}
	if at != nil {
		a.reach(*at)
	}
	return len(a.outbox)
}

// count counts e as so many for r, and fires if that is enough. Called with mu
// held.
func (a *Alerts) count(r *ruleState, e *Event, weight uint64, prime bool) {
	if weight == 0 || r.first && (prime || !a.isFirst(r, e)) {
		return
	}
	g := r.groupFor(e)
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
		a.mark(r, g)
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
		a.mark(r, g)
		return
	}
	s.Alert.State = Resolved
	a.notice(r, g)
	g.active, g.state = false, savedAlert{}
	g.window.reset()
}

package audit

import (
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
	quiet  *quiet  // of the log of Open, if this process writes it
	dir    string

	telling sync.Mutex // held by who tells and saves; before mu

	mu     sync.Mutex
	rules  []*ruleState
	judge  *judge // of rules
	ends   connEnds
	fixed  []Mute // of the policy
	mutes  []Mute // of Mute
	outbox []told // told as soon as mu is free

	at      place                  // up to here the log of Open is counted
	moved   bool                   // at has not been saved
	unsaved map[string]*alertGroup // whose state has not, by key
	unseen  map[string][]byte      // first uses that have not

	usages map[string]struct{} // sandboxes and hosts that are known to the rules about what is first
	usage  []byte              // one of them; scratch
}

// ruleState is a rule and its groups.
type ruleState struct {
	AlertRule
	groups map[string]*alertGroup
	seen   map[string]bool // of a rule about what is first: what is not; nil: not read yet
}

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
	a := &Alerts{o: o, fixed: slices.Clone(o.Mutes), unsaved: make(map[string]*alertGroup), unseen: make(map[string][]byte)}
	var err error
	if a.rules, err = ruleStates(o.Rules); err != nil {
		return nil, err
	}
	a.judge = newJudge(a.rules)
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
	a.usages, a.judge = nil, newJudge(next)
	if a.quiet != nil {
		a.quiet.ask(a.judge)
	}
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
		z.may, z.mayEvent, z.match, z.value = nil, nil, nil, nil // the same in rules of one name that are built in
	}
	return (r.match == nil) == (old.match == nil) && reflect.DeepEqual(x, y)
}

// Names returns the names of the rules, in order.
func (a *Alerts) Names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, r := range a.rules {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out
}

// Unknown returns those of globs that match the name of no rule.
func (a *Alerts) Unknown(globs []string) []string {
	names := a.Names()
	var out []string
	for _, g := range globs {
		if !slices.ContainsFunc(names, func(name string) bool { return anyGlob([]string{g}, name) }) {
			out = append(out, g)
		}
	}
	return out
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

package audit

import (
	"fmt"
	"strings"
	"time"
)

// told is a notice on its way, and whose it is.
type told struct {
	Alert
	rule  *ruleState
	group *alertGroup
}

// notice puts a notice of g into the outbox. The group is saved when the notice
// is on its way. Called with mu held.
func (a *Alerts) notice(r *ruleState, g *alertGroup) {
	s := &g.state
	s.Alert.Message = s.Alert.message(&r.AlertRule)
	s.Told = a.o.Now()
	a.outbox = append(a.outbox, told{s.Alert, r, g})
	s.Alert.New, s.Quiet = 0, 0
	a.mark(r, g)
}

// tell writes and sends what is in the outbox, until it is empty, and saves.
func (a *Alerts) tell() {
	a.telling.Lock()
	defer a.telling.Unlock()
	for {
		a.mu.Lock()
		out := a.outbox
		a.outbox = nil
		if len(out) == 0 {
			a.save()
			a.mu.Unlock()
			return
		}
		var muted []bool
		for i := range out {
			muted = append(muted, a.muted(&out[i].Alert))
			a.markSeen(out[i])
		}
		a.mu.Unlock()
		for i := range out {
			a.send(&out[i].Alert, muted[i])
		}
	}
}

// send writes one notice and hands it on.
func (a *Alerts) send(x *Alert, muted bool) {
	if err := a.o.Log.Write(x.event(muted)); err != nil {
		a.o.Logger.Error("alert not recorded", "alert", x.Name, "message", x.Message, "error", err)
	}
	if a.o.Count != nil {
		result := x.State
		if muted {
			result = "muted"
		}
		a.o.Count(x.Name, result)
	}
	if !muted && a.o.Notify != nil {
		a.o.Notify(*x)
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
		e.Sandbox, e.Reason = a.Event.Sandbox, effectiveReason(a.Event)
		if !a.Event.Various() {
			e.Host, e.Port, e.Rule = a.Event.Host, a.Event.Port, a.Event.Rule
		}
	}
	return e
}

// message is the one line that tells of the alert.
func (a *Alert) message(r *AlertRule) string {
	var b strings.Builder
	e := a.Event
	reason := effectiveReason(e)
	if reason == "" {
		reason = string(e.Kind)
	}
	b.WriteString(Escape(reason, 64))
	if s := sandboxOf(e); s != "" {
		b.WriteString(" by sandbox " + Escape(s, 64))
	}
	if t := target(e); e.Various() {
		b.WriteString(" to different targets")
	} else if t != "-" {
		b.WriteString(" to " + Escape(strings.ReplaceAll(t, `\\`, `\`), 200))
	}
	switch {
	case a.State == Resolved:
		fmt.Fprintf(&b, "; quiet since %s, %d in all", a.LastSeen.UTC().Format(time.RFC3339), a.Count)
	case r.Sum != "":
		fmt.Fprintf(&b, "; %d bytes within %s (limit %d)", a.New, r.Window, r.Threshold)
	case r.Distinct != "":
		fmt.Fprintf(&b, "; %d or more different values of %s within %s", r.Threshold, r.Distinct, r.Window)
	case a.New > 1:
		fmt.Fprintf(&b, "; %d times", a.New)
	}
	return b.String()
}

package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
)

// receiver is a sink that keeps what it gets, and refuses while it is down.
type receiver struct {
	mu   sync.Mutex
	down bool
	got  []audit.Alert
}

func (r *receiver) Send(_ context.Context, a audit.Alert) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return errors.New("down")
	}
	r.got = append(r.got, a)
	return nil
}

func (r *receiver) names() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.got {
		out = append(out, a.Name+" "+a.State)
	}
	return out
}

// place is a log with its state, and alerting on it that can be started anew.
type place struct {
	*alerting
	counts sync.Map
}

func openPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	state, err := audit.OpenState(filepath.Join(dir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "audit"), State: state})
	if err != nil {
		t.Fatal(err)
	}
	folder, err := audit.NewFolder(audit.FolderOptions{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), state.Close()); err != nil {
			t.Error(err)
		}
	})
	p := &place{}
	p.alerting = &alerting{state: state, log: l, folder: folder, dir: filepath.Join(dir, "audit"), logger: hclog.NewNullLogger(), grace: time.Minute,
		count: func(alert, result string) { p.counts.Store(alert+" "+result, true) }}
	return p
}

// again is what a new process makes of the place.
func (p *place) again(t *testing.T) {
	t.Helper()
	old := p.alerting
	if err := old.close(); err != nil {
		t.Fatal(err)
	}
	p.alerting = &alerting{state: old.state, log: old.log, folder: old.folder, dir: old.dir, logger: old.logger, grace: old.grace, count: old.count}
}

func (p *place) deny(t *testing.T, host string) {
	t.Helper()
	err := p.log.Write(&audit.Event{Kind: audit.KindHTTP, Phase: audit.PhaseDecision, Verdict: "deny", Reason: "host_not_allowed", Host: host, Sandbox: &audit.Sandbox{Name: "ci", ID: "1"}})
	if err != nil {
		t.Fatal(err)
	}
}

func setupOf(r *receiver, rules ...audit.AlertRule) alertSetup {
	return alertSetup{rules: rules, sinks: map[string][]namedSink{"ops": {{"ops/1/test", r}}}}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestAlertingDeliversAndCounts(t *testing.T) {
	p, r := openPlace(t), &receiver{down: true}
	rule := audit.AlertRule{Name: "denied", Verdict: "deny", Per: []string{"host"}, Notify: []string{"ops"}}
	if err := p.swap(setupOf(r, rule)); err != nil {
		t.Fatal(err)
	}
	p.deny(t, "a.test")
	has := func(what string) func() bool {
		return func() bool { _, ok := p.counts.Load(what); return ok }
	}
	eventually(t, "a failed delivery", has("denied failed"))
	r.mu.Lock()
	r.down = false
	r.mu.Unlock()
	eventually(t, "a delivery", has("denied sent"))
	if !has("denied firing")() {
		t.Error("the notice was not counted")
	}
	// What a run wrote last is told before it ends.
	p.deny(t, "b.test")
	p.again(t)
	if got := r.names(); len(got) != 2 {
		t.Errorf("received %v", got)
	}
	var undelivered int
	for e, err := range audit.Read(t.Context(), []string{p.dir}, audit.Filter{Kind: string(audit.KindAudit)}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Note != nil && e.Note.Action == audit.ActionUndelivered {
			undelivered++
		}
	}
	if undelivered != 1 {
		t.Errorf("%d records of a failed delivery", undelivered)
	}
}

// TestAlertingReload: a reload puts other rules and sinks in force, and what
// waits goes to the sink that now has the name.
func TestAlertingReload(t *testing.T) {
	p, broken, works := openPlace(t), &receiver{down: true}, &receiver{}
	rule := audit.AlertRule{Name: "denied", Verdict: "deny", Per: []string{"host"}, Notify: []string{"ops"}}
	if err := p.swap(setupOf(broken, rule)); err != nil {
		t.Fatal(err)
	}
	p.deny(t, "a.test")
	eventually(t, "a failed delivery", func() bool { _, ok := p.counts.Load("denied failed"); return ok })
	if err := p.swap(alertSetup{}); err != nil { // the sink is gone
		t.Fatal(err)
	}
	p.deny(t, "b.test") // nobody listens
	if err := p.swap(setupOf(works, rule)); err != nil {
		t.Fatal(err)
	}
	p.deny(t, "c.test")
	eventually(t, "what waited, and what came after", func() bool { return len(works.names()) >= 2 })
	p.again(t)
}

// TestAlertingStateOverRestarts: what fires goes on after a restart, and what
// was written while nobody ran is told.
func TestAlertingStateOverRestarts(t *testing.T) {
	p, r := openPlace(t), &receiver{}
	rule := audit.AlertRule{Name: "denied", Verdict: "deny", Per: []string{"host"}, Notify: []string{"ops"}}
	for _, host := range []string{"a.test", "b.test", "c.test"} {
		if err := p.swap(setupOf(r, rule)); err != nil {
			t.Fatal(err)
		}
		p.deny(t, host)
		p.again(t)
		p.deny(t, host) // in between: it counts, and is not told again
	}
	if got := r.names(); len(got) != 3 {
		t.Errorf("received %v", got)
	}
	if err := p.swap(setupOf(r, rule)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the count of what came in between", func() bool {
		n := 0
		for _, a := range p.rules().Active() {
			n += int(a.Count)
		}
		return n == 6
	})
	p.again(t)
}

// TestAlertTestHasTheSeverityOfTheAlert: a notice of alert test is as severe as
// a real one.
func TestAlertTestHasTheSeverityOfTheAlert(t *testing.T) {
	for severity, want := range map[audit.Severity]audit.Severity{"": audit.High, audit.Low: audit.Low} {
		r := &receiver{}
		if err := testAlert(t.Context(), setupOf(r, audit.AlertRule{Name: "denied", Severity: severity, Notify: []string{"ops"}}), "denied"); err != nil {
			t.Fatal(err)
		}
		if len(r.got) != 1 || r.got[0].Severity != want {
			t.Errorf("severity %q: %+v", severity, r.got)
		}
	}
}

// TestAlertingSaysWhyANoticeWaits: while a delivery fails its error is there to
// be seen, and the end says that the notice is kept.
func TestAlertingSaysWhyANoticeWaits(t *testing.T) {
	p, r := openPlace(t), &receiver{down: true}
	var out lockedBuffer
	p.logger, p.grace = hclog.New(&hclog.LoggerOptions{Output: &out}), 0
	if err := p.swap(setupOf(r, audit.AlertRule{Name: "denied", Verdict: "deny", Notify: []string{"ops"}})); err != nil {
		t.Fatal(err)
	}
	p.deny(t, "a.test")
	eventually(t, "the error of the sink", func() bool {
		s := p.sinks()
		return len(s) == 1 && s[0].Waiting == 1 && s[0].LastError == "down"
	})
	if got := p.rules().Unknown([]string{"den*", "denied", "nosuch"}); len(got) != 1 || got[0] != "nosuch" {
		t.Errorf("unknown %q", got)
	}
	p.again(t)
	if !strings.Contains(out.String(), "they are kept, and delivered at the next start") {
		t.Errorf("log: %s", out.String())
	}
	r.mu.Lock()
	r.down = false
	r.mu.Unlock()
	if err := p.swap(setupOf(r)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "delivery after the start", func() bool { return len(r.names()) > 0 })
	p.again(t)
}

func TestMuteMessage(t *testing.T) {
	m := audit.Mute{Alerts: []string{"denied"}, Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if got := muteMessage(m); got != "muted: alerts denied until 2026-01-02T03:04:05Z" {
		t.Error(got)
	}
	m.Why = "load"
	if got := muteMessage(m); got != "muted: alerts denied until 2026-01-02T03:04:05Z: load" {
		t.Error(got)
	}
}

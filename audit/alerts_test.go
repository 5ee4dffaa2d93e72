package audit

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// bench is a rule engine with a clock, a log in memory and a list of notices.
type bench struct {
	*Alerts
	clock   *clock
	log     *memory
	state   *State
	mu      sync.Mutex
	notices []string
}

func newBench(t *testing.T, o AlertOptions) *bench {
	t.Helper()
	state, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { state.Close() })
	b := &bench{clock: newClock(), log: &memory{}, state: state}
	b.start(t, o)
	return b
}

// start begins the engine (again) with what the state has.
func (b *bench) start(t *testing.T, o AlertOptions) {
	t.Helper()
	o.State, o.Log, o.Now = b.state, b.log, b.clock.Now
	o.Notify = func(a Alert) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.notices = append(b.notices, fmt.Sprintf("%s %s %d/%d", a.Name, a.State, a.New, a.Count))
	}
	var err error
	if b.Alerts, err = NewAlerts(o); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) observe1(e *Event) {
	e.Time = b.clock.Now()
	b.Observe(e)
}

// told returns the notices since the last call.
func (b *bench) told() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := strings.Join(b.notices, ", ")
	b.notices = nil
	return s
}

func (b *bench) wait(d time.Duration) {
	for end := d; end > 0; end -= 30 * time.Second {
		b.clock.step(min(end, 30*time.Second))
		b.Tick()
	}
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: told %q, want %q", what, got, want)
	}
}

func leak() *Event {
	e := denial("pypi.org")
	e.Kind, e.Reason, e.Severity = KindHTTP, "placeholder_leak", Critical
	return e
}

var exfiltration = AlertRule{Name: "exfiltration", Reasons: []string{"placeholder_leak", "spoofed_source"}, Severity: Critical, Notify: []string{"pager"}}

func TestAlertFirstAtOnceThenSummariesThenResolved(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	b.observe1(denial("a.test"))
	expect(t, "another reason", b.told(), "")
	b.observe1(leak())
	expect(t, "first", b.told(), "exfiltration firing 1/1")
	for range 5 {
		b.observe1(leak())
	}
	expect(t, "repeats", b.told(), "")
	b.wait(11 * time.Minute)
	expect(t, "interval", b.told(), "exfiltration firing 5/6")
	b.wait(15 * time.Minute)
	expect(t, "one quiet interval", b.told(), "")
	b.observe1(leak())
	b.wait(6 * time.Minute)
	expect(t, "again", b.told(), "exfiltration firing 1/7")
	b.wait(21 * time.Minute)
	expect(t, "two quiet intervals", b.told(), "exfiltration resolved 0/7")
	b.wait(time.Hour)
	expect(t, "over", b.told(), "")
	b.observe1(leak())
	expect(t, "a new one", b.told(), "exfiltration firing 1/1")
	e := b.log.events[0]
	if e.Kind != KindAlert || e.Alert != "exfiltration" || e.Severity != Critical || e.Sandbox.Name != "ci" || !strings.Contains(e.Message, "placeholder_leak by sandbox ci to pypi.org") {
		t.Errorf("record %+v", e)
	}
	if len(b.log.events) != 5 {
		t.Errorf("%d records of 5 notices", len(b.log.events))
	}
}

func TestAlertThresholdWindowPerAndDistinct(t *testing.T) {
	burst := AlertRule{Name: "burst", Verdict: "deny", Threshold: 20, Window: time.Minute, Per: []string{"sandbox"}}
	scan := AlertRule{Name: "scan", Verdict: "deny", Threshold: 5, Window: time.Minute, Per: []string{"sandbox"}, Distinct: "host"}
	tests := map[string]struct {
		rule AlertRule
		play func(b *bench)
		want string
	}{
		"too few": {burst, func(b *bench) {
			for range 19 {
				b.observe1(denial("a.test"))
			}
		}, ""},
		"enough": {burst, func(b *bench) {
			for range 20 {
				b.observe1(denial("a.test"))
			}
		}, "burst firing 20/20"},
		"too slow": {burst, func(b *bench) {
			for range 40 {
				b.observe1(denial("a.test"))
				b.clock.step(4 * time.Second)
			}
		}, ""},
		"folded": {burst, func(b *bench) {
			e := denial("a.test")
			e.Count = 500
			b.observe1(e)
		}, "burst firing 500/500"},
		"of different sandboxes": {burst, func(b *bench) {
			for i := range 38 {
				e := denial("a.test")
				e.Sandbox = &Sandbox{Name: fmt.Sprint("s", i%2)}
				b.observe1(e)
			}
		}, ""},
		"one host": {scan, func(b *bench) {
			for range 100 {
				b.observe1(denial("a.test"))
			}
		}, ""},
		"five hosts": {scan, func(b *bench) {
			for i := range 6 {
				b.observe1(denial(fmt.Sprintf("h%d.test", i)))
			}
		}, "scan firing 5/5"},
		"five hosts in a long time": {scan, func(b *bench) {
			for i := range 20 {
				b.observe1(denial(fmt.Sprintf("h%d.test", i)))
				b.clock.step(16 * time.Second)
			}
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, AlertOptions{Rules: []AlertRule{test.rule}})
			test.play(b)
			expect(t, name, b.told(), test.want)
		})
	}
}

func TestAlertNamedByAPolicyRule(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: []AlertRule{{Name: "page"}, {Name: "other"}}})
	e := denial("tunnel.test")
	e.Alert = "page"
	b.observe1(e)
	expect(t, "rule that names the alert", b.told(), "page firing 1/1")
}

func TestAlertMutes(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	if _, err := b.Mute(Mute{Alerts: []string{"other", "exfil*"}, Sandboxes: []string{"ci"}, Until: b.clock.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mute(Mute{Until: b.clock.Now()}); err == nil {
		t.Error("a mute that is over was taken")
	}
	b.start(t, AlertOptions{Rules: []AlertRule{exfiltration}}) // it survives
	b.observe1(leak())
	expect(t, "muted", b.told(), "")
	if len(b.log.events) != 1 || !strings.Contains(b.log.events[0].Message, "(muted)") {
		t.Errorf("records %+v", b.log.events)
	}
	b.wait(61 * time.Minute)
	b.told()
	b.observe1(leak())
	expect(t, "no longer muted", b.told(), "exfiltration firing 1/1")
}

func TestAlertStateSurvivesARestart(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	b.observe1(leak())
	b.told()
	b.start(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	b.observe1(leak())
	expect(t, "not told a second time", b.told(), "")
	if len(b.Active()) != 1 {
		t.Errorf("active %+v", b.Active())
	}
	b.wait(11 * time.Minute)
	expect(t, "interval", b.told(), "exfiltration firing 1/2")
	b.start(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	b.wait(25 * time.Minute)
	expect(t, "resolved", b.told(), "exfiltration resolved 0/2")
	b.observe1(leak())
	b.start(t, AlertOptions{}) // the rule is gone
	b.start(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	if len(b.Active()) != 0 {
		t.Errorf("active %+v after the rule was gone", b.Active())
	}
}

func TestDetectors(t *testing.T) {
	question := func(name string) *Event {
		e := denial(name)
		e.Verdict = "allow"
		return e
	}
	random := rand.New(rand.NewPCG(1, 2))
	secret := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return hex.EncodeToString(b)
	}
	tests := map[string]struct {
		play func(b *bench)
		want string
	}{
		"tunnel by long labels": {func(b *bench) {
			for range 10 {
				b.observe1(question(secret(30) + ".exfil.test"))
			}
		}, "builtin/dns-tunnel firing 10/10"},
		"tunnel by entropy": {func(b *bench) {
			for range 10 {
				b.observe1(question(secret(16) + ".exfil.test"))
			}
		}, "builtin/dns-tunnel firing 10/10"},
		"tunnel by labels": {func(b *bench) {
			for i := range 10 {
				b.observe1(question(fmt.Sprintf("aaaa.bbbb.aaaa.bbbb.aaaa.bbb%d.exfil.test", i)))
			}
		}, "builtin/dns-tunnel firing 10/10"},
		"ordinary names": {func(b *bench) {
			for i := range 100 {
				b.observe1(question(fmt.Sprintf("cdn-%d.assets.static.example.test", i)))
				b.observe1(question("registry.npmjs.test"))
				b.observe1(question("storage-us-west-2.amazonaws.test"))
			}
		}, ""},
		"one odd name often": {func(b *bench) {
			name := secret(30) + ".cdn.test"
			for range 100 {
				b.observe1(question(name))
			}
		}, ""},
		"burst of hosts": {func(b *bench) {
			for i := range 20 {
				b.observe1(denial(fmt.Sprintf("h%d.test", i)))
			}
		}, "builtin/burst firing 20/20"},
		"first use": {func(b *bench) {
			for _, host := range []string{"a.w.test", "a.w.test", "b.w.test"} {
				b.observe1(&Event{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Host: host, Sandbox: &Sandbox{Name: "ci"}, Rule: &Rule{ID: `sandbox "ci" allow "*.w.test"`}})
				b.observe1(&Event{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Host: "exact.test", Sandbox: &Sandbox{Name: "ci"}, Rule: &Rule{ID: `sandbox "ci" allow "exact.test"`}})
			}
		}, "builtin/first-use firing 1/1, builtin/first-use firing 1/1"},
		"byte budget": {func(b *bench) {
			for range 10 {
				b.observe1(&Event{Kind: KindHTTP, Phase: PhaseEnd, Host: "a.test", Sandbox: &Sandbox{Name: "ci"}, Bytes: &Bytes{Sent: 100, Received: 1 << 30}})
			}
		}, "builtin/byte-budget firing 1000/1000"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, AlertOptions{Rules: Detectors(nil, 1000)})
			test.play(b)
			expect(t, name, b.told(), test.want)
			b.start(t, AlertOptions{Rules: Detectors(nil, 1000)})
			if name == "first use" {
				test.play(b)
				expect(t, "after a restart", b.told(), "")
			}
		})
	}
}

func TestAlertRuleRefusals(t *testing.T) {
	state, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for name, rules := range map[string][]AlertRule{
		"no name":       {{}},
		"twice":         {{Name: "a"}, {Name: "a"}},
		"per":           {{Name: "a", Per: []string{"colour"}}},
		"distinct":      {{Name: "a", Distinct: "colour"}},
		"sum":           {{Name: "a", Sum: "requests"}},
		"sum, distinct": {{Name: "a", Sum: "bytes_sent", Distinct: "host"}},
		"verdict":       {{Name: "a", Verdict: "block"}},
		"window":        {{Name: "a", Window: -1}},
		"severity":      {{Name: "a", Severity: "bad"}},
		"too many":      {{Name: "a", Distinct: "host", Threshold: 1 << 30}},
	} {
		if _, err := NewAlerts(AlertOptions{State: state, Log: &memory{}, Rules: rules}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := NewAlerts(AlertOptions{}); err == nil {
		t.Error("no state: taken")
	}
}

func TestAlertMemoryIsBounded(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: []AlertRule{{Name: "a", Verdict: "deny", Threshold: 1 << 40, Per: []string{"host"}}}})
	for i := range maxGroups + 5000 {
		b.observe1(denial(fmt.Sprintf("h%d.test", i)))
	}
	if n := len(b.rules[0].groups); n != maxGroups+1 {
		t.Errorf("%d groups", n)
	}
	b.wait(3 * time.Minute)
	if n := len(b.rules[0].groups); n != 0 {
		t.Errorf("%d groups after the window", n)
	}
}

func TestAlertRunReadsEveryRecordOnceAcrossRestarts(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	base := t.TempDir()
	state, err := OpenState(filepath.Join(base, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	dir := filepath.Join(base, "audit")
	l, err := Open(Options{Dir: dir, SegmentBytes: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write(t, l, "before.test") // of before the rules: counted, but not told
	rules := []AlertRule{
		{Name: "each", Verdict: "deny", Per: []string{"host"}},
		{Name: "six", Verdict: "deny", Threshold: 6, Window: time.Hour},
	}
	var mu sync.Mutex
	told := map[string]int{}
	run := func(during func()) {
		a, err := NewAlerts(AlertOptions{Rules: rules, State: state, Log: l, Notify: func(a Alert) {
			mu.Lock()
			defer mu.Unlock()
			told[a.Name+" "+a.Group["host"]]++
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		if err := a.Open(ctx, dir); err != nil {
			t.Fatal(err)
		}
		go func() { done <- a.Run(ctx) }()
		during()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	count := func(name string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return told[name] > 0
		}
	}
	run(func() {
		for i := range 3 {
			write(t, l, fmt.Sprintf("h%d.test", i))
		}
		eventually(t, "first", count("each h2.test"))
	})
	write(t, l, "h3.test") // nobody looks
	run(func() {
		eventually(t, "what was missed", count("each h3.test"))
		if count("six ")() {
			t.Error("six told after four")
		}
		write(t, l, "h4.test")
		eventually(t, "a count over a restart", count("six "))
	})
	run(func() { write(t, l, "h5.test") }) // told though Run ends at once
	want := map[string]int{"each h5.test": 1, "each h0.test": 1, "each h1.test": 1, "each h2.test": 1, "each h3.test": 1, "each h4.test": 1, "six ": 1}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

func TestAlertsReplace(t *testing.T) {
	burst := AlertRule{Name: "burst", Verdict: "deny", Threshold: 4, Per: []string{"sandbox"}, Notify: []string{"ops"}}
	b := newBench(t, AlertOptions{Rules: []AlertRule{burst, exfiltration}})
	b.observe1(leak())
	b.observe1(denial("a.test"))
	b.observe1(denial("b.test"))
	expect(t, "before", b.told(), "exfiltration firing 1/1")
	changed := burst
	changed.Severity, changed.Notify = Critical, []string{"pager"}
	if err := b.Replace([]AlertRule{changed}, nil); err != nil {
		t.Fatal(err)
	}
	expect(t, "a rule that is gone", b.told(), "exfiltration resolved 0/1")
	b.observe1(denial("c.test")) // the leak counted as well
	expect(t, "a window goes on", b.told(), "burst firing 4/4")
	if a := b.Active(); len(a) != 1 || a[0].Severity != Critical || a[0].Notify[0] != "pager" {
		t.Errorf("active %+v", a)
	}
	changed.Reasons = []string{"host_denied"} // another count
	if err := b.Replace([]AlertRule{changed}, []Mute{{Hosts: []string{"*.test"}, Until: b.clock.Now().Add(time.Hour)}}); err != nil {
		t.Fatal(err)
	}
	expect(t, "a rule that counts other things", b.told(), "")
	if err := b.Replace([]AlertRule{{Name: "x"}, {Name: "x"}}, nil); err == nil || len(b.rules) != 1 {
		t.Errorf("rules with an error: %v, %d rules", err, len(b.rules))
	}
	b.start(t, AlertOptions{Rules: []AlertRule{burst, exfiltration}})
	if len(b.Active()) != 0 {
		t.Errorf("active after a restart: %+v", b.Active())
	}
}

func TestAlertsReplaceKeepsDetectors(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: Detectors(nil, 0)})
	for i := range 10 {
		b.observe1(denial(fmt.Sprintf("h%d.test", i)))
	}
	if err := b.Replace(Detectors([]string{"ops"}, 0), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		b.observe1(denial(fmt.Sprintf("k%d.test", i)))
	}
	expect(t, "twenty hosts over a reload", b.told(), "builtin/burst firing 20/20")
}

func TestAlertUnmute(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	id, err := b.Mute(Mute{Reasons: []string{leak().Reason}, Until: b.clock.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Mutes()) != 1 {
		t.Errorf("mutes %+v", b.Mutes())
	}
	b.observe1(leak())
	expect(t, "muted", b.told(), "")
	if ok, err := b.Unmute(id); !ok || err != nil {
		t.Errorf("unmute: %v %v", ok, err)
	}
	if ok, err := b.Unmute(id); ok || err != nil {
		t.Errorf("unmute again: %v %v", ok, err)
	}
	b.start(t, AlertOptions{Rules: []AlertRule{exfiltration}})
	b.observe1(leak())
	b.wait(11 * time.Minute)
	expect(t, "no longer muted", b.told(), "exfiltration firing 1/2")
}

func TestFirstUseIsBounded(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: Detectors(nil, 0)})
	r := b.rules[2]
	r.seen = map[string]bool{}
	for i := range maxGroups - 1 {
		r.seen[fmt.Sprint(i)] = true
	}
	use := func(host string) *Event {
		return &Event{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Host: host, Sandbox: &Sandbox{Name: "ci"}, Rule: &Rule{ID: `sandbox "ci" allow "*.a.test"`}}
	}
	b.observe1(use("1.a.test"))
	b.observe1(use("2.a.test"))
	expect(t, "the last new host and one more", b.told(), "builtin/first-use firing 1/1")
}

// TestKnownUsesAreNotReadAgain: what is first is told although the lines of
// known uses are passed over.
func TestKnownUsesAreNotReadAgain(t *testing.T) {
	a := detecting(t)
	event := func(sandbox, host string) *Event {
		return &Event{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Host: host, Sandbox: &Sandbox{Name: sandbox, ID: "s-" + sandbox},
			Rule: &Rule{ID: `org allow "*.test"`, Action: "allow"}}
	}
	line := func(sandbox, host string) []byte {
		e := event(sandbox, host)
		return append(appendHead(nil, e), appendBody(nil, e)...)
	}
	for _, use := range []struct {
		sandbox, host string
		read          bool
	}{{"a", "x.test", true}, {"a", "x.test", false}, {"b", "x.test", true}, {"a", "y.test", true}, {"b", "x.test", false}} {
		l := line(use.sandbox, use.host)
		if got := a.mayMatch(l); got != use.read {
			t.Errorf("%+v: %s is read: %t", use, l, got)
		}
		if quiet := a.judge.quiet(event(use.sandbox, use.host)); quiet == use.read {
			t.Errorf("%+v: is quiet: %t", use, quiet)
		}
		a.remember(l, event(use.sandbox, use.host))
	}
	if err := a.Replace(Detectors(nil, 0), nil); err != nil {
		t.Fatal(err)
	}
	if !a.mayMatch(line("a", "x.test")) || a.judge.quiet(event("a", "x.test")) {
		t.Error("not read again for other rules")
	}
}

// TestWhatIsNoUseHidesNone: a sandbox may send what looks like a rule for many
// names to a host that a rule for that one host allows.
func TestWhatIsNoUseHidesNone(t *testing.T) {
	a := detecting(t)
	event := func(rule, path string) *Event {
		return &Event{Kind: KindHTTP, Phase: PhaseDecision, Verdict: "allow", Host: "x.test", Sandbox: &Sandbox{Name: "a", ID: "s-a"},
			Rule: &Rule{ID: rule, Action: "allow"}, HTTP: &HTTP{Method: "GET", Path: path}}
	}
	exact, wild := event(`org allow "x.test"`, `/"*`), event(`org allow "*.test"`, "/")
	line := func(e *Event) []byte { return append(appendHead(nil, e), appendBody(nil, e)...) }
	if l := line(exact); !bytes.Contains(l, []byte(`\"*`)) {
		t.Fatalf("%s", l)
	}
	a.remember(line(exact), exact)
	if !a.mayMatch(line(wild)) || a.judge.quiet(wild) {
		t.Error("the first use is hidden")
	}
}

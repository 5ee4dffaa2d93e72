package audit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// elsewhere is the log of a process that reads what another writes.
type elsewhere struct{}

func (elsewhere) Write(*Event) error        { return nil }
func (elsewhere) WriteAll([]*Event) []error { return nil }

// reading returns rules that read the log in dir line by line.
func reading(t *testing.T, dir string, rules []AlertRule) *Alerts {
	t.Helper()
	a, err := NewAlerts(AlertOptions{Rules: rules, State: openTestState(t), Log: elsewhere{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.cursor.close)
	return a
}

// counted is what rules have counted, by rule and group.
func counted(a *Alerts) map[string]uint64 {
	out := map[string]uint64{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rules {
		for key, g := range r.groups {
			out[fmt.Sprintf("%s %q active %v", r.Name, key, g.active)] = g.state.Alert.Count
		}
		for key := range r.seen {
			out[fmt.Sprintf("%s %q seen", r.Name, key)] = 1
		}
	}
	return out
}

// someRules are rules of all kinds of conditions.
func someRules(r *rand.Rand) []AlertRule {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	rules := Detectors(nil, 3000)
	rules[0].Threshold = 3
	rules = slices.DeleteFunc(rules, func(AlertRule) bool { return r.IntN(4) == 0 })
	for i := range r.IntN(4) {
		x := AlertRule{Name: fmt.Sprint("rule", i), Window: time.Hour, Threshold: uint64(1 + r.IntN(3))}
		for range 1 + r.IntN(2) {
			switch r.IntN(8) {
			case 0:
				x.Reasons = append(x.Reasons, pick("smuggling", "host_not_allowed", "rule_allow", "placeholder_leak"))
			case 1:
				x.Verdict = pick("allow", "deny")
			case 2:
				x.Kind = pick("dns", "http", "conn", "audit", "alert")
			case 3:
				x.Sandbox = pick("ci", "c*", "*")
			case 4:
				x.Host = pick("*.test", "h1.test", "*")
			case 5:
				x.AtLeast = Severity(pick("info", "medium", "high", "critical"))
			case 6:
				x.Sum = pick("bytes_sent", "bytes_received")
				x.Threshold = 2000
			default:
				x.Per = []string{pick("sandbox", "host", "reason", "rule")}
			}
		}
		if x.Sum == "" && r.IntN(3) == 0 {
			x.Distinct = pick("host", "sandbox", "rule")
		}
		rules = append(rules, x)
	}
	return rules
}

// someEvent is an event of any kind, as a gateway may write it.
func someEvent(r *rand.Rand) *Event {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	host := pick("h1.test", "H2.test", "h3.x.test", "", "é.test", "mzxw6ytboi4dqmrqgezdgnbvgy3tqojqmfrggzdf.h4.test")
	e := &Event{
		Kind: Kind(pick("dns", "http", "conn", "ws", "packet", "alert", "sandbox", "audit")), Phase: Phase(pick("decision", "end", "event")),
		Verdict: pick("", "allow", "deny"), Reason: pick("", "smuggling", "host_not_allowed", "rule_allow"),
		Severity: Severity(pick("", "info", "medium", "high", "critical")), Host: host, Message: pick("", "words", `"alert":"rule0"`),
	}
	if r.IntN(8) > 0 {
		e.Sandbox = &Sandbox{Name: pick("ci", "other", ""), ID: pick("01JB0000000000000000000000", "01JB0000000000000000000001")}
	}
	if r.IntN(6) == 0 {
		e.Alert = pick("rule0", "rule1", "builtin/first-use", "nobody")
	}
	if r.IntN(3) > 0 {
		e.Rule = &Rule{ID: pick(`sandbox "ci" allow "*.test"`, `sandbox "ci" allow "h1.test"`, `group "g" allow "*"`), Action: "allow", File: "a.hcl", Line: r.IntN(3)}
	}
	if r.IntN(5) == 0 {
		e.Would = &Would{Verdict: "deny", Reason: pick("smuggling", "placeholder_leak", "")}
	}
	if e.Kind == KindDNS {
		e.DNS = &DNS{QName: host, QType: "A", RCode: "NOERROR", Transport: "udp"}
	}
	if r.IntN(2) == 0 {
		e.Bytes = &Bytes{Sent: r.Int64N(1000), Received: r.Int64N(1000)}
		e.Conn = pick("01JB00000000000000000000C0", "01JB00000000000000000000C1", "01JB00000000000000000000C2", "")
	}
	if r.IntN(5) == 0 {
		at := time.Now()
		e.Count, e.FirstSeen, e.LastSeen = uint64(2+r.IntN(5)), &at, &at
		if r.IntN(2) == 0 {
			e.Message = variousMessage
		}
	}
	return e
}

// TestQuietCountsWhatIsWritten: rules of the process that writes count what
// rules count that read every line, whatever becomes of the log and the rules.
func TestQuietCountsWhatIsWritten(t *testing.T) {
	for seed := range uint64(24) {
		r := rand.New(rand.NewPCG(seed, 7))
		touched := seed%2 == 1 // by another hand
		rules := someRules(r)
		l, own := listening(t, Options{Dir: filepath.Join(t.TempDir(), "audit"), SegmentBytes: 8 << 10, Sync: SyncNever}, rules...)
		other := reading(t, l.o.Dir, rules)
		both := func() {
			l.flushLate()
			own.drain(t.Context(), own.cursor)
			other.drain(t.Context(), other.cursor)
		}
		for range 300 {
			switch n := r.IntN(100); {
			case n < 70:
				if e := someEvent(r); r.IntN(2) == 0 {
					_ = l.Later(e) // it is not refused
				} else if err := l.Write(e); err != nil {
					t.Fatal(err)
				}
			case n < 75:
				if errs := l.WriteAll([]*Event{someEvent(r), someEvent(r), someEvent(r)}); errs != nil {
					t.Fatal(errs)
				}
			case n < 85:
				both()
			case n < 94:
				own.drain(t.Context(), own.cursor)
			case n < 96:
				both()
				next := someRules(r)
				if err := errors.Join(own.Replace(next, nil), other.Replace(next, nil)); err != nil {
					t.Fatal(err)
				}
			case touched:
				addTo(t, l, someEvent(r))
			}
		}
		write(t, l, "last.test")
		both()
		had := counted(own)
		for what, n := range counted(other) {
			// Of first uses a rule that reads less remembers less to pass over.
			if had[what] < n || had[what] != n && !strings.HasPrefix(what, "builtin/first-use") {
				t.Errorf("seed %d: %s: %d counted, want %d", seed, what, had[what], n)
			}
		}
	}
}

// addTo writes a record to the open segment as another hand does.
func addTo(t *testing.T, l *Log, e *Event) {
	t.Helper()
	l.commitMu.Lock()
	defer l.commitMu.Unlock()
	line := append(l.appendPlace(nil, nil, time.Now(), l.end), appendBody(nil, e)...)
	f, err := os.OpenFile(l.path(l.seg.n), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(append(line, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

package audit

import (
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// detecting are the built-in rules alone.
func detecting(t *testing.T) *Alerts {
	t.Helper()
	state, err := OpenState(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	a, err := NewAlerts(AlertOptions{Rules: Detectors(nil, 0), State: state, Log: &memory{}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestOrdinaryNamesAreNotRead: the line of a question is decoded when its name
// may be of a tunnel, and only then, whatever bytes are in it.
func TestOrdinaryNamesAreNotRead(t *testing.T) {
	a := detecting(t)
	event := func(name string) *Event {
		return &Event{Kind: KindDNS, Phase: PhaseDecision, Verdict: "allow", Host: name, Sandbox: &Sandbox{Name: "a", ID: "s-a"},
			Rule: &Rule{ID: `org allow "a.test"`, Action: "allow"}, DNS: &DNS{QName: name, QType: "A"}}
	}
	line := func(name string) []byte {
		e := event(name)
		e.Schema = Schema
		return append(appendHead(nil, e), appendBody(nil, e)...)
	}
	for name, read := range map[string]bool{
		"api.test": false, "a.b.c.d.api.test": false, strings.Repeat("a", 40) + ".api.test": true,
		"a.b.c.d.e.f.0123456789abcdefgh.api.test": true, `","qname":"x`: true,
	} {
		if got := a.mayMatch(line(name)); got != read {
			t.Errorf("%q is read: %t", name, got)
		}
		if quiet := a.judge.quiet(event(name)); quiet == read {
			t.Errorf("%q is quiet: %t", name, quiet)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.StringMatching(`[a-z0-9]{1,45}`), rapid.String()), 1, 8).Draw(t, "labels"), ".")
		if tunnelShaped(name) && !a.mayMatch(line(name)) {
			t.Fatalf("%q is not read: %s", name, line(name))
		}
		written, err := DecodeLine(line(name))
		if err != nil {
			t.Fatal(err)
		}
		if tunnelShaped(written.DNS.QName) && a.judge.quiet(event(name)) {
			t.Fatalf("%q is quiet, written %q", name, written.DNS.QName)
		}
	})
}

// TestLinesThatMatchAreRead: no line is thrown out undecoded whose event a
// rule matches.
func TestLinesThatMatchAreRead(t *testing.T) {
	words := func(list ...string) *rapid.Generator[string] { return rapid.SampledFrom(list) }
	reason := words("", "rule_allow", "host_not_allowed", "smuggling")
	a := detecting(t)
	rapid.Check(t, func(t *rapid.T) {
		e := &Event{
			Kind: Kind(words("dns", "conn", "http", "audit").Draw(t, "kind")), Phase: Phase(words("decision", "end").Draw(t, "phase")),
			Verdict: words("", "allow", "deny").Draw(t, "verdict"), Reason: reason.Draw(t, "reason"),
			Host: words("a.test", `","reason":"smuggling`).Draw(t, "host"), Sandbox: &Sandbox{Name: "s", ID: "s-1"},
		}
		if r := reason.Draw(t, "spared"); r != "" {
			e.Would = &Would{Verdict: "deny", Reason: r}
		}
		if rapid.Bool().Draw(t, "counted") {
			e.Bytes = &Bytes{Sent: 1}
		}
		r := AlertRule{
			Name: "r", Verdict: words("", "allow", "deny").Draw(t, "rule's verdict"), Kind: words("", "dns", "http").Draw(t, "rule's kind"),
			Sum: words("", "bytes_sent").Draw(t, "sum"), Reasons: rapid.SliceOfN(reason, 0, 2).Draw(t, "reasons"),
		}
		if err := a.Replace([]AlertRule{r}, nil); err != nil {
			t.Fatal(err)
		}
		line := append(appendHead(nil, e), appendBody(nil, e)...)
		if r.matches(e) && !a.mayMatch(line) {
			t.Fatalf("not read: %s", line)
		}
		if (r.matches(e) || r.Sum != "" && r.Kind == "" && e.Bytes != nil) && a.judge.quiet(e) {
			t.Fatalf("quiet: %s", line)
		}
		if g := glanceAt(line); !g.known || string(g.kind) != string(e.Kind) || string(g.reason) != e.Reason {
			t.Fatalf("%+v of %s", g, line)
		}
	})
}

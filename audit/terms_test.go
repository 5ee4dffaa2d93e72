package audit

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// termsOf is what the index has of lines.
func termsOf(c *termCounts, lines ...[]byte) map[string]uint64 {
	for _, line := range lines {
		c.line(line)
	}
	c.settle()
	got := map[string]uint64{}
	for t, n := range c.counts {
		if n.n > 0 {
			got[t] = n.n
		}
		n.n = 0
	}
	return got
}

// wantTerms is the same by what a reader makes of the line.
func wantTerms(t *testing.T, line []byte) map[string]uint64 {
	t.Helper()
	e, err := DecodeLine(line)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{}
	add := func(dim byte, s string) {
		if s != "" {
			want[term(dim, s)]++
		}
	}
	add(dimKind, string(e.Kind))
	add(dimVerdict, e.Verdict)
	host := e.Host
	if host == "" && e.DNS != nil {
		host = e.DNS.QName
	}
	add(dimHost, strings.ToLower(host))
	reasons := []string{e.Reason}
	if e.Would != nil {
		reasons = append(reasons, e.Would.Reason)
	}
	for _, r := range reasons {
		add(dimReason, r)
	}
	if e.Sandbox != nil {
		for _, s := range []string{e.Sandbox.Name, e.Sandbox.ID} {
			add(dimSandbox, s)
			for _, r := range reasons {
				if s != "" && r != "" {
					add(dimSandboxReason, s+"\n"+r)
				}
			}
		}
	}
	if e.Alerting() {
		want[term(dimAlert, "")]++
	}
	return want
}

// TestTermsAreWhatReadersSee: a line's terms are those of its event, also when
// lines begin alike, and whatever stands in their values.
func TestTermsAreWhatReadersSee(t *testing.T) {
	change := func(f func(e *Event)) *Event { e := decision(); f(e); return e }
	events := []*Event{
		decision(), decision(), denial("a.test"), fullEvent(), {Kind: KindAudit, Phase: PhaseEvent},
		change(func(e *Event) {
			e.Phase, e.Verdict, e.Reason, e.Bytes, e.Error = PhaseEnd, "", "", &Bytes{}, &Error{Class: "reset"}
		}),
		change(func(e *Event) { e.Alert = "one" }),
		change(func(e *Event) { e.Alert, e.Secrets, e.Rule, e.DurationMS = "one", nil, nil, 3 }),
		change(func(e *Event) { e.Count, e.Secrets = 7, nil }),
		change(func(e *Event) { e.Severity = Critical }),
		change(func(e *Event) { e.Message = `,"src":{"ip":"x"},"host":"evil.test"` }),
		change(func(e *Event) { e.Sandbox.Labels = map[string]string{"src": "x", "host": "evil.test", `,"src":{`: "}"} }),
		change(func(e *Event) { e.Sandbox.Name = "other" }),
		change(func(e *Event) { e.Would = &Would{Verdict: "deny", Reason: "host_not_allowed"} }),
		change(func(e *Event) { e.Host, e.SNI = "", "sni.test" }),
		change(func(e *Event) { e.Host = "UPPER.Test" }),
		change(func(e *Event) { e.Host = "caf\u00e9\".test" }),
		change(func(e *Event) { e.Src, e.Dst = nil, nil }),
		change(func(e *Event) { e.HTTP.Path, e.Host = `/","alert":"x`, strings.Repeat("h", 300) }),
		change(func(e *Event) { e.Conn, e.Req, e.GatewayMS, e.DurationMS = "", "", 0.001, 0 }),
	}
	all, want := [][]byte{}, map[string]uint64{}
	for _, e := range events {
		e.Schema, e.Seq, e.ID, e.Instance = Schema, 1, NewID(), NewID()
		line := encode(e)
		one := wantTerms(t, line)
		if diff := cmp.Diff(one, termsOf(&termCounts{}, line)); diff != "" {
			t.Errorf("%s\n%s", line, diff)
		}
		all = append(all, line)
		for s, n := range one {
			want[s] += n
		}
	}
	var c termCounts
	for range 2 { // what is kept from one block to the next changes nothing
		if diff := cmp.Diff(want, termsOf(&c, all...)); diff != "" {
			t.Error(diff)
		}
	}
}

// FuzzTerms holds the same for hostile text in every place.
func FuzzTerms(f *testing.F) {
	f.Add("a.test", "ci", ",\"src\":{", "/p", "one", "text")
	f.Add("", "", "", "", "", "")
	f.Add(`","alert":"`, `,"host":"`, `}`, `"`, `\`, `{"kind":`)
	f.Fuzz(func(t *testing.T, host, name, label, path, alert, message string) {
		e := decision()
		e.Host, e.Alert, e.Message, e.HTTP.Path = host, alert, message, path
		e.Sandbox = &Sandbox{Name: name, ID: "1", Labels: map[string]string{label: label}}
		line := encode(e)
		want := wantTerms(t, line)
		var c termCounts
		if diff := cmp.Diff(want, termsOf(&c, line)); diff != "" {
			t.Fatalf("%s\n%s", line, diff)
		}
		if got := termsOf(&c, line, line); !maps.EqualFunc(got, want, func(a, b uint64) bool { return a == 2*b }) {
			t.Fatalf("%s twice: %v", line, got)
		}
	})
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"sallyport/audit"
)

// failingRecorder takes no record while it is broken.
type failingRecorder struct{ broken bool }

func (r *failingRecorder) Write(*audit.Event) error {
	if r.broken {
		return errors.New("no space left on device")
	}
	return nil
}

func (r *failingRecorder) WriteAll(es []*audit.Event) []error {
	if r.broken {
		return slices.Repeat([]error{r.Write(nil)}, len(es))
	}
	return nil
}

// counters are the counters of decisions, questions and secrets.
func counters(t *testing.T, m *metrics) (got []string) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !slices.Contains([]string{"sallyport_decisions_total", "sallyport_dns_queries_total", "sallyport_secret_uses_total"}, f.GetName()) {
			continue
		}
		for _, x := range f.Metric {
			labels := ""
			for _, l := range x.Label {
				labels += l.GetValue() + " "
			}
			got = append(got, fmt.Sprint(labels, x.GetCounter().GetValue()))
		}
	}
	slices.Sort(got)
	return got
}

// TestMetricsCountWhatWasAnswered: a decision that could not be written was
// refused, whatever it was; a packet was dropped for its own reason.
func TestMetricsCountWhatWasAnswered(t *testing.T) {
	play := []*audit.Event{
		{Kind: audit.KindHTTP, Verdict: "allow", Reason: "rule_allow", Secrets: []audit.SecretUse{{Name: "KEY", Action: "injected"}}},
		{Kind: audit.KindHTTP, Verdict: "deny", Reason: "placeholder_leak", Secrets: []audit.SecretUse{{Name: "KEY", Action: "withheld"}}},
		{Kind: audit.KindDNS, Verdict: "allow", Reason: "rule_allow", DNS: &audit.DNS{QType: "A", RCode: "NOERROR"}},
		{Kind: audit.KindDNS, Verdict: "deny", Reason: "protocol_error", DNS: &audit.DNS{QType: "A", RCode: "FORMERR"}},
		{Kind: audit.KindPacket, Verdict: "deny", Reason: "udp_blocked", Count: 3},
	}
	for broken, want := range map[bool][]string{
		false: {"A FORMERR 1", "A NOERROR 1", "dns protocol_error deny 1", "dns rule_allow allow 1", "http placeholder_leak deny 1",
			"http rule_allow allow 1", "injected KEY 1", "packet udp_blocked deny 3", "withheld KEY 1"},
		true: {"A FORMERR 1", "A REFUSED 1", "dns audit_unavailable deny 1", "dns protocol_error deny 1", "http audit_unavailable deny 2",
			"packet udp_blocked deny 3", "withheld KEY 1"},
	} {
		m, together := newMetrics(&failingRecorder{broken}), newMetrics(&failingRecorder{broken})
		for _, e := range play {
			e.Phase = audit.PhaseDecision
			if err := m.Write(e); (err != nil) != broken {
				t.Errorf("written: %v", err)
			}
		}
		if errs := together.WriteAll(play); (errs != nil) != broken {
			t.Errorf("written together: %v", errs)
		}
		for _, m := range []*metrics{m, together} {
			if got := counters(t, m); !slices.Equal(got, want) {
				t.Errorf("with a broken log %t: counted %q, want %q", broken, got, want)
			}
		}
	}
}

// TestOutcomesCountAllValues: values are counted by themselves, however many
// there are and whoever counts them first.
func TestOutcomesCountAllValues(t *testing.T) {
	m := newMetrics(&failingRecorder{})
	const reasons, times = 2*maxOutcomes + 3, 5
	var wg sync.WaitGroup
	for range times {
		wg.Go(func() {
			for i := range reasons {
				for _, kind := range []audit.Kind{audit.KindHTTP, audit.KindConn} {
					e := &audit.Event{Kind: kind, Phase: audit.PhaseDecision, Verdict: "deny", Reason: fmt.Sprint("reason", i)}
					if err := m.Write(e); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	var want []string
	for i := range reasons {
		want = append(want, fmt.Sprintf("http reason%d deny %d", i, times), fmt.Sprintf("conn reason%d deny %d", i, times))
	}
	slices.Sort(want)
	if got := counters(t, m); !slices.Equal(got, want) {
		t.Errorf("%d counters: %v", len(got), got)
	}
	if n := len(*m.decisions.known.Load()); n < maxOutcomes || n > maxOutcomes+times {
		t.Errorf("%d are looked through", n)
	}
	e := &audit.Event{Kind: audit.KindHTTP, Phase: audit.PhaseDecision, Verdict: "deny", Reason: "reason1"}
	if n := testing.AllocsPerRun(100, func() { m.decided(e, true) }); n > 0 {
		t.Errorf("%v allocations to count a decision", n)
	}
}

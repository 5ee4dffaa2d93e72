package main

import (
	"testing"

	"sallyport/audit"
)

// TestSuggestLeavesOutTheProbe: what the probe was refused is no wish of the
// sandbox's.
func TestSuggestLeavesOutTheProbe(t *testing.T) {
	denial := func(host, agent string) *audit.Event {
		return &audit.Event{Kind: audit.KindHTTP, Phase: audit.PhaseDecision, Verdict: "deny", Reason: "host_not_allowed", Host: host, Port: 443,
			Sandbox: &audit.Sandbox{Name: "ci"}, HTTP: &audit.HTTP{Method: "GET", Path: "/", UserAgent: agent}}
	}
	for _, x := range []struct {
		host, agent string
		counts      bool
	}{
		{"wanted.test", "curl/8", true}, {"notprobe.sallyport.test", "", true}, {probeMeta, "", true},
		{probeName, "", false}, {"c2vjcmv0-1." + probeName, "", false}, {probeAddr4, "", false}, {probeAddr6, "", false}, {"api.test", probeAgent, false},
	} {
		if _, ok := blockedBy(denial(x.host, x.agent)); ok != x.counts {
			t.Errorf("%s by %q counts: %v", x.host, x.agent, ok)
		}
	}
}

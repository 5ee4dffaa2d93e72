//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"

	"sallyport/test/bench/peers"
	"sallyport/test/bench/report"
)

// TestTablesAgree: every peer that a workload or a target names can be started,
// and every target is of a workload and figure that are measured.
func TestTablesAgree(t *testing.T) {
	known := map[string]bool{"sallyport-run": true, "sallyport-interface": true, "sallyport-passthrough": true,
		"sallyport-1-sandbox": true, "sallyport-1000-sandboxes": true}
	for _, p := range peers.Others() {
		known[p.Name] = true
	}
	for _, g := range gateways() {
		known[g.Name+"-netns"] = true
	}
	b := &bench{}
	measured := map[string][]string{}
	metrics := map[string][]report.Metric{}
	for _, w := range workloads() {
		measured[w.id] = b.wanted(w)
		metrics[w.id] = append(w.metrics, w.summary)
		for _, p := range append(b.wanted(w), w.to...) {
			if !known[p] {
				t.Errorf("%s: nobody starts the peer %s", w.id, p)
			}
		}
		if w.job == nil && w.special == nil {
			t.Errorf("%s has nothing to do", w.id)
		}
	}
	for _, x := range report.Targets() {
		peers := measured[x.Workload]
		if len(peers) == 0 || !slices.Contains(metrics[x.Workload], x.Metric) {
			t.Errorf("%s %s is not measured", x.Workload, x)
		}
		for _, p := range []string{x.To, x.Peer} {
			if p != "" && !known[p] || p != "" && !slices.Contains(peers, p) && !strings.Contains(p, "sandbox") {
				t.Errorf("%s %s: %s is not measured there", x.Workload, x, p)
			}
		}
	}
}

// TestPeersFlag: names are exact, and sallyport is all of it.
func TestPeersFlag(t *testing.T) {
	b := &bench{options: options{peers: []string{"goproxy", "sallyport"}}}
	want := []string{"goproxy", "sallyport-netns", "sallyport-interface", "sallyport-run"}
	if got := b.wanted(workload{}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRoles: what this program starts itself as is refused without its
// arguments, and not served with wrong ones.
func TestRoles(t *testing.T) {
	for _, name := range []string{"origin", "relay", "goproxy", "nethttp", "spaces"} {
		if err := roles()[name](nil); err == nil {
			t.Errorf("%s serves without arguments", name)
		}
	}
}

package report

import (
	"fmt"
	"strings"

	"sallyport/test/bench/measure"
)

// Target is a figure that sallyport is to reach: a ratio to another peer, or a
// number by itself.
type Target struct {
	Workload string
	Metric   Metric
	To       string  // peer; "" is no ratio
	Limit    float64 // at most, or at least
	AtLeast  bool
	Must     bool
	Peer     string // the only one that is meant; "" are all captures of sallyport
	Base     string // workload to whose figure of the same peer the ratio is
	Added    string // peer whose figure is taken from both first
}

// String says what is to be reached.
func (t Target) String() string {
	sign := "≤"
	if t.AtLeast {
		sign = "≥"
	}
	name := string(t.Metric)
	if t.Added != "" {
		name = "added " + name
	}
	switch {
	case t.Base != "":
		return fmt.Sprintf("%s %s %s × its own in %s", name, sign, number(t.Limit), t.Base)
	case t.To == "":
		return fmt.Sprintf("%s %s %s", name, sign, number(t.Limit))
	}
	return fmt.Sprintf("%s %s %s × %s", name, sign, number(t.Limit), t.To)
}

// meant says whether a peer is to reach the target.
func (t Target) meant(peer string) bool {
	if t.Peer != "" {
		return peer == t.Peer
	}
	return isOurs(peer)
}

// isOurs says whether a peer is sallyport as it is used, in one of its captures.
func isOurs(peer string) bool {
	switch peer {
	case "sallyport-netns", "sallyport-interface", "sallyport-run":
		return true
	}
	return false
}

func (t Target) met(v float64) bool {
	if t.AtLeast {
		return v >= t.Limit
	}
	return v <= t.Limit
}

// value is what was measured.
func (t Target) value(s Samples, peer string) float64 {
	switch {
	case t.Base != "":
		return measure.Ratio(s.Series(t.Workload, peer, t.Metric), s.Series(t.Base, peer, t.Metric))
	case t.To == "":
		return s.Median(t.Workload, peer, t.Metric)
	case t.Added != "":
		zero := s.Series(t.Workload, t.Added, t.Metric)
		return measure.Ratio(beyond(s.Series(t.Workload, peer, t.Metric), zero), beyond(s.Series(t.Workload, t.To, t.Metric), zero))
	}
	return s.Ratio(t.Workload, peer, t.To, t.Metric)
}

// beyond is what a series has more than another, round by round.
func beyond(a, zero map[int]float64) map[int]float64 {
	out := map[int]float64{}
	for round, v := range a {
		if z, ok := zero[round]; ok {
			out[round] = v - z
		}
	}
	return out
}

// Targets are those of the product. Those in a "must" line are promises, the
// others are where it wants to go.
func Targets() []Target {
	must := func(t Target) Target { t.Must = true; return t }
	cpu := func(w, to string, limit float64) Target {
		return Target{Workload: w, Metric: CPU, To: to, Limit: limit}
	}
	least := func(w string, m Metric, to string, limit float64) Target {
		return Target{Workload: w, Metric: m, To: to, Limit: limit, AtLeast: true}
	}
	most := func(w string, m Metric, to string, limit float64) Target {
		return Target{Workload: w, Metric: m, To: to, Limit: limit}
	}
	only := func(peer string, t Target) Target { t.Peer = peer; return t }
	added := func(t Target) Target { t.Added = "direct"; return t }
	return []Target{
		must(cpu("W1", "goproxy", 1.05)), must(cpu("W1", "squid", 0.8)), cpu("W1", "splice", 1.6), cpu("W1", "nginx", 1.1),
		must(cpu("W1k", "nginx", 1.2)), cpu("W1k", "nginx", 0.8),
		must(least("W2", Rate, "splice", 1)), must(cpu("W2", "nginx", 1.1)), cpu("W2", "nginx", 0.95),
		Target{Workload: "W2r", Metric: CPU, Base: "W2", Limit: 0.8},
		must(cpu("W3", "goproxy", 0.95)), must(least("W3", Rate, "squid", 6)), cpu("W3", "goproxy", 0.7),
		must(least("W4", Speed, "nginx", 0.95)), must(least("W4", Speed, "squid", 2.2)), least("W4", Speed, "nginx", 1.1),
		only("sallyport-passthrough", least("W4", Speed, "splice", 0.95)),
		must(least("W4u", Speed, "nginx", 0.95)),
		must(added(most("W5", P50, "goproxy", 1))), added(most("W5", P50, "splice", 1.3)),
		must(most("W6", Each, "goproxy", 0.9)), most("W6", Each, "nginx", 1),
		must(cpu("W7", "goproxy-h2", 0.85)), cpu("W7", "nginx", 2),
		must(most("W8", P50, "nginx", 1.3)), most("W8", P50, "splice", 1.2),
		must(most("W8n", P50, "nginx", 1.3)), most("W8n", P50, "splice", 1.2),
		only("sallyport-100k-netns", must(least("W9", Rate, "dnsmasq", 0.7))), only("sallyport-100k-netns", least("W9", Rate, "dnsmasq", 1.1)),
		only("sallyport-1000s-netns", must(cpu("W10", "sallyport-netns", 1.05))),
		only("sallyport-100k-netns", must(cpu("W10", "sallyport-10-netns", 1.05))),
		only("sallyport-netns", cpu("W10", "sallyport-plain-netns", 1.1)),
		only("sallyport-netns", must(most("leaks", Growth, "", 1.1))),
		only("sallyport-1000-sandboxes", must(cpu("sandboxes", "sallyport-1-sandbox", 1.1))),
		only("sallyport-1000-sandboxes", must(most("sandboxes", Each, "", 256))),
	}
}

// short is a peer's name in a column of sallyport's own.
func short(peer string) string { return strings.TrimPrefix(peer, "sallyport-") }

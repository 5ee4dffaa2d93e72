package audit

import (
	"bytes"
	"math"
	"strings"
	"time"
)

// Detectors returns the built-in rules, which notify the sinks of the given
// names. Budget is how many bytes a sandbox may send in a day, 0 for none.
func Detectors(notify []string, budget uint64) []AlertRule {
	list := []AlertRule{
		{
			Name: "builtin/burst", Severity: Medium, Verdict: "deny", Threshold: 20, Window: time.Minute,
			Per: []string{"sandbox"}, Distinct: "host", Notify: notify,
		},
		{
			Name: "builtin/dns-tunnel", Severity: High, Kind: string(KindDNS), Threshold: 10, Window: time.Minute,
			Per: []string{"sandbox", "domain"}, Distinct: "name", Notify: notify,
			match: func(e *Event) bool { return e.DNS != nil && tunnelShaped(e.DNS.QName) },
			may:   mayTunnel, mayEvent: mayTunnelEvent,
			value: tunnelValue,
		},
		{
			Name: "builtin/first-use", Severity: Info, Verdict: "allow", Per: []string{"sandbox", "host"}, Notify: notify,
			needle: `\"*`,
			match:  isUse, mayEvent: isUse,
			first: true,
		},
	}
	if budget > 0 {
		list = append(list, AlertRule{
			Name: "builtin/byte-budget", Severity: High, Sum: "bytes_sent", Threshold: budget, Window: 24 * time.Hour,
			Per: []string{"sandbox"}, Notify: notify,
		})
	}
	return list
}

// registered is the part of name that somebody registers, taken as its last
// two labels: close enough to tell one tunnel from another.
func registered(name string) (sub, domain string) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", name
	}
	if i = strings.LastIndexByte(name[:i], '.'); i < 0 {
		return "", name
	}
	return name[:i], name[i+1:]
}

func tunnelValue(e *Event, dim string) string {
	if e.DNS == nil {
		return ""
	}
	switch dim {
	case "domain":
		_, domain := registered(e.DNS.QName)
		return domain
	case "name":
		return strings.ToLower(e.DNS.QName)
	}
	return ""
}

// Bounds of the shape of names that carry data.
const (
	tunnelLabel   = 40  // a label of so many bytes
	tunnelLong    = 24  // what is under the domain has so many bytes, and
	tunnelEntropy = 3.3 // so many bits a byte, or
	tunnelLabels  = 6   // so many labels
)

// tunnelShaped reports whether what stands under the registered domain of name
// looks like data: a very long label, or long and random, or long and in many
// labels.
func tunnelShaped(name string) bool {
	sub, _ := registered(name)
	for label := range strings.SplitSeq(sub, ".") {
		if len(label) >= tunnelLabel {
			return true
		}
	}
	if len(sub) < tunnelLong {
		return false
	}
	return strings.Count(sub, ".")+1 >= tunnelLabels || entropy(strings.ReplaceAll(sub, ".", "")) >= tunnelEntropy
}

// mayTunnel is tunnelShaped of the name that was asked, in a line as it is
// written. Where the name is escaped there, it says that it may be.
func mayTunnel(line []byte) bool {
	_, rest, ok := bytes.Cut(line, []byte(`"qname":"`))
	name, _, ends := bytes.Cut(rest, []byte{'"'})
	return !ok || !ends || bytes.IndexByte(name, '\\') >= 0 || tunnelShaped(string(name))
}

// entropy is that of the bytes of s, in bits a byte.
func entropy(s string) float64 {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	h := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			h -= p * math.Log2(p)
		}
	}
	return h
}

// isFirst reports whether the group of e was never seen before, and remembers
// it while the process runs. What a rule remembers is bounded: beyond, nothing is new, because what the
// sandbox makes up must not fill the disk. Called with mu held.
func (a *Alerts) isFirst(r *ruleState, e *Event) bool {
	_, key := r.groupOf(e)
	if r.seen == nil {
		r.seen = make(map[string]bool)
		err := a.o.State.ForEach(seenBucket, func(k, _ []byte) error {
			if name, key, ok := strings.Cut(string(k), "\x00"); ok && name == r.Name {
				r.seen[key] = true
			}
			return nil
		})
		if err != nil {
			a.o.Logger.Warn("first uses not read", "error", err)
		}
	}
	if r.seen[key] || len(r.seen) >= maxGroups {
		return false
	}
	r.seen[key] = true
	return true
}

// markSeen has it remembered over restarts what was first, when it is told.
// Called with mu held.
func (a *Alerts) markSeen(x told) {
	if x.rule.first && x.State != Resolved {
		a.unseen[x.rule.Name+"\x00"+x.group.key] = appendTime(nil, x.LastSeen)
	}
}

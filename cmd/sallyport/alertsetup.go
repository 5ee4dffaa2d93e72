package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sallyport/audit"
	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// alertSetup is what a policy says of alerts, ready to be put in force.
type alertSetup struct {
	rules []audit.AlertRule
	mutes []audit.Mute
	sinks map[string][]namedSink // by the name of the notify block
}

// namedSink is a sink and the name of its spool.
type namedSink struct {
	name string
	sink audit.Sink
}

// openAlerts makes the rules and sinks of a policy. Nothing is sent yet.
func openAlerts(a *policyfile.Alerts, s sinkSecrets) (alertSetup, []policy.Problem) {
	var problems []policy.Problem
	fail := func(at policy.Pos, format string, args ...any) {
		problems = append(problems, policy.Problem{Severity: policy.Error, Pos: at, Summary: fmt.Sprintf(format, args...)})
	}
	setup := alertSetup{sinks: map[string][]namedSink{}}
	kinds := sinkKinds()
	for _, n := range a.Notify {
		for i, x := range n.Sinks {
			var sink audit.Sink
			err := s.pins.admit(attributes(x.Attrs).texts("ca_file"))
			if err == nil {
				sink, err = kinds[x.Kind].open(x.Attrs, s)
			}
			if err != nil {
				fail(x.Pos, "notify %q: %s: %v", n.Name, x.Kind, err)
				continue
			}
			setup.sinks[n.Name] = append(setup.sinks[n.Name], namedSink{fmt.Sprintf("%s/%d/%s", n.Name, i+1, x.Kind), sink})
		}
	}
	detected := map[string]bool{}
	for _, x := range a.Rules {
		r := alertRule(x)
		if err := audit.CheckRules([]audit.AlertRule{r}); err != nil {
			fail(x.Pos, "%v", err)
		}
		detected[x.Detector] = true
		setup.rules = append(setup.rules, r)
	}
	for _, r := range audit.Detectors(nil, 0) {
		if !detected[strings.TrimPrefix(r.Name, detectorPrefix)] {
			setup.rules = append(setup.rules, r)
		}
	}
	for _, m := range a.Mutes {
		setup.mutes = append(setup.mutes, audit.Mute{ID: m.Name, Alerts: m.Alerts, Sandboxes: m.Sandboxes, Hosts: m.Hosts, Reasons: m.Reasons, Until: m.Until, Why: m.Why})
	}
	return setup, problems
}

// detectorPrefix begins the names of the detectors that are on by default.
const detectorPrefix = "builtin/"

// alertRule is the rule of an alert block.
func alertRule(x policyfile.Alert) audit.AlertRule {
	r := audit.AlertRule{Reasons: x.Reasons, Verdict: x.Verdict, Kind: x.Kind, Per: x.Per, Distinct: x.Distinct, Sum: x.Sum}
	if x.Detector != "" {
		all := audit.Detectors(nil, max(uint64(x.Threshold), 1))
		i := slices.IndexFunc(all, func(d audit.AlertRule) bool { return d.Name == detectorPrefix+x.Detector })
		r = all[i] // policyfile knows the same names; a test holds it
	}
	r.Name, r.Sandbox, r.Host = x.Name, x.Sandbox, x.Host
	r.Severity = cmp.Or(audit.Severity(x.Severity), r.Severity)
	r.Threshold = cmp.Or(uint64(x.Threshold), r.Threshold)
	r.Window, r.Interval = cmp.Or(x.Window, r.Window), cmp.Or(x.Interval, r.Interval)
	r.Notify = nil
	for _, ref := range x.Notify {
		r.Notify = append(r.Notify, ref.Name)
	}
	return r
}

// rule returns the rule of a name.
func (s alertSetup) rule(name string) (audit.AlertRule, bool) {
	i := slices.IndexFunc(s.rules, func(r audit.AlertRule) bool { return r.Name == name })
	if i < 0 {
		return audit.AlertRule{}, false
	}
	return s.rules[i], true
}

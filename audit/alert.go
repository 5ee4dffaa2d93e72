package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// States of an Alert.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Alert is what is told of a rule and group: that it began, once per interval
// how it goes on, and that it is over.
type Alert struct {
	ID        string            `json:"id"` // ULID of the whole time from first to resolved
	Name      string            `json:"name"`
	State     string            `json:"state"`
	Severity  Severity          `json:"severity"`
	Group     map[string]string `json:"group,omitempty"`
	Count     uint64            `json:"count"` // since it began
	New       uint64            `json:"new"`   // since it was last told
	FirstSeen time.Time         `json:"first_seen"`
	LastSeen  time.Time         `json:"last_seen"`
	Message   string            `json:"message"` // plain text of one line, escaped
	Event     *Event            `json:"event"`   // the latest one
	Notify    []string          `json:"notify,omitempty"`
}

// AlertRule says what raises an alert. All conditions that are set must hold.
type AlertRule struct {
	Name     string
	Reasons  []string // any of them
	Verdict  string
	Kind     string
	Sandbox  string // glob
	Host     string // glob
	AtLeast  Severity
	Severity Severity // of the alert; high by default

	// Threshold is how many events within Window raise the alert; by default
	// the first does. With Distinct different values of that dimension are
	// counted, with Sum bytes of ended attempts.
	Threshold uint64
	Window    time.Duration // 1 minute by default
	Per       []string      // counted apart by sandbox, host, reason, rule
	Distinct  string        // one of those
	Sum       string        // bytes_sent or bytes_received

	Interval time.Duration // between two notices of the same group; 10 minutes by default
	Notify   []string      // names of sinks

	needle   string                            // of a built-in detector: what the line of an event that matches has in it
	may      func(line []byte) bool            // of a built-in detector: whether match may hold of a line, before it is decoded
	match    func(e *Event) bool               // of a built-in detector
	mayEvent func(e *Event) bool               // of a built-in detector: whether match may hold of e when it was written and read; nil: it may
	value    func(e *Event, dim string) string // of a built-in detector: further dimensions
	first    bool                              // raised by a group that was never seen before
}

// Defaults of an AlertRule.
const (
	DefaultAlertWindow   = time.Minute
	DefaultAlertInterval = 10 * time.Minute
	DefaultAlertSeverity = High
)

// withDefaults checks r and fills in what is zero.
func (r AlertRule) withDefaults() (AlertRule, error) {
	if r.Name == "" {
		return r, errors.New("alert rule: no name")
	}
	fail := func(format string, args ...any) (AlertRule, error) {
		return r, fmt.Errorf("alert %q: %w", r.Name, fmt.Errorf(format, args...))
	}
	for _, d := range append(slices.Clone(r.Per), r.Distinct) {
		if !slices.Contains([]string{"", "sandbox", "host", "reason", "rule"}, d) && r.value == nil {
			return fail("%q: want sandbox, host, reason or rule", d)
		}
	}
	if !slices.Contains([]string{"", "bytes_sent", "bytes_received"}, r.Sum) {
		return fail("sum %q: want bytes_sent or bytes_received", r.Sum)
	}
	if r.Sum != "" && r.Distinct != "" {
		return fail("sum and distinct exclude one another")
	}
	if !slices.Contains([]string{"", "allow", "deny"}, r.Verdict) {
		return fail("verdict %q: want allow or deny", r.Verdict)
	}
	if r.Window < 0 || r.Interval < 0 {
		return fail("negative time")
	}
	if r.Threshold > maxDistinct && r.Distinct != "" {
		return fail("threshold %d of distinct values: want at most %d", r.Threshold, maxDistinct)
	}
	if r.Severity != "" && severityNumber(r.Severity) == 0 {
		return fail("severity %q: want info, low, medium, high or critical", r.Severity)
	}
	r.Threshold = max(r.Threshold, 1)
	if r.Window == 0 {
		r.Window = DefaultAlertWindow
	}
	if r.Interval == 0 {
		r.Interval = DefaultAlertInterval
	}
	if r.Severity == "" {
		r.Severity = DefaultAlertSeverity
	}
	return r, nil
}

// matches reports whether e counts for r. A policy rule that names the alert
// always counts.
func (r *AlertRule) matches(e *Event) bool {
	if e.Kind == KindAlert {
		return false // an alert raises no alert
	}
	if e.Alert != "" && e.Alert == r.Name {
		return true
	}
	switch {
	case r.match != nil && !r.match(e),
		len(r.Reasons) > 0 && !slices.Contains(r.Reasons, effectiveReason(e)),
		r.Verdict != "" && r.Verdict != e.Verdict,
		r.Kind != "" && r.Kind != string(e.Kind),
		r.Sandbox != "" && !glob(r.Sandbox, sandboxOf(e)),
		r.Host != "" && !glob(strings.ToLower(r.Host), strings.ToLower(hostOf(e))),
		r.AtLeast != "" && severityNumber(e.Severity) < severityNumber(r.AtLeast),
		r.Sum != "" && (e.Bytes == nil || e.Phase != PhaseEnd || e.Kind == KindSandbox):
		return false
	}
	return !r.empty()
}

// empty reports whether r has no condition: it is raised by policy rules only.
func (r *AlertRule) empty() bool {
	return r.match == nil && len(r.Reasons) == 0 && r.Verdict == "" && r.Kind == "" && r.Sandbox == "" && r.Host == "" && r.AtLeast == "" && r.Sum == ""
}

// weight is what e counts for, when told was known of its connection.
func (r *AlertRule) weight(e *Event, told connBytes) uint64 {
	if r.Sum != "" {
		return r.bytes(e, told)
	}
	if r.Host != "" && e.Various() {
		return 1 // the first is of that host; of the others it is not known
	}
	return max(e.Count, 1)
}

// dimension is the value of e in one of the dimensions of Per and Distinct.
func (r *AlertRule) dimension(e *Event, dim string) string {
	if r.value != nil {
		if v := r.value(e, dim); v != "" {
			return v
		}
	}
	switch dim {
	case "sandbox":
		return sandboxOf(e)
	case "host":
		return countedHost(e)
	case "reason":
		return effectiveReason(e)
	case "rule":
		switch {
		case e.Various():
			return VariousNames
		case e.Rule != nil:
			return fmt.Sprintf("%s:%d", e.Rule.File, e.Rule.Line)
		}
	}
	return ""
}

// groupOf returns the group of e and the key that it has among those of r.
func (r *AlertRule) groupOf(e *Event) (map[string]string, string) {
	group := make(map[string]string, len(r.Per))
	var key strings.Builder
	for _, d := range r.Per {
		v := r.dimension(e, d)
		if len(v) > capHost {
			v = Escape(v, capHost/4)
		}
		group[d] = v
		key.WriteString(v)
		key.WriteByte(0)
	}
	return group, key.String()
}

package policyfile

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// The blocks of this file say nothing about what a sandbox may do: what raises
// an alert, where it goes, and what is silent for a while.

// Alerts are the alert, notify and mute blocks of a policy.
type Alerts struct {
	Rules  []Alert
	Notify []Notify
	Mutes  []Mute
}

// Alert is one alert block. What is not written is the zero value.
type Alert struct {
	Name      string
	Pos       policy.Pos
	Detector  string // of Detectors: the block adjusts that one; "": the block has conditions of its own
	Reasons   []string
	Verdict   string
	Kind      string
	Sandbox   string // glob
	Host      string // glob
	Severity  string
	Threshold int64
	Window    time.Duration
	Interval  time.Duration
	Per       []string
	Distinct  string
	Sum       string // bytes_sent or bytes_received
	Notify    []policy.Ref
}

// Detectors are the names that the attribute detector may have.
func Detectors() []string { return []string{"burst", "dns-tunnel", "first-use", "byte-budget"} }

// Notify is one notify block: the sinks that a name stands for.
type Notify struct {
	Name  string
	Pos   policy.Pos
	Sinks []Sink
}

// Sink is where notices go: a kind and its attributes, checked against the
// kind's schema.
type Sink struct {
	Kind  string
	Pos   policy.Pos
	Attrs map[string]any // as those of a policy.Source
}

// Mute is one mute block. A list that is empty takes all.
type Mute struct {
	Name      string
	Pos       policy.Pos
	Until     time.Time
	Alerts    []string // globs
	Reasons   []string
	Sandboxes []string // globs
	Hosts     []string // globs
	Why       string
}

// LoadWithAlerts is Load, with the policy's alerts. Both are nil when there are
// errors.
func LoadWithAlerts(paths []string, o Options) (*policy.Document, *Alerts, *Diagnostics) {
	p := load(paths, o)
	if p.diags.HasErrors() {
		_, diags := p.compile(0) // for what else is wrong
		return nil, nil, diags
	}
	doc, diags := p.result()
	return doc, &p.alerts, diags
}

// alert decodes an alert block.
func (d *decoder) alert(b *hclsyntax.Block) {
	name, ok := d.named(b, "exfiltration")
	x := Alert{Name: name, Pos: pos(b.TypeRange)}
	d.body(b, &d.lang.alert, func(a *hclsyntax.Attribute) { d.alertAttr(&x, a) }, nil)
	if x.Detector != "" {
		for _, own := range []string{"reasons", "verdict", "kind", "per", "distinct", "sum"} {
			if a := b.Body.Attributes[own]; a != nil {
				d.fail(Diagnostic{
					Summary: fmt.Sprintf("%s cannot be set beside detector", own),
					Detail:  "A detector has conditions of its own; threshold, window, interval, severity, sandbox and host may be adjusted.",
				}, a.NameRange)
			}
		}
	}
	if x.Detector == "byte-budget" && x.Threshold == 0 {
		d.fail(Diagnostic{Summary: "the detector byte-budget needs threshold", Hint: "add threshold = 1000000000, the bytes that a sandbox may send within the window"}, header(b))
	}
	if x.Sum != "" && x.Distinct != "" {
		d.fail(Diagnostic{Summary: "sum and distinct cannot stand in one alert"}, header(b))
	}
	if ok {
		d.alerts.Rules = append(d.alerts.Rules, x)
	}
}

// alertAttr decodes one attribute of an alert.
func (d *decoder) alertAttr(x *Alert, a *hclsyntax.Attribute) {
	switch a.Name {
	case "detector":
		x.Detector, _ = d.choice(a.Name, a.Expr, Detectors()...)
	case "reasons":
		x.Reasons = d.words(a, "a reason", reasons())
	case "severity":
		x.Severity, _ = d.choice(a.Name, a.Expr, "info", "low", "medium", "high", "critical")
	case "verdict":
		x.Verdict, _ = d.choice(a.Name, a.Expr, "allow", "deny")
	case "kind":
		x.Kind, _ = d.choice(a.Name, a.Expr, "dns", "conn", "packet", "tls", "http", "ws", "tcp", "secret", "policy", "sandbox", "audit")
	case "sandbox":
		x.Sandbox, _ = d.line(a)
	case "host":
		x.Host, _ = d.line(a)
	case "threshold":
		x.Threshold, _ = d.int(a.Name, a.Expr, 1, math.MaxInt64)
	case "window":
		x.Window, _ = d.duration(a.Name, a.Expr)
	case "interval":
		x.Interval, _ = d.duration(a.Name, a.Expr)
	case "per":
		x.Per = d.words(a, "per", []string{"sandbox", "host", "reason", "rule"})
	case "distinct":
		x.Distinct, _ = d.choice(a.Name, a.Expr, "sandbox", "host", "reason", "rule")
	case "sum":
		x.Sum, _ = d.choice(a.Name, a.Expr, "bytes_sent", "bytes_received")
	case "notify":
		x.Notify = d.refs(a.Name, a.Expr)
	}
}

// words decodes a list of words from a closed list.
func (d *decoder) words(a *hclsyntax.Attribute, name string, words []string) []string {
	list, _ := d.some(a.Name, a.Expr)
	for _, x := range list {
		d.oneOf(name, x, words)
	}
	return values(list)
}

// notify decodes a notify block: sinks, each a block of its kind.
func (d *decoder) notify(b *hclsyntax.Block) {
	name, ok := d.named(b, "ops")
	n := Notify{Name: name, Pos: pos(b.TypeRange)}
	for _, a := range b.Body.Attributes {
		d.unknownAttr(a, &shape{noun: d.lang.notify.noun})
	}
	if len(b.Body.Blocks) == 0 {
		d.fail(Diagnostic{Summary: "a notify block needs a sink", Hint: `add one, such as webhook { url = "https://alerts.example.com/" }`}, header(b))
	}
	for _, inner := range b.Body.Blocks {
		d.noLabel(inner)
		schema, known := d.opts.Sinks[inner.Type]
		switch {
		case d.opts.Sinks == nil:
			d.literals(inner)
		case !known:
			d.unknownKind("sink", inner.Type, inner.TypeRange, d.opts.Sinks)
		default:
			attrs := d.schema(inner, fmt.Sprintf("a sink of kind %q", inner.Type), schema)
			n.Sinks = append(n.Sinks, Sink{Kind: inner.Type, Pos: pos(inner.TypeRange), Attrs: attrs})
		}
	}
	if ok {
		d.alerts.Notify = append(d.alerts.Notify, n)
	}
}

// mute decodes a mute block.
func (d *decoder) mute(b *hclsyntax.Block) {
	name, ok := d.named(b, "maintenance")
	m := Mute{Name: name, Pos: pos(b.TypeRange)}
	d.body(b, &d.lang.mute, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "until":
			m.Until, _ = d.instant(a.Name, a.Expr)
		case "reason":
			m.Why, _ = d.prose(a)
		case "reasons":
			m.Reasons = d.words(a, "a reason", reasons())
		case "alerts":
			m.Alerts = names(d.refs(a.Name, a.Expr))
		case "sandboxes":
			m.Sandboxes = names(d.refs(a.Name, a.Expr))
		case "hosts":
			m.Hosts = names(d.refs(a.Name, a.Expr))
		}
	}, nil)
	if ok {
		d.alerts.Mutes = append(d.alerts.Mutes, m)
	}
}

func names(refs []policy.Ref) []string {
	out := make([]string, len(refs))
	for i, r := range refs {
		out[i] = r.Name
	}
	return out
}

// alertRefs reports what alerts and sinks refer to and nobody declares.
func (d *decoder) alertRefs() {
	if d.lost {
		return
	}
	d.context = ""
	declared := func(list []policy.Ref, what, block string, known []string) {
		for _, ref := range list {
			if slices.Contains(known, ref.Name) {
				continue
			}
			d.diags.add(Diagnostic{Summary: fmt.Sprintf("%s %s is not declared", what, quote(ref.Name)), Pos: ref.Pos,
				Hint: didYouMean(ref.Name, known), Detail: "There is no block " + block + " " + quote(ref.Name) + "."})
		}
	}
	for i := range d.doc.Secrets {
		s := &d.doc.Secrets[i]
		s.Sink = slices.ContainsFunc(d.sinkSecrets, func(r policy.Ref) bool { return r.Name == s.Name })
	}
	var notify, secrets []string
	for _, n := range d.alerts.Notify {
		notify = append(notify, n.Name)
	}
	for _, s := range d.doc.Secrets {
		secrets = append(secrets, s.Name)
	}
	for _, r := range d.alerts.Rules {
		declared(r.Notify, "sink", "notify", notify)
	}
	declared(d.sinkSecrets, "secret", "secret", secrets)
}

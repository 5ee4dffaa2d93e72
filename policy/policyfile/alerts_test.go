package policyfile

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport/policy"
)

func sinkOptions() Options {
	return Options{
		Sources: map[string]Schema{"env": {Attrs: []Attr{{Name: "name", Type: String, Required: true}}}},
		Sinks: map[string]Schema{
			"slack": {Attrs: []Attr{{Name: "url_secret", Type: SecretName, Required: true}}},
			"otlp":  {Attrs: []Attr{{Name: "url", Type: String, Required: true}, {Name: "header_secrets", Type: SecretMap}}},
		},
	}
}

const alertPolicy = `
secret "SLACK_WEBHOOK" {
  hosts = ["hooks.example.com"]
  source "env" { name = "SLACK_WEBHOOK" }
}
alert "exfiltration" {
  reasons  = ["placeholder_leak"]
  severity = "critical"
  notify   = ["ops"]
}
alert "scanning" {
  detector  = "burst"
  threshold = 50
  interval  = "1h"
  notify    = ["ops"]
}
notify "ops" {
  slack { url_secret = "SLACK_WEBHOOK" }
  otlp {
    url            = "https://otlp.example.com"
    header_secrets = { Authorization = "SLACK_WEBHOOK" }
  }
}
mute "works" {
  until  = "2026-12-31T06:00:00Z"
  alerts = ["scan*"]
  reason = "planned works"
}
`

// parseAlerts is LoadWithAlerts for a text.
func parseAlerts(text string) (*Alerts, *Diagnostics) {
	p := parseFiles(map[string][]byte{"p.hcl": []byte(text)}, sinkOptions())
	_, diags := p.result()
	return &p.alerts, diags
}

func TestAlertsDecoded(t *testing.T) {
	got, diags := parseAlerts(alertPolicy)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	at := func(line, column int) policy.Pos { return policy.Pos{File: "p.hcl", Line: line, Column: column} }
	want := &Alerts{
		Rules: []Alert{
			{Name: "exfiltration", Pos: at(6, 1), Reasons: []string{"placeholder_leak"}, Severity: "critical", Notify: []policy.Ref{{Name: "ops", Pos: at(9, 15)}}},
			{Name: "scanning", Pos: at(11, 1), Detector: "burst", Threshold: 50, Interval: time.Hour, Notify: []policy.Ref{{Name: "ops", Pos: at(15, 16)}}},
		},
		Notify: []Notify{{Name: "ops", Pos: at(17, 1), Sinks: []Sink{
			{Kind: "slack", Pos: at(18, 3), Attrs: map[string]any{"url_secret": "SLACK_WEBHOOK"}},
			{Kind: "otlp", Pos: at(19, 3), Attrs: map[string]any{"url": "https://otlp.example.com", "header_secrets": map[string]string{"Authorization": "SLACK_WEBHOOK"}}},
		}}},
		Mutes: []Mute{{Name: "works", Pos: at(24, 1), Until: time.Date(2026, 12, 31, 6, 0, 0, 0, time.UTC), Alerts: []string{"scan*"}, Why: "planned works"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

func TestAlertsRefuse(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"a sink that is not declared", `notify   = ["ops"]`, `notify   = ["opps"]`, `sink "opps" is not declared`},
		{"a secret that is not declared", `url_secret = "SLACK_WEBHOOK"`, `url_secret = "SLACK_WEBHOK"`, `secret "SLACK_WEBHOK" is not declared`},
		{"a secret of a header that is not declared", `Authorization = "SLACK_WEBHOOK"`, `Authorization = "OTHER"`, `secret "OTHER" is not declared`},
		{"conditions beside a detector", `threshold = 50`, `verdict = "deny"`, "verdict cannot be set beside detector"},
		{"an unknown detector", `"burst"`, `"bursts"`, `detector cannot be "bursts"`},
		{"a budget without a number", "detector  = \"burst\"\n  threshold = 50", `detector = "byte-budget"`, "needs threshold"},
		{"sum and distinct", `severity = "critical"`, "sum = \"bytes_sent\"\n distinct = \"host\"", "sum and distinct cannot stand"},
		{"an unknown kind of sink", "slack {", "slak {", `there is no sink of kind "slak"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(alertPolicy, c.from) {
				t.Fatalf("the policy has no %q", c.from)
			}
			_, diags := parseAlerts(strings.Replace(alertPolicy, c.from, c.to, 1))
			if err := diags.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
}

// TestSecretOfASink: a secret that only a sink uses is not one that nobody uses.
func TestSecretOfASink(t *testing.T) {
	_, diags := ParseSet(map[string][]byte{"p.hcl": []byte(alertPolicy + "sandbox \"ci\" {}\n")}, 1, sinkOptions())
	if diags.Len() != 0 {
		t.Errorf("diagnostics: %+v", diags.List())
	}
}

package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/policy/policyfile"
)

// fixedSecrets are secrets that cover one host.
func fixedSecrets(values map[string]string, host string) sinkSecrets {
	return sinkSecrets{
		use: func(_ context.Context, name string, f func(string) error) error {
			v, ok := values[name]
			if !ok {
				return errors.New("no such secret")
			}
			return f(v)
		},
		covers: func(_, h string) bool { return h == host },
	}
}

// TestSinkURLSecretGoesToItsOwnHostsAlone: a URL that is a credential leaves
// over HTTPS to the hosts that its secret is approved for, or not at all.
func TestSinkURLSecretGoesToItsOwnHostsAlone(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		"approved":     {"https://hooks.example.com/services/T0/B0", ""},
		"another host": {"https://evil.example.com/x", "do not cover"},
		"plain HTTP":   {"http://hooks.example.com/x", "no HTTPS URL"},
		"no URL":       {"hunter2-hunter2", "no HTTPS URL"},
		"userinfo":     {"https://hooks.example.com@evil.example.com/", "no HTTPS URL"},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := fixedSecrets(map[string]string{"HOOK": c.value}, "hooks.example.com").target(attributes{"url_secret": "HOOK"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := target(t.Context())
			switch {
			case c.want == "" && (err != nil || got != c.value):
				t.Errorf("%q, %v", got, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || got != "" || !audit.IsPermanent(err)):
				t.Errorf("%q, %v; want an error with %q", got, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), c.value) {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
}

func TestSinkRefusals(t *testing.T) {
	s := fixedSecrets(map[string]string{"KEY": "k"}, "hooks.example.com")
	for name, c := range map[string]struct {
		kind  string
		attrs attributes
		want  string
	}{
		"no url":                    {"slack", attributes{}, "is needed"},
		"two urls":                  {"slack", attributes{"url": "https://a.example", "url_secret": "KEY"}, "exclude"},
		"a path":                    {"webhook", attributes{"url": "/x", "sign_secret": "KEY"}, "no URL"},
		"another scheme":            {"otlp", attributes{"url": "ftp://a.example"}, "scheme"},
		"a password in the url":     {"otlp", attributes{"url": "https://u:p@a.example"}, "no URL"},
		"a header in the clear":     {"otlp", attributes{"url": "http://hooks.example.com", "header_secrets": map[string]string{"Authorization": "KEY"}}, "scheme"},
		"a header for another host": {"otlp", attributes{"url": "https://a.example", "header_secrets": map[string]string{"Authorization": "KEY"}}, "do not cover"},
		"ca_file that is not there": {"slack", attributes{"url": "https://a.example", "ca_file": "/nonexistent.pem"}, "ca_file"},
		"syslog without port":       {"syslog", attributes{"address": "a.example"}, "address"},
		"syslog CA without TLS":     {"syslog", attributes{"address": "a.example:514", "server_name": "x"}, "tls = true"},
		"exec without command":      {"exec", attributes{}, "command"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sinkKinds()[c.kind].open(c.attrs, s); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
}

// TestDetectorsAreThoseOfTheLog: the names that a policy may write are those
// that the log package has.
func TestDetectorsAreThoseOfTheLog(t *testing.T) {
	for _, name := range policyfile.Detectors() {
		r := alertRule(policyfile.Alert{Name: "x", Detector: name, Threshold: 7})
		if r.Name != "x" || r.Threshold != 7 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	setup, problems := openAlerts(&policyfile.Alerts{Rules: []policyfile.Alert{{Name: "scan", Detector: "burst", Sandbox: "ci"}}}, sinkSecrets{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var names []string
	for _, r := range setup.rules {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "scan builtin/dns-tunnel builtin/first-use" {
		t.Errorf("rules %s", got)
	}
}

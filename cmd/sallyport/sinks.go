package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"

	"sallyport/audit"
	"sallyport/audit/alertmanager"
	"sallyport/audit/exec"
	"sallyport/audit/otlp"
	"sallyport/audit/slack"
	"sallyport/audit/syslog"
	"sallyport/audit/webhook"
	"sallyport/gateway/upstream"
	"sallyport/policy"
	"sallyport/policy/policyfile"
)

// sinkKind is one kind of sink for alerts: what a policy file may say of it,
// and how it is made.
type sinkKind struct {
	schema policyfile.Schema
	open   func(a attributes, s sinkSecrets) (audit.Sink, error)
}

// sinkKinds are the kinds of sink, by the type of the block.
func sinkKinds() map[string]sinkKind {
	text, list, span, number, pairs := policyfile.String, policyfile.StringList, policyfile.Duration, policyfile.Int, policyfile.StringMap
	secret, secretPairs := policyfile.SecretName, policyfile.SecretMap
	return map[string]sinkKind{
		"webhook": {
			schema: schema(attr("url", text, false), attr("url_secret", secret, false), attr("sign_secret", secret, true),
				attr("headers", pairs, false), attr("ca_file", text, false)),
			open: openWebhook,
		},
		"slack": {
			schema: schema(attr("url", text, false), attr("url_secret", secret, false), attr("channel", text, false), attr("ca_file", text, false)),
			open:   openSlack,
		},
		"alertmanager": {
			schema: schema(attr("url", text, false), attr("url_secret", secret, false), attr("labels", pairs, false),
				attr("hold", span, false), attr("ca_file", text, false)),
			open: openAlertmanager,
		},
		"syslog": {
			schema: schema(attr("address", text, true), attr("tls", policyfile.Bool, false), attr("ca_file", text, false), attr("server_name", text, false),
				attr("facility", number, false), attr("hostname", text, false), attr("app", text, false)),
			open: openSyslog,
		},
		"otlp": {
			schema: schema(attr("url", text, false), attr("url_secret", secret, false), attr("headers", pairs, false),
				attr("header_secrets", secretPairs, false), attr("resource", pairs, false), attr("ca_file", text, false)),
			open: openOTLP,
		},
		"exec": {
			schema: schema(attr("command", list, true), attr("env", list, false), attr("timeout", span, false)),
			open: func(a attributes, s sinkSecrets) (audit.Sink, error) {
				var env []string
				for _, name := range a.list("env") {
					env = append(env, name+"="+os.Getenv(name))
				}
				argv, check := s.pins.sinkCommand(a.list("command"))
				sink, err := exec.New(exec.Config{Command: argv, Env: env, Timeout: a.duration("timeout")})
				if err != nil {
					return nil, err
				}
				return checkedSink{sink, check}, nil
			},
		},
	}
}

// sinkSecrets hands secrets of the policy to sinks, at each use anew.
type sinkSecrets struct {
	use    func(ctx context.Context, name string, f func(value string) error) error
	covers func(secret, host string) bool
	pins   *pins // nil of a daemon

	formOnly bool // no file is read, since the sinks are not used
}

// value is a secret that does not leave by itself, such as the key of a
// signature.
func (s sinkSecrets) value(name string) audit.Text {
	return func(ctx context.Context) (out string, err error) {
		err = s.use(ctx, name, func(v string) error { out = v; return nil })
		return out, err
	}
}

// target is where a sink sends to: url, or the value of url_secret. The latter
// is a credential, so it goes to the secret's own hosts over HTTPS alone.
func (s sinkSecrets) target(a attributes) (audit.Text, error) {
	plain, name := a.text("url"), a.text("url_secret")
	switch {
	case plain != "" && name != "":
		return nil, errors.New("url and url_secret exclude one another")
	case plain != "":
		if _, err := sinkURL(plain, "http", "https"); err != nil {
			return nil, err
		}
		return audit.Fixed(plain), nil
	case name == "":
		return nil, errors.New("url or url_secret is needed")
	}
	return func(ctx context.Context) (out string, err error) {
		err = s.use(ctx, name, func(v string) error {
			host, err := sinkURL(v, "https")
			if err != nil {
				return audit.Permanent(fmt.Errorf("secret %s: its value is no HTTPS URL", name))
			}
			if !s.covers(name, host) {
				return audit.Permanent(fmt.Errorf("secret %s: its hosts do not cover that of its URL", name))
			}
			out = v
			return nil
		})
		return out, err
	}, nil
}

// header is a secret that is sent in a header to url.
func (s sinkSecrets) header(name, to string) (audit.Text, error) {
	host, err := sinkURL(to, "https")
	if err != nil {
		return nil, fmt.Errorf("header_secrets: %w", err)
	}
	if !s.covers(name, host) {
		return nil, fmt.Errorf("header_secrets: the hosts of secret %s do not cover %s", name, host)
	}
	return s.value(name), nil
}

// sinkURL checks a URL of one of the schemes and returns its canonical host. The
// error does not have the URL in it.
func sinkURL(s string, schemes ...string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return "", errors.New("url is no URL of a receiver")
	}
	for _, scheme := range schemes {
		if u.Scheme == scheme {
			return policy.CanonicalHost(u.Hostname())
		}
	}
	return "", fmt.Errorf("url has not the scheme %s", schemes[len(schemes)-1])
}

// roots are what a sink trusts: the system's, and those of ca_file.
func (s sinkSecrets) roots(a attributes) (*x509.CertPool, error) {
	file := a.text("ca_file")
	if file == "" || s.formOnly {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	roots, err := upstream.Roots(pem)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	return roots, nil
}

// httpSink is what the sinks that speak HTTP have in common.
func httpSink(a attributes, s sinkSecrets) (audit.Text, http.RoundTripper, error) {
	target, err := s.target(a)
	if err != nil {
		return nil, nil, err
	}
	roots, err := s.roots(a)
	if err != nil {
		return nil, nil, err
	}
	return target, audit.NewTransport(roots), nil
}

func openWebhook(a attributes, s sinkSecrets) (audit.Sink, error) {
	target, transport, err := httpSink(a, s)
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Config{URL: target, Secret: s.value(a.text("sign_secret")), Headers: a.pairs("headers"), Transport: transport})
}

func openSlack(a attributes, s sinkSecrets) (audit.Sink, error) {
	target, transport, err := httpSink(a, s)
	if err != nil {
		return nil, err
	}
	return slack.New(slack.Config{URL: target, Channel: a.text("channel"), Transport: transport})
}

func openAlertmanager(a attributes, s sinkSecrets) (audit.Sink, error) {
	target, transport, err := httpSink(a, s)
	if err != nil {
		return nil, err
	}
	return alertmanager.New(alertmanager.Config{URL: target, Labels: a.pairs("labels"), Hold: a.duration("hold"), Transport: transport})
}

func openOTLP(a attributes, s sinkSecrets) (audit.Sink, error) {
	target, transport, err := httpSink(a, s)
	if err != nil {
		return nil, err
	}
	headers := map[string]audit.Text{}
	for k, v := range a.pairs("headers") {
		headers[k] = audit.Fixed(v)
	}
	for k, name := range a.pairs("header_secrets") {
		if headers[k], err = s.header(name, a.text("url")); err != nil {
			return nil, err
		}
	}
	return otlp.New(otlp.Config{URL: target, Headers: headers, Resource: maps.Clone(a.pairs("resource")), Transport: transport})
}

func openSyslog(a attributes, s sinkSecrets) (audit.Sink, error) {
	c := syslog.Config{Address: a.text("address"), Facility: int(a.number("facility")), Hostname: a.text("hostname"), App: a.text("app")}
	roots, err := s.roots(a)
	if err != nil {
		return nil, err
	}
	if on, _ := a["tls"].(bool); on {
		c.TLS = &tls.Config{RootCAs: roots, ServerName: a.text("server_name"), MinVersion: tls.VersionTLS12}
	} else if len(a.texts("ca_file", "server_name")) > 0 {
		return nil, errors.New("ca_file and server_name need tls = true")
	}
	return syslog.New(c)
}

// pairs is a map of strings.
func (a attributes) pairs(name string) map[string]string {
	m, _ := a[name].(map[string]string)
	return m
}

// number is a whole number, 0 if it is not there.
func (a attributes) number(name string) int64 { n, _ := a[name].(int64); return n }

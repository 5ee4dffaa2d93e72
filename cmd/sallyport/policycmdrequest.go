package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// replaceName replaces a name that ends at a boundary.
func replaceName(text, name, with string) string {
	var b bytes.Buffer
	for {
		before, after, ok := strings.Cut(text, name)
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		if after != "" && (after[0] == '_' || after[0] >= '0' && after[0] <= '9' || after[0] >= 'A' && after[0] <= 'Z') {
			b.WriteString(name)
		} else {
			b.WriteString(with)
		}
		text = after
	}
}

// resolves checks the addresses that a test gives for the host's name as the
// gateway checks those of a resolver. Without addresses the name is taken to
// be a public one; an address is itself.
func resolves(r policy.Request, d policy.Decision, addrs []netip.Addr) *policy.Decision {
	hosts := map[string][]netip.Addr{r.Host: addrs}
	switch {
	case policy.IsIP(r.Host):
		hosts = nil
	case len(addrs) == 0:
		return nil
	}
	u, err := upstream.New(upstream.Options{Resolvers: []string{"127.0.0.1:9"}, Hosts: hosts, Self: func() []netip.Addr { return nil }})
	if err != nil {
		return &policy.Decision{Reason: policy.ResolveFailed, Message: err.Error()}
	}
	defer u.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err = u.Route(ctx, upstream.Target{Sandbox: r.Sandbox, Host: r.Host, Port: r.Port, Addresses: d.Addresses, Metadata: d.Metadata},
		func() error { return errors.New("a test asks no resolver") })
	var refusal *upstream.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return &policy.Decision{Reason: policy.Reason(refusal.Reason), Message: refusal.Message}
	}
	return &policy.Decision{Reason: policy.ResolveFailed, Message: err.Error()}
}

// policyRequest reads a method and a URL into what policy is asked.
func policyRequest(sandbox, method, text string) (policy.Request, *url.URL, error) {
	r := policy.Request{Sandbox: sandbox, Stage: policy.StageRequest, Method: method}
	u, err := url.Parse(text)
	if err != nil {
		return r, nil, err
	}
	var port uint16
	switch u.Scheme {
	case "https", "wss":
		r.Scheme, port = policy.HTTPS, 443
	case "http", "ws":
		r.Scheme, port = policy.HTTP, 80
	case "tcp":
		r.Scheme, r.Stage, r.Method = policy.TCP, policy.StageConn, ""
	default:
		return r, nil, fmt.Errorf("%s is not a URL of https, http, wss, ws or tcp", text)
	}
	r.WebSocket = u.Scheme == "wss" || u.Scheme == "ws"
	if r.Host, r.Port, err = policy.SplitAuthority(u.Host, port); err != nil {
		return r, nil, err
	}
	// The path is taken from the text: what policy is asked is what would be
	// sent, byte for byte.
	_, rest, _ := strings.Cut(text, "://")
	rest, _, _ = strings.Cut(rest, "#")
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		r.Path, r.Query, _ = strings.Cut(rest[i:], "?")
	}
	if r.Path == "" {
		r.Path = "/"
	}
	return r, u, nil
}

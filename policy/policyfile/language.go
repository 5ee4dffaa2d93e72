package policyfile

import "slices"

// language is the vocabulary of policy files: which block holds what.
type language struct {
	file, org, group, sandbox, match, limits shape
	allow, deny, tcp, passthrough, git       shape
	secret, bodyPlace                        shape
	graphql, jsonrpc                         shape // what a body may ask for
	test, request, expect                    shape
	alert, notify, mute                      shape
	variable                                 shape
}

// newLanguage returns the vocabulary of POLICY files as they are today.
func newLanguage() language {
	rules := []string{"allow", "deny", "tcp", "passthrough", "git"}
	common := []string{"addresses", "alert", "expires", "reason", "ticket"}
	with := func(more ...string) []string { return append(slices.Clone(common), more...) }
	return language{
		file: shape{noun: "a policy file", blocks: []string{"org", "group", "sandbox", "secret", "test", "alert", "notify", "mute",
			"locals", "variable", "dynamic"}},
		variable: shape{noun: "a variable block", attrs: []string{"default", "description"}},
		org:      shape{noun: "an org block", attrs: []string{"use", "any_host", "public_suffix", "metadata"}, blocks: rules},
		group:    shape{noun: "a group block", blocks: rules},
		sandbox: shape{noun: "a sandbox block",
			attrs:  []string{"use", "mode", "ipv6", "credentials", "labels"},
			blocks: append([]string{"match", "limits"}, rules...)},
		match: shape{noun: "a match block", attrs: []string{"cidrs", "interfaces", "macs"}},
		limits: shape{noun: "a limits block", attrs: []string{"requests_per_minute", "bytes_sent_per_day",
			"bytes_received_per_day", "connections", "max_request", "max_response"}},

		allow: shape{noun: "an allow block", attrs: with("access", "methods", "paths", "query", "headers", "ports", "schemes", "inject",
			"websocket", "encoded_slash", "foreign", "on_leak", "scrub"), blocks: []string{"limits", "graphql", "jsonrpc"}},
		graphql:     shape{noun: "a graphql block", attrs: []string{"operations", "fields", "max"}, required: []string{"operations"}},
		jsonrpc:     shape{noun: "a jsonrpc block", attrs: []string{"methods", "tools", "responses", "max"}, required: []string{"methods"}},
		deny:        shape{noun: "a deny block", attrs: []string{"alert", "expires", "methods", "paths", "ports", "reason", "schemes", "ticket"}},
		tcp:         shape{noun: "a tcp block", attrs: with(), blocks: []string{"limits"}},
		passthrough: shape{noun: "a passthrough block", attrs: with("ports"), blocks: []string{"limits"}},
		git: shape{noun: "a git block", attrs: with("access", "ports", "inject", "foreign", "on_leak", "scrub"),
			blocks: []string{"limits"}},

		secret: shape{noun: "a secret block", attrs: []string{"hosts", "placeholder", "headers", "query", "path",
			"websocket", "set", "ttl", "on_error"}, blocks: []string{"source", "body"}, required: []string{"hosts"}, elide: true},
		bodyPlace: shape{noun: "a body block", attrs: []string{"types", "max", "fields"}, required: []string{"types"}},

		test: shape{noun: "a test block", attrs: []string{"sandbox", "allow", "deny", "now"},
			blocks: []string{"request", "expect"}, required: []string{"sandbox"}},
		request: shape{noun: "a request block", attrs: []string{"method", "url", "headers", "body", "resolves"}, required: []string{"url"}},
		expect:  shape{noun: "an expect block", attrs: []string{"verdict", "reason", "inject"}, required: []string{"verdict"}},

		alert: shape{noun: "an alert block", attrs: []string{"detector", "reasons", "severity", "verdict", "kind", "sandbox", "host",
			"threshold", "window", "per", "distinct", "sum", "interval", "notify"}, required: []string{"notify"}},
		notify: shape{noun: "a notify block"},
		mute: shape{noun: "a mute block", attrs: []string{"until", "alerts", "reasons", "sandboxes", "hosts", "reason"},
			required: []string{"until"}},
	}
}

// shapes are the shapes whose names do not come from elsewhere.
func (l *language) shapes() []*shape {
	return []*shape{&l.org, &l.group, &l.sandbox, &l.match, &l.limits, &l.allow, &l.deny, &l.tcp, &l.passthrough,
		&l.git, &l.graphql, &l.jsonrpc, &l.secret, &l.bodyPlace, &l.test, &l.request, &l.expect, &l.alert, &l.mute}
}

// homes returns the blocks that have an attribute or block called name, as
// nouns, for a message about one that stands in the wrong place.
func (l *language) homes(name string) []string {
	var out []string
	for _, s := range l.shapes() {
		if slices.Contains(s.attrs, name) || slices.Contains(s.blocks, name) {
			out = append(out, s.noun)
		}
	}
	return out
}

// names returns every name of the language that does not stand at the top.
func (l *language) names() []string {
	var out []string
	for _, s := range l.shapes() {
		out = append(append(out, s.attrs...), s.blocks...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

package policy

import (
	"strings"
	"testing"
	"time"
)

// TestExplain holds that the explanation names the matcher that said no, and
// its verdict is the decider's.
func TestExplain(t *testing.T) {
	doc := sandboxDoc(
		allowRule("api.test", line(1), methods("GET"), paths("/repos/acme/**")),
		allowRule("*.wild.test", line(2)),
		allowRule("old.test", line(3), func(r *Rule) { r.Expires = now.Add(-time.Hour) }),
		ruleOf(ActionTCP, "db.test:5432", line(4)),
		ruleOf(ActionPassthrough, "pin.test", line(5)),
		denyRule("x.wild.test", line(6)),
		ruleOf(ActionGit, "git.test/acme/app", line(7), access("read")),
		allowRule("203.0.113.10", line(8), addresses("203.0.113.10/32"), paths("/v1/**")),
		denyRule("203.0.113.11", line(9)),
	)
	s := mustCompile(t, doc)
	name := request("GET", "203.0.113.12", "/")
	name.Stage = StageName
	for name, tt := range map[string]struct {
		r       Request
		reason  Reason
		stage   Stage
		line    int // of the rule that is looked at
		matcher string
		why     string
	}{
		"allowed":                {request("GET", "api.test", "/repos/acme/x"), RuleAllow, StageRequest, 1, "", ""},
		"method":                 {request("POST", "api.test", "/repos/acme/x"), MethodNotAllowed, StageRequest, 1, "method", "POST is not GET"},
		"path":                   {request("GET", "api.test", "/repos/evil"), PathNotAllowed, StageRequest, 1, "path", "/repos/evil is not /repos/acme/**"},
		"ambiguous":              {request("GET", "api.test", "/repos/acme/../x"), AmbiguousPath, StageRequest, 1, "path", "more than one way"},
		"encoded slash":          {request("GET", "api.test", "/repos/acme%2Fx"), AmbiguousPath, StageRequest, 1, "path", "encoded_slash"},
		"apex":                   {request("GET", "wild.test", "/"), HostNotAllowed, StageName, 2, "host", "not for wild.test itself"},
		"denied":                 {request("GET", "x.wild.test", "/"), HostDenied, StageName, 6, "", ""},
		"expired":                {request("GET", "old.test", "/"), RuleExpired, StageName, 3, "expires", "expired on"},
		"below":                  {request("GET", "a.api.test", "/"), HostNotAllowed, StageName, 1, "host", "for that name alone"},
		"relayed":                {request("GET", "pin.test", "/"), PassthroughAllow, StageConn, 5, "", ""},
		"port":                   {conn("db.test", 5433, TCP), PortNotAllowed, StageConn, 4, "port", "5433 is not 5432"},
		"push":                   {request("POST", "git.test", "/acme/app/git-receive-pack"), GitPushNotAllowed, StageRequest, 7, "method", "push"},
		"not of git":             {request("GET", "git.test", "/acme/app/issues"), PathNotAllowed, StageRequest, 7, "path", "none that git"},
		"never":                  {request("TRACE", "api.test", "/repos/acme/x"), MethodNotAllowed, StageRequest, 1, "method", "never forwarded"},
		"address":                {request("GET", "203.0.113.12", "/"), IPLiteral, StageName, 8, "host", "is not 203.0.113.10"},
		"address of IPv6":        {conn("2001:db8::1", 443, TCP), IPLiteral, StageName, 0, "", ""},
		"address that is denied": {request("GET", "203.0.113.11", "/"), IPLiteral, StageName, 9, "", ""},
		"address on its port":    {request("GET", "203.0.113.10", "/v1/x"), RuleAllow, StageRequest, 8, "", ""},
		"address, port":          {conn("203.0.113.10", 8443, HTTPS), IPLiteral, StageConn, 8, "port", "8443 is not 443"},
		"address, scheme":        {conn("203.0.113.10", 443, HTTP), SchemeNotAllowed, StageConn, 8, "scheme", ""},
		"address, path":          {request("GET", "203.0.113.10", "/x"), PathNotAllowed, StageRequest, 8, "path", "/x is not /v1/**"},
		"address asked of DNS":   {name, HostNotAllowed, StageName, 8, "host", ""},
		"DNS over TLS":           {conn("api.test", 853, TCP), DoTBlocked, StageConn, 1, "port", "853 is not 443"},
		"DNS over TLS, address":  {conn("203.0.113.12", 853, TCP), DoTBlocked, StageName, 8, "host", ""},
		"DNS over TLS, name":     {conn("a.api.test", 853, TCP), HostNotAllowed, StageName, 1, "host", ""},
		"no host at all":         {request("GET", "", "/"), BadHostname, StageName, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := s.Explain(tt.r)
			if e.Decision.Reason != tt.reason || e.Stage != tt.stage {
				t.Errorf("%s at stage %d, want %s at %d", e.Decision.Reason, e.Stage, tt.reason, tt.stage)
			}
			for _, f := range e.Rules {
				if f.Rule.Pos.Line != tt.line {
					continue
				}
				if f.Matcher != tt.matcher || !strings.Contains(f.Why, tt.why) || f.Matches != (tt.matcher == "") {
					t.Errorf("rule: %q %q matches %v", f.Matcher, f.Why, f.Matches)
				}
				return
			}
			if tt.line != 0 {
				t.Errorf("no word of the rule in %+v", e.Rules)
			}
		})
	}
}

// TestLint holds each lint to a rule that has it and one that has not.
func TestLint(t *testing.T) {
	doc := sandboxDoc(
		allowRule("a.test", line(1), methods("GET"), paths("/x/**")),
		allowRule("a.test", line(2), methods("GET"), paths("/x/y")),
		allowRule("*.b.test", line(3)),
		allowRule("c.b.test", line(4)),
		allowRule("d.b.test", line(5), inject("API_KEY")),
		allowRule("e.test", line(6)),
		denyRule("e.test", line(7)),
		allowRule("f.test", line(8), func(r *Rule) { r.Expires = now.Add(24 * time.Hour) }),
		allowRule("g.test", line(9), func(r *Rule) { r.Expires = now.Add(-time.Hour) }),
		allowRule("*.com", line(10)),
		allowRule("h.test", line(11)),
		allowRule("h.test", line(12)),
		allowRule("i.test", line(13), methods("GET")),
		denyRule("i.test", line(14), methods("POST")),
	)
	doc.Org = &Org{AnyHost: true, PublicSuffix: true, Rules: []Rule{allowRule("*")}}
	doc.Secrets = []Secret{{Name: "API_KEY", Hosts: []string{"d.b.test"}}}
	doc.Groups = []Group{{Name: "idle", Pos: Pos{File: "p.hcl", Line: 20}}}
	want := map[int]string{2: "adds nothing", 4: "adds nothing", 6: "can never allow", 8: "expires soon", 9: "has expired",
		10: "public suffix", 12: "adds nothing", 20: "nobody uses it"}
	got := map[int]string{}
	for _, p := range mustCompile(t, doc).Lint(LintOptions{Now: now, Within: 48 * time.Hour}) {
		if p.Severity != Warning {
			t.Errorf("%s is an error", p.Summary)
		}
		got[p.Pos.Line] += p.Summary
	}
	for line, text := range want {
		if !strings.Contains(got[line], text) {
			t.Errorf("line %d: %q, want %q", line, got[line], text)
		}
		delete(got, line)
	}
	if len(got) > 0 {
		t.Errorf("also reported: %v", got)
	}
}

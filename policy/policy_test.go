package policy

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// now is the instant at which tests decide.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func at(line int) Pos { return Pos{File: "p.hcl", Line: line, Column: 1} }

func allowRule(host string, edit ...func(*Rule)) Rule { return ruleOf(ActionAllow, host, edit...) }
func denyRule(host string, edit ...func(*Rule)) Rule  { return ruleOf(ActionDeny, host, edit...) }

func ruleOf(a Action, host string, edit ...func(*Rule)) Rule {
	r := Rule{Action: a, Host: host}
	for _, f := range edit {
		f(&r)
	}
	return r
}

func ports(p ...uint16) func(*Rule)     { return func(r *Rule) { r.Ports = p } }
func schemes(s ...Scheme) func(*Rule)   { return func(r *Rule) { r.Schemes = s } }
func methods(m ...string) func(*Rule)   { return func(r *Rule) { r.Methods = m } }
func paths(p ...string) func(*Rule)     { return func(r *Rule) { r.Paths = p } }
func access(a string) func(*Rule)       { return func(r *Rule) { r.Access = a } }
func expires(t time.Time) func(*Rule)   { return func(r *Rule) { r.Expires = t } }
func line(n int) func(*Rule)            { return func(r *Rule) { r.Pos = at(n) } }
func encodedSlash(r *Rule)              { r.EncodedSlash = true }
func noWebSocket(r *Rule)               { r.NoWebSocket = true }
func because(reason string) func(*Rule) { return func(r *Rule) { r.Reason = reason } }

func addresses(p ...string) func(*Rule) {
	return func(r *Rule) {
		for _, s := range p {
			r.Addresses = append(r.Addresses, netip.MustParsePrefix(s))
		}
	}
}

func inject(names ...string) func(*Rule) {
	return func(r *Rule) {
		for _, n := range names {
			r.Inject = append(r.Inject, Ref{Name: n, Pos: r.Pos})
		}
	}
}

// sandboxDoc is a policy of one sandbox "s1".
func sandboxDoc(rules ...Rule) Document {
	return Document{Sandboxes: []Sandbox{{Name: "s1", Rules: rules}}}
}

func mustCompile(t testing.TB, d Document) *Set {
	t.Helper()
	s, problems := Compile(d, 1)
	if s == nil {
		t.Fatalf("Compile: %v", summaries(problems))
	}
	return s
}

func summaries(problems []Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Pos.String()+" "+p.Summary+" | "+p.Detail+" | "+p.Hint)
	}
	return strings.Join(out, "\n")
}

// name, conn and get are attempts of sandbox s1 at the three stages.
func name(host string) Request {
	return Request{Sandbox: "s1", Stage: StageName, Host: host, Now: now}
}

func conn(host string, port uint16, s Scheme) Request {
	return Request{Sandbox: "s1", Stage: StageConn, Host: host, Port: port, Scheme: s, Now: now}
}

func request(method, host, path string) Request {
	return Request{Sandbox: "s1", Stage: StageRequest, Host: host, Port: 443, Scheme: HTTPS, Method: method, Path: path, Now: now}
}

func get(host, path string) Request { return request("GET", host, path) }

// wantReason fails unless the decision has the reason, and the verdict that
// goes with it.
func wantReason(t *testing.T, s *Set, r Request, want Reason) Decision {
	t.Helper()
	d := s.Decide(r)
	if d.Reason != want {
		t.Errorf("Decide(%s): reason %q (%s), want %q", describe(r), d.Reason, d.Message, want)
	}
	allows := want == RuleAllow || want == GroupAllow || want == PassthroughAllow || want == ReportMode
	if (d.Verdict == Allow) != allows {
		t.Errorf("Decide(%s): verdict %v with reason %q", describe(r), d.Verdict, d.Reason)
	}
	if d.Verdict == Deny && d.Message == "" {
		t.Errorf("Decide(%s): denied without a message", describe(r))
	}
	if d.Verdict == Deny && (d.Relay != RelayNone || d.Inject != nil) {
		t.Errorf("Decide(%s): a denial relays %v and injects %v", describe(r), d.Relay, d.Inject)
	}
	return d
}

func describe(r Request) string {
	switch r.Stage {
	case StageName:
		return "name " + r.Host
	case StageConn:
		return "conn " + r.Host
	}
	return r.Method + " " + r.Host + r.Path
}

// wantProblem fails unless Compile refuses the document with a problem that
// holds every one of the texts.
func wantProblem(t *testing.T, d Document, texts ...string) Problem {
	t.Helper()
	s, problems := Compile(d, 1)
	if s != nil {
		t.Errorf("Compile accepted what it should refuse with %q", texts)
	}
	for _, p := range problems {
		all := p.Summary + "\n" + p.Detail + "\n" + p.Hint
		hit := true
		for _, text := range texts {
			hit = hit && strings.Contains(all, text)
		}
		if hit {
			return p
		}
	}
	t.Errorf("no problem with %q in:\n%s", texts, summaries(problems))
	return Problem{}
}

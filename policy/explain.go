package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Explanation is a decision with the reason of every rule that took part in
// it, or could have.
type Explanation struct {
	Decision Decision
	Stage    Stage     // where it fell: the stage that denied, or the last one
	Rules    []RuleFit // those for the host, in the order in which they are named; then the nearest others
}

// RuleFit says whether one rule matches a request, and if not, why.
type RuleFit struct {
	Rule    *Rule
	Matches bool
	Matcher string // the one that said no: host, port, scheme, method, path, query, header, body, websocket, expires
	Why     string // in words; "" when the rule matches
}

// maxNear is how many rules for other hosts an explanation lists when there
// is none for the host.
const maxNear = 5

// Explain decides a request as the gateway does, stage by stage up to its
// own, and says what every rule had to do with it. A connection that is
// relayed unopened is not decided further. It is not a hot path.
func (s *Set) Explain(r Request) Explanation {
	var e Explanation
	e.Decision, e.Stage = s.walk(r)
	shown := r
	shown.Stage = max(r.Stage, e.Stage)
	if d := e.Decision; d.Verdict == Allow && (d.Relay == RelayTCP || d.Relay == RelayPassthrough) {
		shown.Stage = StageConn
	}
	if sb := s.sandboxes[r.Sandbox]; sb != nil && r.Host != "" {
		e.Rules = s.fits(&shown, &sb.members)
	}
	return e
}

// walk decides a request at each stage until one denies or relays.
func (s *Set) walk(r Request) (Decision, Stage) {
	at := r
	at.Stage, at.Scheme = StageName, SchemeAny
	d := s.Decide(at)
	if d.Verdict == Deny || r.Stage <= StageName {
		return dialled(&r, d), StageName
	}
	at.Stage = StageConn
	if d = s.Decide(at); d.Verdict == Deny || d.Relay == RelayTCP {
		return dialled(&r, d), StageConn
	}
	if r.Scheme != SchemeAny {
		at.Scheme = r.Scheme
		d = s.Decide(at)
	}
	if d.Verdict == Deny || d.Relay == RelayPassthrough || r.Stage == StageConn {
		return d, StageConn
	}
	return s.Decide(r), StageRequest
}

// portDoT is the port of DNS over TLS (RFC 7858).
const portDoT = 853

// dialled gives the denial of a connection the reason that the gateway records
// where it is the attempt that is wrong, more than what it is made to.
func dialled(r *Request, d Decision) Decision {
	if d.Verdict == Allow || r.Stage <= StageName || d.Reason == BadHostname || d.Reason == UnknownSandbox || d.Reason == PolicyUnavailable {
		return d
	}
	if IsIP(r.Host) {
		d = Decision{Reason: IPLiteral, Rule: d.Rule, Message: "addresses cannot be dialled directly; use a name that the policy allows"}
	}
	if r.Port == portDoT && (d.Reason == PortNotAllowed || d.Reason == IPLiteral) {
		d.Reason = DoTBlocked
	}
	return d
}

// fits matches the members' rules for the host of a request; where there are
// none, those for the hosts that are most like it.
func (s *Set) fits(r *Request, m *members) []RuleFit {
	q := query{Request: r}
	if r.Stage == StageRequest {
		q.path, q.ambiguous = NormalPath(r.Path)
	}
	rules := s.index.rules(HostPattern{kind: hostExact, name: r.Host}, m, nil)
	q.pathed = looksAtPaths(&q, rules)
	slices.SortStableFunc(rules, func(a, b *rule) int {
		switch {
		case a == b:
			return 0
		case a.like.Action == ActionDeny != (b.like.Action == ActionDeny):
			return cmp.Compare(a.like.Action, b.like.Action) // denials first
		case a.beats(b):
			return -1
		}
		return 1
	})
	out := make([]RuleFit, 0, len(rules))
	for _, x := range rules {
		out = append(out, x.explain(&q))
	}
	if !anyAllow(rules) {
		out = append(out, s.near(r.Host, m)...)
	}
	return out
}

// near returns the allow rules whose hosts are most like host.
func (s *Set) near(host string, m *members) []RuleFit {
	type candidate struct {
		r        *rule
		distance int
	}
	var list []candidate
	for _, r := range s.rulesIn(m) {
		if r.like.Action != ActionDeny && !r.host.Match(host) && len(list) < 10_000 {
			list = append(list, candidate{r, distance(host, r.host.name)})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var out []RuleFit
	for _, c := range list[:min(maxNear, len(list))] {
		out = append(out, RuleFit{Rule: c.r.source(), Matcher: "host", Why: hostWhy(host, c.r.host)})
	}
	return out
}

func hostWhy(host string, p HostPattern) string {
	switch {
	case p.kind == hostSuffix && p.name == host:
		return fmt.Sprintf("%s stands for the names below %s, not for %s itself", p, p.name, host)
	case p.kind == hostExact && strings.HasSuffix(host, "."+p.name):
		return fmt.Sprintf("%s is below %s; the rule is for that name alone", host, p.name)
	}
	return fmt.Sprintf("host %s is not %s", host, p)
}

// explain matches a rule for the request's host and says what failed first.
func (r *rule) explain(q *query) RuleFit {
	f := RuleFit{Rule: r.source()}
	o := r.fit(q)
	relays := q.Stage == StageRequest && r.relay() != RelayIntercept && r.like.Action != ActionDeny
	switch {
	case o.port == no:
		f.Matcher, f.Why = "port", fmt.Sprintf("port %d is not %s", q.Port, oneOfPorts(&r.ends))
	case relays:
		f.Matcher, f.Why = "scheme", "it relays bytes unopened, so it decides no request"
	case o.scheme == no:
		f.Matcher, f.Why = "scheme", spoken(q.Scheme)+" is not "+schemesText(r.ends.schemesAt(q.Port))
	case o.push:
		f.Matcher, f.Why = "method", `a push needs access = "write"`
	case o.method == no:
		f.Matcher, f.Why = "method", r.methodWhy(q)
	case o.path == no:
		f.Matcher, f.Why = "path", r.pathWhy(q)
	case o.query == no:
		f.Matcher, f.Why = "query", r.queryWhy(q)
	case o.header == no:
		f.Matcher, f.Why = "header", r.conditionWhy(q)
	case o.body == no && o.upgrade != no:
		f.Matcher, f.Why = "body", r.body.why(q.Body)
	case o.upgrade == no:
		f.Matcher, f.Why = "websocket", "the rule says websocket = false"
	case r.expired(q.Now):
		f.Matcher, f.Why = "expires", "it expired on "+dateText(r.source())
	default:
		f.Matches = true
	}
	return f
}

func (r *rule) methodWhy(q *query) string {
	if !forwardable(q.Method) && r.like.Action != ActionDeny {
		return "method " + q.Method + " is never forwarded"
	}
	if r.git != nil {
		return "git does not send " + q.Method + " there"
	}
	return fmt.Sprintf("method %s is not %s", q.Method, orText(r.methods.list))
}

func (r *rule) pathWhy(q *query) string {
	if q.ambiguous && r.like.Action != ActionDeny {
		if q.path.slash {
			return "the path holds an encoded slash, and the rule does not say encoded_slash = true"
		}
		return "the path can be read in more than one way"
	}
	if r.git != nil {
		return fmt.Sprintf("the path is none that git or git-lfs asks of repository %s", r.git)
	}
	if q.path.asterisk {
		return `"*" of OPTIONS is no path`
	}
	globs := make([]string, len(r.paths))
	for i := range r.paths {
		globs[i] = r.paths[i].String()
	}
	return fmt.Sprintf("path %s is not %s", q.Path, orText(globs))
}

func (r *rule) queryWhy(q *query) string {
	if r.git != nil {
		return "git does not ask with this query there"
	}
	if why := r.conditionWhy(q); why != "" {
		return why
	}
	return "the query has a parameter that the rule does not name, where the body is to say what is asked for"
}

func dateText(r *Rule) string { return r.Expires.UTC().Format("2006-01-02 15:04 MST") }

// orText joins words as "a, b or c".
func orText(words []string) string {
	const most = 8
	if len(words) > most {
		words = append(slices.Clone(words[:most]), fmt.Sprintf("%d others", len(words)-most))
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func oneOfPorts(e *endpointSet) string {
	words := make([]string, len(e.list))
	for i, x := range e.list {
		words[i] = strconv.Itoa(int(x.port))
	}
	return orText(words)
}

func schemesText(s schemeSet) string {
	var words []string
	for _, x := range []Scheme{HTTPS, HTTP, TCP} {
		if s.has(x) {
			words = append(words, schemeName(x))
		}
	}
	return orText(words)
}

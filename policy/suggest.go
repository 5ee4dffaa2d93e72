package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Blocked is one kind of attempt that was denied, or would have been outside
// of report mode, and how often. What is not known of it is zero.
type Blocked struct {
	Sandbox     string
	Host        string // canonical
	Port        uint16 // 0: a lookup
	Scheme      Scheme // SchemeAny: not known
	Method      string // "": no request was seen
	Path        string // as sent
	WebSocket   bool
	Reason      Reason
	Count       uint64
	First, Last time.Time
}

// Suggestion is the least that a sandbox would have to be allowed for what it
// was denied.
type Suggestion struct {
	Sandbox string
	Rules   []SuggestedRule
	Left    []LeftOut
}

// SuggestedRule is one rule with the attempts that it is for.
type SuggestedRule struct {
	Rule        Rule
	Count       uint64
	First, Last time.Time
	Reasons     []Reason
	Unseen      bool   // made from lookups or connections and no request: it lets through the least that lets those be
	Requests    uint64 // of an unseen rule: requests to the same host that are left out
	attempts    []Blocked
}

// LeftOut is an attempt that no rule is suggested for.
type LeftOut struct {
	Blocked
	Why string
}

// SuggestOptions bound what is suggested.
type SuggestOptions struct {
	Exact bool      // never join paths into a pattern
	Now   time.Time // at which rules may have expired
}

// suggestionFile stands for the file of suggested rules while they are tried.
const suggestionFile = "\x00suggestion"

// Suggest returns, for each sandbox of the policy in doc, the least rules that
// allow what was blocked: never more than the org allows, never what a deny
// rule denies, and never what was refused for another reason than that no
// rule allows it. Paths become a pattern only when enough of them were seen
// that differ in one segment. It fails when doc is no usable policy.
func Suggest(doc Document, list []Blocked, o SuggestOptions) ([]Suggestion, error) {
	set, problems := Compile(doc, 1)
	if set == nil {
		return nil, fmt.Errorf("the policy has errors: %s", problems[0].Summary)
	}
	by := map[string][]Blocked{}
	for _, b := range list {
		by[b.Sandbox] = append(by[b.Sandbox], b)
	}
	var out []Suggestion
	for _, name := range set.names {
		if len(by[name]) == 0 {
			continue
		}
		p := proposer{doc: doc, set: set, o: o, out: Suggestion{Sandbox: name}}
		p.propose(by[name])
		if len(p.out.Rules) > 0 || len(p.out.Left) > 0 {
			out = append(out, p.out)
		}
	}
	return out, nil
}

// proposer makes the suggestion for one sandbox.
type proposer struct {
	doc Document
	set *Set
	o   SuggestOptions
	out Suggestion
}

func (p *proposer) propose(list []Blocked) {
	open := p.open(list)
	rules := p.rules(open, p.o.Exact)
	if !p.o.Exact {
		rules = p.splitRefused(rules)
	}
	p.keepAllowed(rules)
	p.countLeft()
	slices.SortStableFunc(p.out.Rules, func(a, b SuggestedRule) int {
		return cmp.Or(cmp.Compare(a.Rule.Host, b.Rule.Host), cmp.Compare(a.Rule.Action, b.Rule.Action),
			slices.Compare(a.Rule.Ports, b.Rule.Ports), slices.Compare(a.Rule.Methods, b.Rule.Methods), slices.Compare(a.Rule.Paths, b.Rule.Paths))
	})
	slices.SortStableFunc(p.out.Left, func(a, b LeftOut) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method), cmp.Compare(a.Why, b.Why))
	})
}

// suggestible says whether a rule could have changed a denial, or why not.
func suggestible(r Reason) (why string) {
	switch r {
	case HostNotAllowed, PortNotAllowed, SchemeNotAllowed, NoRuleMatched, MethodNotAllowed, PathNotAllowed, RuleExpired, UpgradeNotAllowed,
		GitPushNotAllowed, NotTLS, NotHTTP:
		return ""
	case HostDenied:
		return "a deny rule denies it, and no allow rule can lift that"
	case AmbiguousPath:
		return "the path can be read in more than one way"
	case QueryNotAllowed:
		return "it was refused for its query, which is not in the log"
	case PlaceholderLeak, SecretExfiltration, PlaceholderPlace, PlaintextInjection:
		return "it would have sent a secret or its placeholder where that must not go"
	}
	return "it was not refused for want of a rule"
}

// open returns the attempts that a rule could allow and none does, joined
// where they differ in time alone.
func (p *proposer) open(list []Blocked) []Blocked {
	at := map[Blocked]int{}
	var out []Blocked
	for _, b := range list {
		why := p.hopeless(b)
		if why == "" && p.allowed(p.set, b) {
			continue
		}
		key := b
		key.Count, key.First, key.Last, key.Reason = 0, time.Time{}, time.Time{}, ""
		if why != "" {
			key.Reason = b.Reason
		}
		if i, ok := at[key]; ok {
			out[i].join(b)
			continue
		}
		at[key] = len(out)
		out = append(out, b)
	}
	seen := map[string]bool{} // host, and host and port, of which a request was seen
	for _, b := range out {
		if p.hopeless(b) == "" && b.Port != 0 {
			seen[b.Host] = true
			if b.Method != "" {
				seen[fmt.Sprint(b.Host, b.Port)] = true
			}
		}
	}
	return slices.DeleteFunc(out, func(b Blocked) bool {
		if why := p.hopeless(b); why != "" {
			p.leave(b, why)
			return true
		}
		return b.Port == 0 && seen[b.Host] || b.Port != 0 && b.Method == "" && seen[fmt.Sprint(b.Host, b.Port)]
	})
}

// hopeless says whether a rule could have changed the denial of an attempt,
// or why not. What was refused for its body or header a rule without conditions
// would let through, and much more.
func (p *proposer) hopeless(b Blocked) (why string) {
	if why = suggestible(b.Reason); why != "" || b.Method == "" {
		return why
	}
	r := p.attempt(b, "")
	if d, _ := p.set.walk(r); d.NeedsBody > 0 {
		return "it was refused for its body, which is not in the log"
	}
	if p.set.wantsHeader(&r) {
		return "it was refused for its header, which is not in the log"
	}
	return ""
}

// wantsHeader reports whether a rule would allow a request but for the header
// that it asks for.
func (s *Set) wantsHeader(r *Request) bool {
	q := query{Request: r}
	q.path, q.ambiguous = NormalPath(r.Path)
	rules := s.index.rules(HostPattern{kind: hostExact, name: r.Host}, &s.sandboxes[r.Sandbox].members, nil)
	q.pathed = looksAtPaths(&q, rules)
	return slices.ContainsFunc(rules, func(x *rule) bool {
		o := x.fit(&q)
		asks := o.header == no
		o.header = yes
		return asks && o.head() != no && x.like.Action != ActionDeny && !x.expired(r.Now)
	})
}

func (b *Blocked) join(o Blocked) {
	b.Count += o.Count
	if o.First.Before(b.First) {
		b.First = o.First
	}
	if o.Last.After(b.Last) {
		b.Last = o.Last
	}
}

func (p *proposer) leave(b Blocked, why string) {
	p.out.Left = append(p.out.Left, LeftOut{Blocked: b, Why: why})
}

// allowed reports whether a policy allows an attempt, other than by report
// mode.
func (p *proposer) allowed(s *Set, b Blocked) bool {
	queries := []string{""}
	if b.Method != "" && strings.HasSuffix(b.Path, "/info/refs") {
		queries = append(queries, "service=git-upload-pack") // the log has no values of a query
	}
	return slices.ContainsFunc(queries, func(query string) bool {
		d, _ := s.walk(p.attempt(b, query))
		return d.Verdict == Allow && d.Reason != ReportMode
	})
}

// attempt is what policy is asked about an attempt.
func (p *proposer) attempt(b Blocked, query string) Request {
	r := Request{Sandbox: b.Sandbox, Stage: StageRequest, Host: b.Host, Port: b.Port, Scheme: b.Scheme, Method: b.Method, Path: b.Path,
		Query: query, WebSocket: b.WebSocket, Now: p.o.Now}
	switch {
	case b.Port == 0:
		r.Stage = StageName
	case b.Method == "":
		r.Stage = StageConn
	case r.Scheme == SchemeAny:
		r.Scheme = HTTPS
	}
	return r
}

// splitRefused tries the rules, and takes those with patterns apart that the
// org does not cover.
func (p *proposer) splitRefused(rules []SuggestedRule) []SuggestedRule {
	bad := p.refused(rules)
	var out []SuggestedRule
	for i, r := range rules {
		if bad[i] == "" || r.Rule.Action != ActionAllow {
			out = append(out, r)
			continue
		}
		out = append(out, p.rules(r.attempts, true)...)
	}
	return out
}

// refused compiles the policy with the rules in it, and returns what is wrong
// with each; "" for a rule that compiles.
func (p *proposer) refused(rules []SuggestedRule) map[int]string {
	out := map[int]string{}
	_, problems := Compile(p.with(rules), 1)
	for _, x := range problems {
		for _, pos := range append([]Pos{x.Pos}, x.Related...) {
			if pos.File == suggestionFile && x.Severity == Error && out[pos.Line-1] == "" {
				out[pos.Line-1] = x.Summary
			}
		}
	}
	return out
}

// with returns the policy with rules added to the sandbox, which enforces.
func (p *proposer) with(rules []SuggestedRule) Document {
	d := p.doc
	d.Sandboxes = slices.Clone(d.Sandboxes)
	for i := range d.Sandboxes {
		sb := &d.Sandboxes[i]
		if sb.Name != p.out.Sandbox {
			continue
		}
		sb.Mode = Enforce
		sb.Rules = slices.Clone(sb.Rules)
		for n, r := range rules {
			r.Rule.Pos = Pos{File: suggestionFile, Line: n + 1, Column: 1}
			sb.Rules = append(sb.Rules, r.Rule)
		}
	}
	return d
}

// keepAllowed keeps the rules that compile and allow what they are for.
func (p *proposer) keepAllowed(rules []SuggestedRule) {
	for {
		bad := p.refused(rules)
		if len(bad) == 0 {
			break
		}
		var kept []SuggestedRule
		for i, r := range rules {
			if bad[i] == "" {
				kept = append(kept, r)
				continue
			}
			if len(r.attempts) > 1 { // some of them may be fine
				kept = append(kept, p.apart(r)...)
				continue
			}
			for _, b := range r.attempts {
				p.leave(b, withoutTitle(bad[i]))
			}
		}
		rules = kept
	}
	set, _ := Compile(p.with(rules), 1)
	for _, r := range rules {
		var ok []Blocked
		for _, b := range r.attempts {
			if p.allowed(set, b) {
				ok = append(ok, b)
			} else {
				p.leave(b, "a deny rule denies it, and no allow rule can lift that")
			}
		}
		switch {
		case len(ok) == len(r.attempts):
			p.out.Rules = append(p.out.Rules, r)
		case len(ok) > 0:
			p.out.Rules = append(p.out.Rules, p.rules(ok, true)...)
		}
	}
}

// apart makes a rule of each attempt that a refused rule was for, and joins
// those again that are refused no more, where they are not all.
func (p *proposer) apart(r SuggestedRule) []SuggestedRule {
	var each []SuggestedRule
	for _, b := range r.attempts {
		each = append(each, p.rules([]Blocked{b}, true)...)
	}
	bad := p.refused(each)
	if len(bad) == 0 {
		return each
	}
	var fine []Blocked
	var rest []SuggestedRule
	for i, x := range each {
		if bad[i] == "" {
			fine = append(fine, x.attempts...)
		} else {
			rest = append(rest, x)
		}
	}
	return append(rest, p.rules(fine, true)...)
}

// withoutTitle takes the name of the rule off a problem.
func withoutTitle(summary string) string {
	if _, rest, ok := strings.Cut(summary, `": `); ok {
		return rest
	}
	return summary
}

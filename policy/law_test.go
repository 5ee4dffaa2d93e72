package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The generators draw from few values, so that rules meet one another and the
// requests that are tried.
var (
	lawHosts   = []string{"a.test", "b.a.test", "c.b.a.test", "d.test"}
	lawPorts   = []uint16{80, 443, 8443}
	lawSchemes = []Scheme{HTTPS, HTTP, TCP}
	lawMethods = []string{"GET", "POST", "DELETE", "CONNECT", ""}
	lawPaths   = []string{"/", "/x", "/x/y", "/x/y/z", "/x%2Fy", "/x/../y", "/x;p/y", "*", "/o/r/info/refs"}
)

// byteSource turns fuzzed bytes into choices; past their end it chooses 0.
type byteSource struct{ b []byte }

func (s *byteSource) pick(n int) int {
	if len(s.b) == 0 {
		return 0
	}
	c := int(s.b[0])
	s.b = s.b[1:]
	return c % n
}

func choose[T any](s *byteSource, list ...T) T { return list[s.pick(len(list))] }

// chooseSome returns one or two members, or none.
func chooseSome[T any](s *byteSource, list []T) []T {
	var out []T
	for range s.pick(3) {
		out = append(out, choose(s, list...))
	}
	return out
}

func drawRule(s *byteSource) Rule {
	host := choose(s, "a.test", "*.a.test", "b.a.test", "*.b.a.test", "c.b.a.test", "d.test", "*")
	action := choose(s, ActionAllow, ActionDeny, ActionAllow, ActionDeny, ActionAllow, ActionTCP, ActionPassthrough, ActionGit)
	r := Rule{Action: action, Host: host}
	switch action {
	case ActionTCP:
		r.Ports = []uint16{choose(s, lawPorts...)}
	case ActionPassthrough:
		r.Ports = chooseSome(s, lawPorts)
	case ActionGit:
		r.Repo, r.Access = "o/r", choose(s, "read", "write")
	default:
		r.Ports = chooseSome(s, lawPorts)
		r.Schemes = chooseSome(s, []Scheme{HTTPS, HTTP})
		r.Methods = chooseSome(s, []string{"GET", "POST"})
		r.Paths = chooseSome(s, []string{"/", "/x", "/x/**", "/*", "/x/y"})
		r.EncodedSlash = choose(s, false, true)
		r.NoWebSocket = choose(s, false, true)
		if action == ActionAllow && s.pick(3) == 2 {
			drawBody(s, &r)
		}
	}
	if action != ActionDeny && s.pick(4) == 3 {
		r.Expires = choose(s, now, now.Add(time.Hour))
	}
	return r
}

// drawDocument draws a policy of an optional org, a group and sandbox s1.
func drawDocument(s *byteSource) Document {
	doc := Document{Groups: []Group{{Name: "g"}}, Sandboxes: []Sandbox{{Name: "s1", Use: []Ref{{Name: "g"}}}}}
	for range s.pick(6) + 1 {
		doc.Sandboxes[0].Rules = append(doc.Sandboxes[0].Rules, drawRule(s))
	}
	for range s.pick(4) {
		doc.Groups[0].Rules = append(doc.Groups[0].Rules, drawRule(s))
	}
	doc.Org = &Org{AnyHost: true, PublicSuffix: true, Use: []Ref{{Name: "g"}}}
	for range s.pick(4) {
		doc.Org.Rules = append(doc.Org.Rules, drawRule(s))
	}
	if s.pick(2) == 0 {
		// Half of the policies get a ceiling that everything fits under.
		doc.Org.Rules = append(doc.Org.Rules, ceilingOver(doc.Sandboxes[0].Rules)...)
	}
	if s.pick(4) == 3 {
		doc.Sandboxes[0].Mode = Report
	}
	return doc
}

func ceilingOver(rules []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return r.Action == ActionDeny })
}

// lawRequests are all requests to one host, port and scheme that are tried.
func lawRequests(host string, port uint16, scheme Scheme) []Request {
	var out []Request
	for _, method := range lawMethods {
		for _, path := range lawPaths {
			r := Request{Sandbox: "s1", Stage: StageRequest, Host: host, Port: port, Scheme: scheme, Method: method, Path: path, Now: now}
			if path == "/o/r/info/refs" {
				r.Query = "service=git-upload-pack"
			}
			out = append(out, r)
		}
	}
	ws := Request{Sandbox: "s1", Stage: StageRequest, Host: host, Port: port, Scheme: scheme, Method: "GET", Path: "/x", WebSocket: true, Now: now}
	for _, b := range lawBodies() {
		r := Request{Sandbox: "s1", Stage: StageRequest, Host: host, Port: port, Scheme: scheme, Method: "POST", Path: "/x", Body: b, Now: now}
		out = append(out, r)
	}
	return append(out, ws)
}

// checkStageLaw holds that a later stage takes back an allow, never a denial.
func checkStageLaw(s *Set) error {
	for _, host := range lawHosts {
		byName := s.Decide(name(host))
		for _, port := range lawPorts {
			unseen := s.Decide(conn(host, port, SchemeAny))
			if byName.Verdict == Deny && unseen.Verdict == Allow {
				return fmt.Errorf("%s: the name is denied (%s), port %d is not", host, byName.Reason, port)
			}
			for _, scheme := range lawSchemes {
				seen := s.Decide(conn(host, port, scheme))
				if unseen.Verdict == Deny && seen.Verdict == Allow {
					return fmt.Errorf("%s:%d is denied (%s) before scheme %d is seen, not after", host, port, unseen.Reason, scheme)
				}
				for _, r := range lawRequests(host, port, scheme) {
					if d := s.Decide(r); seen.Verdict == Deny && d.Verdict == Allow {
						return fmt.Errorf("%s:%d scheme %d is denied (%s), %s %s on it is not", host, port, scheme, seen.Reason, r.Method, r.Path)
					}
				}
			}
		}
	}
	return nil
}

// checkLastStage holds that nothing is maybe once everything is known.
func checkLastStage(s *Set) error {
	for _, id := range s.sandboxes["s1"].members.ids {
		byPattern := map[HostPattern][]*rule{}
		for _, r := range s.sets[id].rules {
			byPattern[r.host] = append(byPattern[r.host], r)
		}
		for _, rules := range byPattern {
			if err := neverMaybe(rules); err != nil {
				return err
			}
		}
	}
	return nil
}

func neverMaybe(rules []*rule) error {
	for _, r := range rules {
		for _, port := range append(lawPorts, 0) {
			for _, scheme := range append(lawSchemes, SchemeAny) {
				for _, req := range lawRequests("a.test", port, scheme) {
					q := query{Request: &req}
					q.path, q.ambiguous = NormalPath(req.Path)
					o := r.fit(&q)
					for _, f := range []fit{o.port, o.scheme, o.method, o.path, o.query, o.header, o.upgrade, o.body} {
						if f == maybe {
							return fmt.Errorf("%s is maybe at the last stage: %+v", r.title(), o)
						}
					}
				}
			}
		}
	}
	return nil
}

func FuzzStageLaw(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{5, 0, 0, 2, 1, 2, 1, 0, 1, 1, 1, 2, 3, 1, 0, 4, 3, 2, 1, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 0, 0, 1})
	f.Add([]byte{1, 6, 6, 1, 1, 0, 1, 1, 2, 1, 1, 2, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 3})
	f.Add([]byte("the quick brown fox jumps over the lazy dog and on to the next hill"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, _ := Compile(drawDocument(&byteSource{b}), 1)
		if s == nil {
			return
		}
		if err := checkStageLaw(s); err != nil {
			t.Fatal(err)
		}
		if err := checkLastStage(s); err != nil {
			t.Fatal(err)
		}
	})
}

func docGen() *rapid.Generator[Document] {
	return rapid.Custom(func(t *rapid.T) Document {
		return drawDocument(&byteSource{rapid.SliceOfN(rapid.Byte(), 20, 150).Draw(t, "document")})
	})
}

// everyRequest calls f for an attempt of each kind at each stage.
func everyRequest(f func(Request)) {
	for _, host := range lawHosts {
		f(name(host))
		for _, port := range lawPorts {
			f(conn(host, port, SchemeAny))
			for _, scheme := range lawSchemes {
				f(conn(host, port, scheme))
				for _, r := range lawRequests(host, port, scheme) {
					f(r)
				}
			}
		}
	}
}

func TestStageLaw(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(t *rapid.T) {
		s, _ := Compile(docGen().Draw(t, "doc"), 1)
		if s == nil {
			return
		}
		compiled++
		if err := checkStageLaw(s); err != nil {
			t.Fatal(err)
		}
	})
	if compiled == 0 {
		t.Error("no drawn policy compiled, so the law was not tried")
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(t *rapid.T) {
		doc := docGen().Draw(t, "doc")
		n := 0
		for _, rules := range [][]Rule{doc.Org.Rules, doc.Groups[0].Rules, doc.Sandboxes[0].Rules} {
			for i := range rules {
				n++
				rules[i].Pos = at(n)
			}
		}
		a, _ := Compile(doc, 1)
		doc.Sandboxes[0].Rules = rapid.Permutation(doc.Sandboxes[0].Rules).Draw(t, "rules")
		doc.Groups[0].Rules = rapid.Permutation(doc.Groups[0].Rules).Draw(t, "group")
		doc.Org.Rules = rapid.Permutation(doc.Org.Rules).Draw(t, "org")
		b, _ := Compile(doc, 1)
		if (a == nil) != (b == nil) {
			t.Fatalf("one order compiles, the other does not")
		}
		if a == nil {
			return
		}
		compiled++
		everyRequest(func(r Request) {
			x, y := a.Decide(r), b.Decide(r)
			if x.Verdict != y.Verdict || x.Reason != y.Reason || x.Relay != y.Relay || rulePos(x.Rule) != rulePos(y.Rule) {
				t.Fatalf("%s: %v %s %v or %v %s %v, by the order of rules", describe(r), x.Verdict, x.Reason, rulePos(x.Rule), y.Verdict, y.Reason, rulePos(y.Rule))
			}
		})
	})
	if compiled == 0 {
		t.Error("no drawn policy compiled, so order was not tried")
	}
}

func rulePos(r *Rule) Pos {
	if r == nil {
		return Pos{}
	}
	return r.Pos
}

// TestDenyWins holds that a denial added to a policy allows nothing that was
// denied before, and that what an unconditional one names is denied whatever
// else stands in the policy.
func TestDenyWins(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(t *rapid.T) {
		doc := docGen().Draw(t, "doc")
		doc.Sandboxes[0].Mode = Enforce
		host := rapid.SampledFrom(lawHosts).Draw(t, "host")
		before, _ := Compile(doc, 1)
		if before == nil {
			return
		}
		compiled++
		where := rapid.SampledFrom([]*[]Rule{&doc.Sandboxes[0].Rules, &doc.Groups[0].Rules, &doc.Org.Rules}).Draw(t, "where")
		*where = append(slices.Clone(*where), denyRule(host))
		after := mustCompileRapid(t, doc)
		everyRequest(func(r Request) {
			d := after.Decide(r)
			if r.Host == host && d.Reason != HostDenied {
				t.Fatalf("%s: %v %s although %s is denied", describe(r), d.Verdict, d.Reason, host)
			}
			if d.Verdict == Allow && before.Decide(r).Verdict == Deny {
				t.Fatalf("%s: a denial allowed it", describe(r))
			}
		})
	})
	if compiled == 0 {
		t.Error("no drawn policy compiled, so denial was not tried")
	}
}

func mustCompileRapid(t *rapid.T, doc Document) *Set {
	s, problems := Compile(doc, 1)
	if s == nil {
		t.Fatalf("Compile: %s", summaries(problems))
	}
	return s
}

// TestCeilingIsSound holds that what compiles under an org allows nothing
// that the org's own rules would not allow as a sandbox's.
func TestCeilingIsSound(t *testing.T) {
	tried := 0
	rapid.Check(t, func(t *rapid.T) {
		doc := docGen().Draw(t, "doc")
		s, _ := Compile(doc, 1)
		if s == nil {
			return
		}
		everyRequest(func(r Request) {
			d := s.Decide(r)
			if _, ambiguous := NormalPath(r.Path); ambiguous && r.Stage == StageRequest {
				return // whether it is refused depends on all rules of a host
			}
			// What an org lets through unopened it allows as requests too.
			if d.Verdict == Deny || opaqueCeiling(s, r) {
				return
			}
			tried++
			q := query{Request: &r}
			if r.Stage == StageRequest {
				q.path, q.ambiguous = NormalPath(r.Path)
			}
			if org := s.decide(&q, s.ceiling); org.Verdict == Deny {
				t.Fatalf("%s port %d scheme %d: allowed (%s by %+v), the org says %s", describe(r), r.Port, r.Scheme, d.Reason, d.Rule, org.Reason)
			}
		})
	})
	if tried == 0 {
		t.Error("nothing was allowed, so the ceiling was not tried")
	}
}

// opaqueCeiling reports whether the org relays the host and port unopened.
func opaqueCeiling(s *Set, r Request) bool {
	for _, x := range s.index.rules(HostPattern{kind: hostExact, name: r.Host}, s.ceiling, nil) {
		if x.relay() != RelayIntercept && x.like.Action != ActionDeny && (r.Stage == StageName || x.ends.hasPort(r.Port)) {
			return true
		}
	}
	return false
}

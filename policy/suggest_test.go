package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func blocked(method, host, path string, reason Reason) Blocked {
	return Blocked{Sandbox: "s1", Host: host, Port: 443, Scheme: HTTPS, Method: method, Path: path, Reason: reason, Count: 1, First: now, Last: now}
}

func suggestFor(t *testing.T, doc Document, exact bool, list ...Blocked) Suggestion {
	t.Helper()
	out, err := Suggest(doc, list, SuggestOptions{Exact: exact, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		return Suggestion{}
	}
	return out[0]
}

func describeRule(r Rule) string {
	return fmt.Sprintf("%s %s%s %v %s %q %q ws=%v slash=%v", r.Action, r.Host, strings.TrimPrefix("/"+r.Repo, "/"), r.Ports, r.Access, r.Methods, r.Paths, !r.NoWebSocket, r.EncodedSlash)
}

// TestSuggest holds what is suggested for each kind of evidence.
func TestSuggest(t *testing.T) {
	numbers := []Blocked{}
	for _, n := range []string{"1", "22", "333"} {
		numbers = append(numbers, blocked("GET", "new.test", "/pulls/"+n+"/files", HostNotAllowed))
	}
	names := []Blocked{}
	for _, n := range []string{"login", "search", "cart"} {
		names = append(names, blocked("GET", "new.test", "/"+n, HostNotAllowed))
	}
	ws := blocked("GET", "new.test", "/socket", HostNotAllowed)
	ws.WebSocket = true
	db := Blocked{Sandbox: "s1", Host: "db.test", Port: 5432, Reason: HostNotAllowed, Count: 1}
	for name, tt := range map[string]struct {
		list []Blocked
		want []string
	}{
		"one request":      {[]Blocked{blocked("POST", "new.test", "/v1/x", HostNotAllowed)}, []string{`allow new.test [] "" ["POST"] ["/v1/x"] ws=true slash=false`}},
		"a read":           {[]Blocked{blocked("GET", "new.test", "/v1/x", HostNotAllowed)}, []string{`allow new.test [] "" ["GET"] ["/v1/x"] ws=false slash=false`}},
		"numbers join":     {numbers, []string{`allow new.test [] "" ["GET"] ["/pulls/*/files"] ws=false slash=false`}},
		"names do not":     {names, []string{`allow new.test [] "" ["GET"] ["/cart" "/login" "/search"] ws=false slash=false`}},
		"WebSocket":        {[]Blocked{ws}, []string{`allow new.test [] "" ["GET"] ["/socket"] ws=true slash=false`}},
		"encoded slash":    {[]Blocked{blocked("GET", "new.test", "/@a%2fb", HostNotAllowed)}, []string{`allow new.test [] "" ["GET"] ["/@a%2Fb"] ws=false slash=true`}},
		"a lookup":         {[]Blocked{{Sandbox: "s1", Host: "new.test", Reason: HostNotAllowed, Count: 1}}, []string{`allow new.test [] "" ["GET"] ["/"] ws=false slash=false`}},
		"raw TCP":          {[]Blocked{db}, []string{`tcp db.test [5432] "" [] [] ws=true slash=false`}},
		"clone":            {[]Blocked{blocked("GET", "git.test", "/a/b.git/info/refs", HostNotAllowed), blocked("POST", "git.test", "/a/b.git/git-upload-pack", HostNotAllowed)}, []string{`git git.testa/b [] "read" [] [] ws=true slash=false`}},
		"push":             {[]Blocked{blocked("POST", "git.test", "/a/b/git-receive-pack", GitPushNotAllowed)}, []string{`git git.testa/b [] "write" [] [] ws=true slash=false`}},
		"denied":           {[]Blocked{blocked("GET", "evil.test", "/", HostDenied)}, nil},
		"a leak":           {[]Blocked{blocked("GET", "new.test", "/", PlaceholderLeak)}, nil},
		"beyond the org":   {[]Blocked{blocked("GET", "far.example", "/", HostNotAllowed)}, nil},
		"ambiguous":        {[]Blocked{blocked("GET", "new.test", "/a/../b", AmbiguousPath)}, nil},
		"allowed by now":   {[]Blocked{blocked("GET", "old.test", "/", HostNotAllowed)}, nil},
		"a literal star":   {[]Blocked{blocked("GET", "new.test", "/a*", HostNotAllowed)}, nil},
		"request and name": {[]Blocked{{Sandbox: "s1", Host: "new.test", Reason: HostNotAllowed}, blocked("PUT", "new.test", "/x", HostNotAllowed)}, []string{`allow new.test [] "" ["PUT"] ["/x"] ws=true slash=false`}},
	} {
		t.Run(name, func(t *testing.T) {
			doc := sandboxDoc(allowRule("old.test"), denyRule("evil.test"))
			doc.Org = &Org{PublicSuffix: true, Rules: []Rule{allowRule("*.test"), ruleOf(ActionTCP, "*.test:5432")}}
			s := suggestFor(t, doc, false, tt.list...)
			var got []string
			for _, r := range s.Rules {
				got = append(got, strings.Replace(describeRule(r.Rule), `[]  [`, `[] "" [`, 1))
			}
			for i := range got {
				got[i] = strings.Replace(strings.Replace(got[i], "] read [", `] "read" [`, 1), "] write [", `] "write" [`, 1)
				got[i] = strings.Replace(got[i], "[5432]  [", `[5432] "" [`, 1)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q; left %+v", got, tt.want, s.Left)
			}
			if tt.want == nil && name != "allowed by now" && len(s.Left) == 0 {
				t.Error("nothing is said of what is left out")
			}
		})
	}
}

// TestSuggestCountsRequestsLeftOut: a rule made from a lookup or a connection
// says so, and of how many requests none became a rule.
func TestSuggestCountsRequestsLeftOut(t *testing.T) {
	lookup := Blocked{Sandbox: "s1", Host: "new.test", Reason: HostNotAllowed, Count: 1}
	dial := Blocked{Sandbox: "s1", Host: "new.test", Port: 443, Reason: HostNotAllowed, Count: 1}
	elsewhere := blocked("GET", "new.test", "/", PlaceholderLeak)
	elsewhere.Port = 8443
	for name, tt := range map[string]struct {
		list     []Blocked
		lookup   bool
		requests uint64
	}{
		"a lookup":                       {[]Blocked{lookup}, true, 0},
		"a connection":                   {[]Blocked{lookup, dial}, false, 0},
		"a lookup and requests":          {[]Blocked{lookup, blocked("GET", "new.test", "/", PlaceholderLeak), blocked("PUT", "new.test", "/x", RateLimited)}, true, 2},
		"a connection and a request":     {[]Blocked{lookup, dial, blocked("GET", "new.test", "/", ResolvesPrivate)}, false, 1},
		"a request on another port":      {[]Blocked{dial, elsewhere}, false, 0},
		"a request for another name":     {[]Blocked{lookup, blocked("GET", "other.test", "/", PlaceholderLeak)}, true, 0},
		"a lookup that could not be had": {[]Blocked{lookup, {Sandbox: "s1", Host: "new.test", Reason: ResolveFailed, Count: 1}}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := suggestFor(t, sandboxDoc(), false, tt.list...)
			if len(s.Rules) != 1 {
				t.Fatalf("rules %+v", s.Rules)
			}
			if r := s.Rules[0]; !r.Unseen || r.Lookup() != tt.lookup || r.Requests != tt.requests {
				t.Errorf("unseen %v, lookup %v, %d requests; want lookup %v, %d requests", r.Unseen, r.Lookup(), r.Requests, tt.lookup, tt.requests)
			}
		})
	}
}

// TestSuggestRoundTrip: with the suggested rules exactly what was blocked and
// is not left out is allowed besides what was.
func TestSuggestRoundTrip(t *testing.T) {
	kept := 0
	rapid.Check(t, func(t *rapid.T) {
		src := &byteSource{b: rapid.SliceOfN(rapid.Byte(), 40, 200).Draw(t, "bytes")}
		doc := drawDocument(src)
		if src.pick(2) == 0 {
			doc.Org = nil
		}
		doc.Sandboxes[0].Mode = Enforce
		set, _ := Compile(doc, 1)
		if set == nil {
			return
		}
		var all []Request
		for _, host := range lawHosts {
			for _, port := range lawPorts {
				for _, scheme := range []Scheme{HTTPS, HTTP} {
					all = append(all, lawRequests(host, port, scheme)...)
				}
			}
		}
		all = slices.DeleteFunc(all, func(r Request) bool { return strings.HasPrefix(r.Path, "/o/") || !forwardable(r.Method) })
		var list []Blocked
		evidence, handshakes := map[string]bool{}, map[string]bool{}
		for range src.pick(8) + 1 {
			r := all[(src.pick(256)*256+src.pick(256))%len(all)]
			if d, _ := set.walk(r); d.Verdict == Deny {
				list = append(list, Blocked{Sandbox: "s1", Host: r.Host, Port: r.Port, Scheme: r.Scheme, Method: r.Method, Path: r.Path, WebSocket: r.WebSocket, Reason: d.Reason, Count: 1})
			}
		}
		out, err := Suggest(doc, list, SuggestOptions{Exact: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if len(out) == 0 {
			return
		}
		key := func(host string, port uint16, s Scheme, method, path string, ws bool) string {
			if p, ambiguous := NormalPath(path); !ambiguous || p.slash {
				path = p.String()
			}
			return fmt.Sprint(host, port, s, method, " ", path, ws)
		}
		for _, r := range out[0].Rules {
			for _, b := range r.attempts {
				kept++
				evidence[key(b.Host, b.Port, b.Scheme, b.Method, b.Path, b.WebSocket)] = true
				if b.WebSocket {
					handshakes[key(b.Host, b.Port, b.Scheme, b.Method, b.Path, false)] = true // it is a GET too
				}
			}
		}
		p := proposer{doc: doc, out: Suggestion{Sandbox: "s1"}}
		after, problems := Compile(p.with(out[0].Rules), 2)
		if after == nil {
			t.Fatalf("the suggestion does not load: %v", problems)
		}
		for _, r := range all {
			was, _ := set.walk(r)
			is, _ := after.walk(r)
			if k := key(r.Host, r.Port, r.Scheme, r.Method, r.Path, r.WebSocket); was.Verdict == Deny && (is.Verdict == Allow) != evidence[k] && !handshakes[k] {
				t.Fatalf("allowed %v, evidence %v: %+v\nrules %+v", is.Verdict, evidence[k], r, out[0].Rules)
			}
		}
	})
	if kept == 0 {
		t.Error("no evidence made a rule")
	}
}

// TestSuggestNotForConditions: what a condition on body or header refused is
// left out, because no rule that the log could tell of is as narrow.
func TestSuggestNotForConditions(t *testing.T) {
	rule := allowRule("g.test", line(1))
	rule.GraphQL = &GraphQL{Operations: []string{"query"}}
	header := allowRule("h.test", line(2))
	header.Headers = map[string][]string{"X-Env": {"staging"}}
	out, err := Suggest(sandboxDoc(rule, header), []Blocked{
		{Sandbox: "s1", Host: "h.test", Port: 443, Scheme: HTTPS, Method: "POST", Path: "/", Reason: NoRuleMatched, Count: 1, First: now, Last: now},
		{Sandbox: "s1", Host: "g.test", Port: 443, Scheme: HTTPS, Method: "POST", Path: "/graphql", Reason: MethodNotAllowed, Count: 1, First: now, Last: now},
		{Sandbox: "s1", Host: "g.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/x", Reason: MethodNotAllowed, Count: 1, First: now, Last: now},
	}, SuggestOptions{Now: now})
	if err != nil || len(out) != 1 {
		t.Fatal(out, err)
	}
	if rules := out[0].Rules; len(rules) != 1 || !slices.Equal(rules[0].Rule.Methods, []string{"GET"}) {
		t.Errorf("rules %+v", rules)
	}
	if left := out[0].Left; len(left) != 2 || left[0].Method != "POST" || !strings.Contains(left[0].Why, "body") || !strings.Contains(left[1].Why, "header") {
		t.Errorf("left out %+v", left)
	}
}

// TestSuggestWhatTheOrgAllows: of attempts that make one rule, those are kept
// that the org covers.
func TestSuggestWhatTheOrgAllows(t *testing.T) {
	read := allowRule("*.test")
	read.Methods = []string{"GET", "HEAD"}
	old := read
	old.Host = "old.test"
	doc := sandboxDoc(old)
	doc.Org = &Org{PublicSuffix: true, Rules: []Rule{read}}
	s := suggestFor(t, doc, false, blocked("GET", "new.test", "/q", HostNotAllowed), blocked("POST", "new.test", "/q", HostNotAllowed),
		blocked("HEAD", "new.test", "/q", HostNotAllowed))
	if len(s.Rules) != 1 || !slices.Equal(s.Rules[0].Rule.Methods, []string{"GET", "HEAD"}) {
		t.Errorf("suggested %+v", s.Rules)
	}
	if len(s.Left) != 1 || s.Left[0].Method != "POST" || !strings.Contains(s.Left[0].Why, "POST") {
		t.Errorf("left out: %+v", s.Left)
	}
}

package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestCeiling(t *testing.T) {
	org := []Rule{
		allowRule("api.test", line(1), methods("GET", "POST"), paths("/v1/**", "/ping")),
		allowRule("api.test", line(2), methods("GET"), paths("/v2/*")),
		allowRule("*.wide.test", line(3), schemes(HTTP, HTTPS)),
		allowRule("port.test", line(4), ports(443, 8443)),
		allowRule("git.test", line(5)),
		ruleOf(ActionTCP, "db.test:5432", line(6)),
		ruleOf(ActionPassthrough, "pinned.test", line(7)),
		allowRule("quiet.test", line(8), noWebSocket),
		allowRule("lan.test", line(9), addresses("10.0.0.0/8")),
		ruleOf(ActionGit, "code.test/acme/*", line(10)),
		allowRule("npm.test", line(11), paths("/*"), encodedSlash),
		allowRule("brief.test", line(12), expires(now)),
	}
	for title, tt := range map[string]struct {
		r    Rule
		says string // "": covered
		near int    // line of the nearest org rule
	}{
		"host":                     {allowRule("evil.test"), `host "evil.test"`, 1},
		"look-alike":               {allowRule("api.test.evil.test"), `host "api.test.evil.test"`, 1},
		"any method":               {allowRule("api.test", paths("/v1/x")), "any method", 1},
		"one method too many":      {allowRule("api.test", methods("GET", "PUT"), paths("/v1/x")), "method PUT", 1},
		"read":                     {allowRule("api.test", access("read"), paths("/v1/x")), "method HEAD", 1},
		"paths":                    {allowRule("api.test", methods("GET"), paths("/v1/**")), "", 0},
		"paths of two org rules":   {allowRule("api.test", methods("GET"), paths("/v1/a", "/v2/b", "/ping")), "", 0},
		"path of the other method": {allowRule("api.test", methods("POST"), paths("/v2/b")), `path "/v2/b"`, 1},
		"deeper than a star":       {allowRule("api.test", methods("GET"), paths("/v2/**")), `path "/v2/**"`, 1},
		"no paths":                 {allowRule("api.test", methods("GET")), "any path", 1},
		"root pattern is not any":  {allowRule("api.test", methods("GET"), paths("/**")), `path "/**"`, 1},
		"encoded slash":            {allowRule("api.test", methods("GET"), paths("/v1/*"), encodedSlash), `path "/v1/*"`, 1},
		"encoded slash covered":    {allowRule("npm.test", paths("/*"), encodedSlash), "", 0},
		"below a wildcard":         {allowRule("*.a.wide.test"), "", 0},
		"exact below a wildcard":   {allowRule("a.wide.test", schemes(HTTP, HTTPS)), "", 0},
		"apex of a wildcard":       {allowRule("wide.test"), `host "wide.test"`, 3},
		"wildcard over an exact":   {allowRule("*.api.test"), `host "*.api.test"`, 1},
		"wildcard not wider":       {allowRule("*.test"), "public suffix", 0},
		"port":                     {allowRule("port.test", ports(443, 9000)), "HTTPS on port 9000", 4},
		"ports":                    {allowRule("port.test", ports(8443)), "", 0},
		"scheme":                   {allowRule("port.test", schemes(HTTP), ports(443)), "plain HTTP on port 443", 4},
		"git under allow":          {ruleOf(ActionGit, "git.test/acme/app"), "", 0},
		"git under git":            {ruleOf(ActionGit, "code.test/acme/app"), "", 0},
		"git write under git read": {ruleOf(ActionGit, "code.test/acme/app", access("write")), `rule kind "git"`, 10},
		"git of another owner":     {ruleOf(ActionGit, "code.test/evil/app"), `rule kind "git"`, 10},
		"allow under git":          {allowRule("code.test", paths("/acme/**")), `rule kind "allow"`, 10},
		"git under some paths":     {ruleOf(ActionGit, "api.test/acme/app"), `path "/acme/app/**"`, 1},
		"git under its paths":      {ruleOf(ActionGit, "api.test/v1/app"), "", 0},
		"tcp":                      {ruleOf(ActionTCP, "db.test:5432"), "", 0},
		"tcp port":                 {ruleOf(ActionTCP, "db.test:5433"), "raw TCP on port 5433", 6},
		"tcp under allow":          {ruleOf(ActionTCP, "git.test:443"), "raw TCP on port 443", 5},
		"tcp under passthrough":    {ruleOf(ActionTCP, "pinned.test:443"), "raw TCP on port 443", 7},
		"passthrough":              {ruleOf(ActionPassthrough, "pinned.test"), "", 0},
		"passthrough under allow":  {ruleOf(ActionPassthrough, "git.test"), `rule kind "passthrough"`, 5},
		"allow under passthrough":  {allowRule("pinned.test"), "", 0},
		"web socket":               {allowRule("quiet.test"), "WebSocket", 8},
		"no web socket":            {allowRule("quiet.test", noWebSocket), "", 0},
		"a socket is a GET":        {allowRule("quiet.test", methods("POST")), "", 0},
		"narrower addresses":       {allowRule("lan.test", addresses("10.1.0.0/16")), "", 0},
		"other addresses":          {allowRule("lan.test", addresses("192.168.0.0/16")), "addresses 192.168.0.0/16", 9},
		"addresses left open":      {allowRule("port.test", addresses("10.1.0.0/16")), "", 0},
		"ends with the org's":      {allowRule("brief.test", expires(now)), "", 0},
		"ends after the org's":     {allowRule("brief.test", expires(now.Add(1))), "a life longer", 12},
		"never ends":               {allowRule("brief.test"), "a life longer", 12},
		"deny needs no cover":      {denyRule("evil.test"), "", 0},
	} {
		t.Run(title, func(t *testing.T) {
			tt.r.Pos = at(99)
			for _, grouped := range []bool{false, true} {
				doc := sandboxDoc(tt.r)
				if grouped {
					doc = Document{Groups: []Group{{Name: "g", Rules: []Rule{tt.r}}}, Sandboxes: []Sandbox{{Name: "s1", Use: []Ref{{Name: "g"}}}}}
				}
				doc.Org = &Org{Rules: org}
				if tt.says == "" {
					mustCompile(t, doc)
					continue
				}
				p := wantProblem(t, doc, tt.says)
				if p.Pos != at(99) {
					t.Errorf("reported at %v", p.Pos)
				}
				if tt.near > 0 && (!slices.Equal(p.Related, []Pos{at(tt.near)}) || !strings.Contains(p.Detail, at(tt.near).String())) {
					t.Errorf("nearest %v (%s), want line %d", p.Related, p.Detail, tt.near)
				}
			}
		})
	}
}

// TestCeilingOfIdleGroups: a group that nobody uses allows nothing, so that it
// stops no load; Lint tells what of it lies beyond the org.
func TestCeilingOfIdleGroups(t *testing.T) {
	doc := sandboxDoc(allowRule("good.test", line(1)))
	doc.Org = &Org{Rules: []Rule{allowRule("good.test", line(2))}}
	doc.Groups = []Group{{Name: "idle", Rules: []Rule{allowRule("good.test", line(3)), allowRule("bad.test", line(4))}}}
	s := mustCompile(t, doc)
	found := 0
	for _, p := range s.Lint(LintOptions{}) {
		if strings.Contains(p.Summary, "not covered by the org") {
			found++
			if p.Pos != at(4) || p.Severity != Warning {
				t.Errorf("%+v", p)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d rules are beyond the org", found)
	}
	doc.Sandboxes[0].Use = []Ref{{Name: "idle"}}
	wantProblem(t, doc, `host "bad.test"`)
}

func TestCeilingOfGroupsAndEmptyOrg(t *testing.T) {
	group := Group{Name: "g", Rules: []Rule{allowRule("good.test"), denyRule("bad.good.test")}}
	doc := sandboxDoc(allowRule("good.test"))
	doc.Groups = []Group{group}
	doc.Org = &Org{}
	wantProblem(t, doc, "not covered by the org", `host "good.test"`, "no rule near it")

	doc.Org = &Org{Use: []Ref{{Name: "g"}}}
	s := mustCompile(t, doc)
	wantReason(t, s, get("good.test", "/"), RuleAllow)

	// A group of the org denies for every sandbox and allows for none.
	doc = Document{Org: &Org{Use: []Ref{{Name: "g"}}, Rules: []Rule{denyRule("*.ngrok.io"), allowRule("*.good.test"), allowRule("x.ngrok.io")}}, Groups: []Group{group}}
	doc.Sandboxes = []Sandbox{{Name: "s1", Rules: []Rule{allowRule("*.good.test"), allowRule("x.ngrok.io")}}}
	s = mustCompile(t, doc)
	wantReason(t, s, get("good.test", "/"), HostNotAllowed)
	wantReason(t, s, get("bad.good.test", "/"), HostDenied)
	wantReason(t, s, get("a.good.test", "/"), RuleAllow)
	wantReason(t, s, get("x.ngrok.io", "/"), HostDenied)
}

func TestMetadataNeedsTheOrg(t *testing.T) {
	r := allowRule("169.254.169.254", addresses("169.254.169.254/32"), schemes(HTTP))
	plain := get("169.254.169.254", "/")
	plain.Scheme, plain.Port = HTTP, 80
	doc := sandboxDoc(r)
	if d := wantReason(t, mustCompile(t, doc), plain, RuleAllow); d.Metadata {
		t.Errorf("metadata without an org block")
	}
	doc.Org = &Org{Metadata: true, Rules: []Rule{r}}
	if d := wantReason(t, mustCompile(t, doc), plain, RuleAllow); !d.Metadata || len(d.Addresses) != 1 {
		t.Errorf("no metadata with the org's leave: %+v", d)
	}
}

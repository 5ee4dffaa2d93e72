package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCompileReportsEveryProblem(t *testing.T) {
	doc := Document{
		Org: &Org{Use: []Ref{{Name: "grup", Pos: at(1)}}, Rules: []Rule{allowRule("good.test", line(2))}},
		Groups: []Group{
			{Name: "group", Pos: at(10)},
			{Name: "group", Pos: at(11)},
			{Name: "bad name", Pos: at(12)},
		},
		Secrets: []Secret{
			{Name: "API_KEY", Pos: at(20), Hosts: []string{"good.test"}},
			{Name: "API_KEY", Pos: at(21), Hosts: []string{"good.test"}},
			{Name: "lower", Pos: at(22), Hosts: []string{"good.test"}},
			{Name: "WIDE_KEY", Pos: at(23), Hosts: []string{"*"}},
			{Name: "NO_HOSTS", Pos: at(24)},
		},
		Sandboxes: []Sandbox{
			{Name: "s1", Pos: at(30), Use: []Ref{{Name: "groop", Pos: at(31)}}, Rules: []Rule{
				allowRule("good.test", line(32), inject("API_KEI")),
				allowRule("*good.test", line(33)),
			}},
			{Name: "s1", Pos: at(34)},
		},
	}
	s, problems := Compile(doc, 1)
	if s != nil {
		t.Errorf("a set came of a policy with errors")
	}
	var got []string
	for _, p := range problems {
		if p.Severity == Error {
			got = append(got, p.Pos.String()+" "+p.Summary+" | "+p.Hint)
		}
	}
	want := []string{
		`p.hcl:1 org: group "grup" is not declared | did you mean "group"?`,
		`p.hcl:11 group "group": declared twice | `,
		`p.hcl:12 group "bad name": a name is 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit | `,
		`p.hcl:21 secret "API_KEY": declared twice | `,
		`p.hcl:22 secret "lower": a name is 3 to 64 of A to Z, 0 to 9 and _, and begins with a letter | `,
		`p.hcl:23 secret "WIDE_KEY": its hosts hold "*" | name each host that the secret is for`,
		`p.hcl:24 secret "NO_HOSTS": has no hosts, so it could be sent nowhere | `,
		`p.hcl:31 sandbox "s1": group "groop" is not declared | did you mean "group"?`,
		`p.hcl:32 allow "good.test" of sandbox "s1": secret "API_KEI" is not declared | did you mean "API_KEY"?`,
		`p.hcl:33 allow "*good.test" of sandbox "s1": pattern "*good.test": a star stands alone in the first label; write "*.good.test" | `,
		`p.hcl:34 sandbox "s1": declared twice | `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	i := slices.IndexFunc(problems, func(p Problem) bool { return strings.HasPrefix(p.Summary, `sandbox "s1": declared twice`) })
	if i < 0 || !slices.Equal(problems[i].Related, []Pos{at(30)}) || !strings.Contains(problems[i].Detail, "p.hcl:30") {
		t.Errorf("a name declared twice does not name both places: %+v", problems)
	}
}

func TestCompileRefusesRules(t *testing.T) {
	for title, tt := range map[string]struct {
		r    Rule
		says []string
	}{
		"port 0":             {allowRule("good.test", ports(0)), []string{"port 0"}},
		"port in host":       {allowRule("good.test:8443"), []string{"ports = [8443]"}},
		"path in host":       {allowRule("good.test/v1"), []string{`paths = ["/v1"]`}},
		"URL as host":        {allowRule("https://good.test/x"), []string{`alone: "good.test"`}},
		"scheme tcp":         {allowRule("good.test", schemes(TCP)), []string{"scheme is"}},
		"scheme any":         {allowRule("good.test", schemes(SchemeAny)), []string{"scheme is"}},
		"access":             {allowRule("good.test", access("raed")), []string{"raed", `did you mean "read"`}},
		"access and methods": {allowRule("good.test", access("read"), methods("GET")), []string{"twice"}},
		"method in lower":    {allowRule("good.test", methods("get")), []string{`write "GET"`}},
		"method no token":    {allowRule("good.test", methods("GET POST")), []string{"not a token"}},
		"method CONNECT":     {allowRule("good.test", methods("CONNECT")), []string{"never forwarded"}},
		"method TRACE":       {allowRule("good.test", methods("TRACE")), []string{"never forwarded"}},
		"tcp without port":   {ruleOf(ActionTCP, "db.test"), []string{"names no port", `"db.test:5432"`}},
		"tcp bad port":       {ruleOf(ActionTCP, "db.test:x"), []string{"port is not a number"}},
		"tcp with paths":     {ruleOf(ActionTCP, "db.test:1", paths("/")), []string{"paths"}},
		"tcp with methods":   {ruleOf(ActionTCP, "db.test:1", methods("GET")), []string{"no methods"}},
		"tcp with inject":    {ruleOf(ActionTCP, "db.test:1", inject("KEY_ONE")), []string{"only allow and git"}},
		"tcp with schemes":   {ruleOf(ActionTCP, "db.test:1", schemes(HTTPS)), []string{"no schemes"}},
		"passthrough http":   {ruleOf(ActionPassthrough, "p.test", schemes(HTTP)), []string{"always https"}},
		"passthrough inject": {ruleOf(ActionPassthrough, "p.test", inject("KEY_ONE")), []string{"only allow and git"}},
		"deny with inject":   {denyRule("good.test", inject("KEY_ONE")), []string{"only allow and git"}},
		"deny with expiry":   {denyRule("good.test", expires(now)), []string{"does not expire"}},
		"deny addresses":     {denyRule("good.test", addresses("10.0.0.0/8")), []string{"no addresses"}},
		"inject elsewhere":   {allowRule("other.test", inject("KEY_ONE")), []string{"do not cover", "other.test", "KEY_ONE"}},
		"inject wildcard":    {allowRule("*.good.test", inject("KEY_ONE")), []string{"do not cover"}},
		"inject on http":     {allowRule("good.test", schemes(HTTP), inject("KEY_ONE")), []string{"plain HTTP alone"}},
		"bad range":          {allowRule("good.test", func(r *Rule) { r.Addresses = []netip.Prefix{{}} }), []string{"address range"}},
		"literal elsewhere":  {allowRule("192.0.2.1", addresses("10.0.0.0/8")), []string{"IP literal"}},
		"limit":              {allowRule("good.test", func(r *Rule) { r.Limits.Connections = -1 }), []string{"negative"}},
		"foreign":            {allowRule("good.test", func(r *Rule) { r.Foreign = 9 }), []string{"foreign"}},
		"action":             {ruleOf(9, "good.test"), []string{"unknown action"}},
		"git without repo":   {ruleOf(ActionGit, "good.test"), []string{"host/owner/repo"}},
		"git with methods":   {ruleOf(ActionGit, "good.test/a/b", methods("GET")), []string{"no methods"}},
		"git with dots":      {ruleOf(ActionGit, "good.test/a/.."), []string{"empty or has a character"}},
		"git half star":      {ruleOf(ActionGit, "good.test/a/b*"), []string{"one whole segment"}},
	} {
		t.Run(title, func(t *testing.T) {
			doc := sandboxDoc(tt.r)
			doc.Sandboxes[0].Rules[0].Pos = at(5)
			doc.Secrets = []Secret{{Name: "KEY_ONE", Hosts: []string{"good.test"}}}
			if p := wantProblem(t, doc, tt.says...); p.Pos != at(5) {
				t.Errorf("reported at %v, want p.hcl:5", p.Pos)
			}
		})
	}
}

func TestCompileRefusesSecrets(t *testing.T) {
	for title, tt := range map[string]struct {
		s    Secret
		says string
	}{
		"star":              {Secret{Hosts: []string{"*"}}, `"*"`},
		"public suffix":     {Secret{Hosts: []string{"*.github.io"}}, "public suffix"},
		"glued star":        {Secret{Hosts: []string{"*good.test"}}, "*.good.test"},
		"header":            {Secret{Hosts: []string{"good.test"}, Headers: []string{"X Key"}}, "not the name of a header"},
		"query":             {Secret{Hosts: []string{"good.test"}, Query: []string{""}}, "query parameter"},
		"ttl":               {Secret{Hosts: []string{"good.test"}, TTL: -time.Second}, "ttl"},
		"body":              {Secret{Hosts: []string{"good.test"}, Body: &BodyPlace{Max: -1}}, "max of body"},
		"placeholder short": {Secret{Hosts: []string{"good.test"}, Placeholder: "x"}, "shorter than"},
		"placeholder rand":  {Secret{Hosts: []string{"good.test"}, Placeholder: "ghp_{rand:x}"}, "{rand:N}"},
		"placeholder open":  {Secret{Hosts: []string{"good.test"}, Placeholder: "ghp_{rand:36"}, "{rand:N}"},
		"placeholder space": {Secret{Hosts: []string{"good.test"}, Placeholder: "ghp {rand:36}"}, "no header carries"},
	} {
		t.Run(title, func(t *testing.T) {
			tt.s.Name, tt.s.Pos = "API_KEY", at(3)
			wantProblem(t, Document{Secrets: []Secret{tt.s}}, tt.says)
		})
	}
	same := []Secret{
		{Name: "ONE_KEY", Pos: at(1), Hosts: []string{"good.test"}, Placeholder: "fixed-text"},
		{Name: "TWO_KEY", Pos: at(2), Hosts: []string{"good.test"}, Placeholder: "fixed-text"},
	}
	if p := wantProblem(t, Document{Secrets: same}, `"TWO_KEY": has the placeholder of secret "ONE_KEY"`); p.Pos != at(2) {
		t.Errorf("reported at %v", p.Pos)
	}
	_, problems := Compile(Document{Secrets: []Secret{{Name: "API_KEY", Hosts: []string{"good.test"}, Placeholder: "ghp_{rand:36}"}}}, 1)
	if len(problems) != 1 || problems[0].Severity != Warning || !strings.Contains(problems[0].Summary, "no rule injects it") {
		t.Errorf("an unused secret: %v", summaries(problems))
	}
}

func TestConflicts(t *testing.T) {
	tcp, passthrough := ruleOf(ActionTCP, "x.db.test:443", line(1)), ruleOf(ActionPassthrough, "x.db.test", line(1))
	for title, tt := range map[string]struct {
		a, b     Rule
		conflict bool
	}{
		"tcp and allow":            {tcp, allowRule("x.db.test", line(2)), true},
		"tcp and wider allow":      {tcp, allowRule("*.db.test", line(2)), true},
		"wide tcp and allow below": {ruleOf(ActionTCP, "*.db.test:443", line(1)), allowRule("a.b.db.test", line(2)), true},
		"wide tcp, deeper allow":   {ruleOf(ActionTCP, "*.db.test:443", line(1)), allowRule("*.x.db.test", line(2)), true},
		"tcp and passthrough":      {tcp, ruleOf(ActionPassthrough, "x.db.test", line(2)), true},
		"passthrough and allow":    {passthrough, allowRule("x.db.test", line(2)), true},
		"passthrough and git":      {passthrough, ruleOf(ActionGit, "x.db.test/a/b", line(2)), true},
		"another port":             {tcp, allowRule("x.db.test", ports(8443), line(2)), false},
		"another host":             {tcp, allowRule("y.db.test", line(2)), false},
		"look-alike below":         {ruleOf(ActionTCP, "*.db.test:443", line(1)), allowRule("xdb.test", line(2)), false},
		"apex of a wildcard":       {ruleOf(ActionTCP, "*.db.test:443", line(1)), allowRule("db.test", line(2)), false},
		"same kind twice":          {tcp, ruleOf(ActionTCP, "*.db.test:443", line(2)), false},
		"deny":                     {tcp, denyRule("x.db.test", line(2)), false},
	} {
		t.Run(title, func(t *testing.T) {
			for _, grouped := range []bool{false, true} {
				doc := sandboxDoc(tt.b, tt.a)
				if grouped {
					doc = sandboxDoc(tt.b)
					doc.Groups = []Group{{Name: "g", Rules: []Rule{tt.a}}}
					doc.Sandboxes[0].Use = []Ref{{Name: "g"}}
					doc.Sandboxes = append(doc.Sandboxes, Sandbox{Name: "s2", Use: doc.Sandboxes[0].Use})
				}
				if !tt.conflict {
					mustCompile(t, doc)
					continue
				}
				p := wantProblem(t, doc, "conflicts with", "on port 443")
				if p.Pos != at(2) || !slices.Equal(p.Related, []Pos{at(1)}) {
					t.Errorf("reported at %v with %v, want line 2 with line 1", p.Pos, p.Related)
				}
			}
		})
	}
	apart := sandboxDoc(tcp)
	apart.Sandboxes = append(apart.Sandboxes, Sandbox{Name: "s2", Rules: []Rule{allowRule("x.db.test")}})
	mustCompile(t, apart)
}

func TestClaim(t *testing.T) {
	net := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	doc := Document{Sandboxes: []Sandbox{
		{Name: "net", Match: Match{CIDRs: net("10.77.4.9/24")}},
		{Name: "mac", Match: Match{CIDRs: net("10.77.5.0/24"), MACs: []string{"02:AB:00:00:00:01"}}},
		{Name: "mac2", Match: Match{CIDRs: net("10.77.5.0/24"), MACs: []string{"02:ab:00:00:00:02"}}},
		{Name: "tap", Match: Match{Interfaces: []string{"tap*", "veth?"}, CIDRs: net("10.77.6.0/24")}},
		{Name: "v6", Match: Match{CIDRs: net("2001:db8::/64")}},
		{Name: "none"},
	}}
	s := mustCompile(t, doc)
	for _, tt := range []struct{ iface, addr, mac, want string }{
		{"eth0", "10.77.4.200", "", "net"},
		{"eth0", "::ffff:10.77.4.200", "", "net"},
		{"eth0", "10.77.5.1", "02:ab:00:00:00:01", "mac"},
		{"eth0", "10.77.5.1", "02:AB:00:00:00:02", "mac2"},
		{"eth0", "10.77.5.1", "", ""},
		{"tap12", "10.77.6.1", "", "tap"},
		{"veth1", "10.77.6.1", "", "tap"},
		{"veth12", "10.77.6.1", "", ""},
		{"", "10.77.6.1", "", ""},
		{"tap12", "10.77.7.1", "", ""},
		{"eth0", "2001:db8::5", "", "v6"},
		{"eth0", "2001:db8:1::5", "", ""},
	} {
		got, ok := s.Claim(tt.iface, netip.MustParseAddr(tt.addr), tt.mac)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("Claim(%s, %s, %s) = %q, %v; want %q", tt.iface, tt.addr, tt.mac, got, ok, tt.want)
		}
	}
	if got, ok := s.Claim("", netip.Addr{}, ""); ok || got != "" {
		t.Errorf("nothing known is claimed by %q", got)
	}
}

func TestClaimOverlap(t *testing.T) {
	net := func(s ...string) (out []netip.Prefix) {
		for _, x := range s {
			out = append(out, netip.MustParsePrefix(x))
		}
		return out
	}
	for title, tt := range map[string]struct {
		a, b Match
		want bool
	}{
		"same range":          {Match{CIDRs: net("10.0.0.0/8")}, Match{CIDRs: net("10.1.0.0/16")}, true},
		"ranges apart":        {Match{CIDRs: net("10.0.0.0/16")}, Match{CIDRs: net("10.1.0.0/16", "2001:db8::/64")}, false},
		"range and interface": {Match{CIDRs: net("10.0.0.0/16")}, Match{Interfaces: []string{"tap0"}}, true},
		"interfaces apart":    {Match{CIDRs: net("10.0.0.0/16"), Interfaces: []string{"tap*"}}, Match{CIDRs: net("10.0.0.0/16"), Interfaces: []string{"veth*"}}, false},
		"globs meet":          {Match{Interfaces: []string{"tap*0"}}, Match{Interfaces: []string{"t*10"}}, true},
		"globs apart":         {Match{Interfaces: []string{"tap?"}}, Match{Interfaces: []string{"tap??"}}, false},
		"classes":             {Match{Interfaces: []string{"tap[0-9]"}}, Match{Interfaces: []string{"tap7"}}, true},
		"MACs apart":          {Match{MACs: []string{"02:00:00:00:00:01"}}, Match{MACs: []string{"02:00:00:00:00:02"}}, false},
		"empty binds nothing": {Match{}, Match{CIDRs: net("0.0.0.0/0")}, false},
	} {
		t.Run(title, func(t *testing.T) {
			doc := Document{Sandboxes: []Sandbox{{Name: "a", Pos: at(1), Match: tt.a}, {Name: "b", Pos: at(2), Match: tt.b}}}
			if !tt.want {
				mustCompile(t, doc)
				return
			}
			if p := wantProblem(t, doc, `"b"`, `"a"`, "same traffic"); p.Pos != at(2) || !slices.Equal(p.Related, []Pos{at(1)}) {
				t.Errorf("reported at %v with %v", p.Pos, p.Related)
			}
		})
	}
	for _, m := range []Match{{Interfaces: []string{"[a"}}, {MACs: []string{"02:00:00:00:00"}}, {MACs: []string{"02-00-00-00-00-01"}}, {CIDRs: []netip.Prefix{{}}}} {
		if s, problems := Compile(Document{Sandboxes: []Sandbox{{Name: "a", Match: m}}}, 1); s != nil {
			t.Errorf("match %+v accepted: %v", m, problems)
		}
	}
}

func TestSetAccessors(t *testing.T) {
	doc := sandboxDoc(allowRule("API.Good.Test.", inject("KEY_ONE")), ruleOf(ActionTCP, "DB.test:5432"))
	doc.SHA256 = "abc"
	doc.Secrets = []Secret{{Name: "KEY_TWO", Hosts: []string{"x.test"}}, {Name: "KEY_ONE", Hosts: []string{"*.GOOD.test"}}}
	s, _ := Compile(doc, 9)
	if s == nil {
		t.Fatal("no set")
	}
	if s.Generation() != 9 || s.SHA256() != "abc" || !slices.Equal(s.Sandboxes(), []string{"s1"}) {
		t.Errorf("generation %d, sha256 %q, sandboxes %v", s.Generation(), s.SHA256(), s.Sandboxes())
	}
	rules := s.OwnRules("s1")
	if rules[0].Host != "api.good.test" || rules[0].Owner != `sandbox "s1"` || rules[1].Host != "db.test" || !slices.Equal(rules[1].Ports, []uint16{5432}) {
		t.Errorf("rules are not in normal form: %+v", rules)
	}
	if doc.Sandboxes[0].Rules[0].Host != "API.Good.Test." {
		t.Errorf("Compile changed the document")
	}
	if s.Sandbox("s2") != nil || s.Secret("KEY_X") != nil || s.Secret("KEY_ONE") == nil {
		t.Errorf("Sandbox or Secret knows what is not there, or not what is")
	}
	if names := s.Secrets(); len(names) != 2 || names[0].Name != "KEY_ONE" {
		t.Errorf("secrets %v", names)
	}
	for host, want := range map[string]bool{"a.good.test": true, "good.test": false, "agood.test": false, "x.test": false} {
		if s.SecretCovers("KEY_ONE", host) != want {
			t.Errorf("KEY_ONE covers %s: %v", host, !want)
		}
	}
	if s.SecretCovers("KEY_X", "x.test") || Empty(1).SecretCovers("KEY_ONE", "x.test") {
		t.Errorf("a secret that is not there covers something")
	}
	e := Empty(3)
	if e.Generation() != 3 || e.SHA256() != "" || e.Sandbox("s1") != nil || len(e.Sandboxes()) != 0 || len(e.Secrets()) != 0 {
		t.Errorf("the empty set is not empty")
	}
}

package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPOL01SuffixBoundary(t *testing.T) {
	s := mustCompile(t, sandboxDoc(allowRule("trusted.test")))
	for host, want := range map[string]Reason{
		"trusted.test":           RuleAllow,
		"nottrusted.test":        HostNotAllowed,
		"trusted.test.evil.test": HostNotAllowed,
		"a.trusted.test":         HostNotAllowed,
	} {
		wantReason(t, s, name(host), want)
		wantReason(t, s, conn(host, 443, HTTPS), want)
		wantReason(t, s, get(host, "/"), want)
	}
}

func TestPOL03WildcardDepth(t *testing.T) {
	s := mustCompile(t, sandboxDoc(allowRule("*.good.test")))
	for host, want := range map[string]Reason{
		"good.test":       HostNotAllowed,
		"a.good.test":     RuleAllow,
		"a.b.good.test":   RuleAllow,
		"agood.test":      HostNotAllowed,
		"good.test.x":     HostNotAllowed,
		"a.good.test.bad": HostNotAllowed,
	} {
		wantReason(t, s, name(host), want)
		wantReason(t, s, conn(host, 443, HTTPS), want)
		wantReason(t, s, get(host, "/"), want)
	}
}

// decideRaw decides a host as a client sent it, as every layer does.
func decideRaw(s *Set, raw string) Decision {
	host, _, err := SplitAuthority(raw, 443)
	if err != nil {
		return Decision{Reason: BadHostname}
	}
	return s.Decide(get(host, "/"))
}

func TestPOL05TrailingDotAndPOL06Case(t *testing.T) {
	doc := sandboxDoc(allowRule("Good.Test", inject("API_KEY")), allowRule("*.test.example"), denyRule("EVIL.test.example."))
	doc.Secrets = []Secret{{Name: "API_KEY", Hosts: []string{"GOOD.test."}}}
	s := mustCompile(t, doc)
	for raw, want := range map[string]Reason{
		"good.test":               RuleAllow,
		"good.test.":              RuleAllow,
		"GoOd.TeSt:443":           RuleAllow,
		"GOOD.TEST.:443":          RuleAllow,
		"good.test..":             BadHostname,
		"evil.test.example":       HostDenied,
		"evil.test.example.":      HostDenied,
		"EVIL.TEST.EXAMPLE":       HostDenied,
		"fine.test.example.":      RuleAllow,
		"169.254.169.254.":        HostNotAllowed,
		"[good.test]:443":         BadHostname, // POL-08
		"good.test:443:443":       BadHostname, // POL-08
		"g%6fod.test":             BadHostname, // POL-11
		"good.test,evil.test":     BadHostname, // POL-11
		"good.test\x00.evil.test": BadHostname,
	} {
		d := decideRaw(s, raw)
		if d.Reason != want {
			t.Errorf("%q: %s, want %s", raw, d.Reason, want)
		}
		if (len(d.Inject) == 1) != (want == RuleAllow && strings.HasPrefix(strings.ToLower(raw), "good")) {
			t.Errorf("%q injects %v", raw, d.Inject)
		}
	}
}

func TestPOL12EmptyDenies(t *testing.T) {
	document := sandboxDoc()
	document.Sandboxes[0].Use = []Ref{{Name: "none"}}
	document.Groups = []Group{{Name: "none"}}
	noSandbox := Document{Groups: []Group{{Name: "g", Rules: []Rule{allowRule("good.test")}}}}
	var zero Set
	tests := map[string]struct {
		set  *Set
		want Reason
	}{
		"nil":                {nil, PolicyUnavailable},
		"zero":               {&zero, PolicyUnavailable},
		"empty":              {Empty(7), PolicyUnavailable},
		"no sandbox":         {mustCompile(t, noSandbox), UnknownSandbox},
		"empty document":     {mustCompile(t, Document{}), UnknownSandbox},
		"sandbox no rules":   {mustCompile(t, sandboxDoc()), HostNotAllowed},
		"sandbox none group": {mustCompile(t, document), HostNotAllowed},
	}
	for title, tt := range tests {
		t.Run(title, func(t *testing.T) {
			for _, r := range []Request{name("good.test"), conn("good.test", 443, SchemeAny), get("good.test", "/")} {
				wantReason(t, tt.set, r, tt.want)
			}
			if d := tt.set.Decide(Request{}); d.Verdict != Deny {
				t.Errorf("the zero Request is allowed")
			}
		})
	}
	if d := (Decision{}); d.Verdict != Deny || d.Relay != RelayNone {
		t.Errorf("the zero Decision does not deny")
	}
}

func TestPOL13DenyWins(t *testing.T) {
	rules := []Rule{allowRule("*", line(1)), denyRule("evil.test", line(2)), denyRule("*.evil.test", line(3))}
	for range 3 {
		rules = append(rules[1:], rules[0])
		doc := sandboxDoc(rules...)
		doc.Org = &Org{AnyHost: true, Rules: []Rule{allowRule("*")}}
		s := mustCompile(t, doc)
		for host, want := range map[string]Reason{
			"evil.test":     HostDenied,
			"a.evil.test":   HostDenied,
			"b.a.evil.test": HostDenied,
			"good.test":     RuleAllow,
			"localhost":     RuleAllow, // its addresses are refused after resolution
			"10.0.0.5":      HostNotAllowed,
			"2001:db8::1":   HostNotAllowed,
		} {
			wantReason(t, s, name(host), want)
			wantReason(t, s, get(host, "/"), want)
			if d := s.Decide(get(host, "/")); len(d.Addresses) != 0 {
				t.Errorf("%s: ranges %v without a rule that names them", host, d.Addresses)
			}
		}
	}
}

func TestPOL14IPLiteral(t *testing.T) {
	s := mustCompile(t, sandboxDoc(
		allowRule("203.0.113.10", ports(8443), addresses("203.0.113.10/32")),
		allowRule("[2001:DB8:1::10]", addresses("2001:db8:1::/48")),
		allowRule("*.good.test"),
	))
	wantReason(t, s, conn("203.0.113.10", 8443, HTTPS), RuleAllow)
	wantReason(t, s, conn("203.0.113.10", 443, HTTPS), PortNotAllowed)
	wantReason(t, s, conn("203.0.113.11", 8443, HTTPS), HostNotAllowed)
	wantReason(t, s, conn("2001:db8:1::10", 443, HTTPS), RuleAllow)
	wantReason(t, s, conn("2001:db8:1::11", 443, HTTPS), HostNotAllowed)
	wantProblem(t, sandboxDoc(allowRule("203.0.113.10")), "IP literal needs addresses", "203.0.113.10/32")
	wantProblem(t, sandboxDoc(allowRule("*.0.113.10")), "*.0.113.10")
}

func TestPOL15PlainHTTPObeysTheSameRules(t *testing.T) {
	s := mustCompile(t, sandboxDoc(allowRule("good.test", access("read"), schemes(HTTP, HTTPS))))
	for _, tt := range []struct {
		method, host string
		want         Reason
	}{
		{"GET", "good.test", RuleAllow},
		{"POST", "good.test", MethodNotAllowed},
		{"GET", "evil.test", HostNotAllowed},
	} {
		tls, plain := request(tt.method, tt.host, "/"), request(tt.method, tt.host, "/")
		plain.Port, plain.Scheme = 80, HTTP
		wantReason(t, s, tls, tt.want)
		wantReason(t, s, plain, tt.want)
	}
	s = mustCompile(t, sandboxDoc(allowRule("good.test")))
	plain := get("good.test", "/")
	plain.Port, plain.Scheme = 80, HTTP
	wantReason(t, s, plain, PortNotAllowed)
	plain.Port = 443
	wantReason(t, s, plain, SchemeNotAllowed)
}

func TestPOL16Ports(t *testing.T) {
	s := mustCompile(t, sandboxDoc(allowRule("good.test", ports(8443))))
	for port := 1; port <= 65535; port++ {
		d := s.Decide(conn("good.test", uint16(port), SchemeAny))
		if (d.Verdict == Allow) != (port == 8443) {
			t.Fatalf("port %d: %v %s", port, d.Verdict, d.Reason)
		}
	}
	wantReason(t, s, conn("good.test", 0, SchemeAny), PortNotAllowed)
	if d := wantReason(t, s, conn("good.test", 8443, HTTPS), RuleAllow); d.Relay != RelayIntercept {
		t.Errorf("relay %v, want intercept", d.Relay)
	}
}

func TestPOL17OtherProtocols(t *testing.T) {
	s := mustCompile(t, sandboxDoc(
		allowRule("good.test"),
		ruleOf(ActionTCP, "db.test:5432"),
		ruleOf(ActionPassthrough, "pinned.test"),
	))
	wantReason(t, s, conn("good.test", 22, SchemeAny), PortNotAllowed)
	wantReason(t, s, conn("good.test", 443, TCP), SchemeNotAllowed)
	if d := wantReason(t, s, conn("db.test", 5432, SchemeAny), RuleAllow); d.Relay != RelayTCP {
		t.Errorf("relay %v, want TCP", d.Relay)
	}
	wantReason(t, s, conn("db.test", 443, SchemeAny), PortNotAllowed)
	if d := wantReason(t, s, conn("pinned.test", 443, SchemeAny), PassthroughAllow); d.Relay != RelayPassthrough {
		t.Errorf("relay %v, want passthrough", d.Relay)
	}
	wantReason(t, s, conn("pinned.test", 443, HTTPS), PassthroughAllow)
	wantReason(t, s, conn("pinned.test", 443, TCP), SchemeNotAllowed)
	// No request is decided by a rule that relays bytes.
	wantReason(t, s, get("pinned.test", "/"), SchemeNotAllowed)
}

func TestReasons(t *testing.T) {
	doc := Document{
		Groups: []Group{{Name: "g", Rules: []Rule{allowRule("group.test"), denyRule("both.test")}}},
		Sandboxes: []Sandbox{{Name: "s1", Use: []Ref{{Name: "g"}}, Rules: []Rule{
			allowRule("both.test"),
			allowRule("api.test", methods("POST"), paths("/v1/chat/**")),
			allowRule("api.test", methods("GET"), paths("/v1/models")),
			allowRule("ws.test", noWebSocket),
			allowRule("old.test", expires(now)),
			allowRule("new.test", expires(now.Add(time.Nanosecond))),
			allowRule("part.test", expires(now), paths("/old/**")),
			allowRule("part.test", paths("/new/**")),
			allowRule("deny.test"),
			denyRule("deny.test", paths("/admin/**"), because("Admin is closed.")),
			allowRule("shut.test"),
			denyRule("shut.test", paths("/**")),
		}}},
	}
	s := mustCompile(t, doc)
	socket := get("ws.test", "/")
	socket.WebSocket = true
	noClock := get("new.test", "/")
	noClock.Now = time.Time{}
	for _, tt := range []struct {
		title string
		r     Request
		want  Reason
	}{
		{"group", get("group.test", "/"), GroupAllow},
		{"group denies", get("both.test", "/"), HostDenied},
		{"rule 3: no fallback", get("api.test", "/"), PathNotAllowed},
		{"method of no rule", request("DELETE", "api.test", "/v1/models"), MethodNotAllowed},
		{"method is case-sensitive", request("get", "api.test", "/v1/models"), MethodNotAllowed},
		{"each fits another rule", request("GET", "api.test", "/v1/chat/x"), NoRuleMatched},
		{"both fit", request("POST", "api.test", "/v1/chat/x"), RuleAllow},
		{"ambiguous", get("api.test", "/v1/../v1/models"), AmbiguousPath},
		{"no paths, no ambiguity", get("ws.test", "/a/../b//c%2fd"), RuleAllow},
		{"CONNECT", request("CONNECT", "ws.test", "/"), MethodNotAllowed},
		{"TRACE", request("TRACE", "ws.test", "/"), MethodNotAllowed},
		{"no method", request("", "ws.test", "/"), MethodNotAllowed},
		{"not a token", request("GET x", "ws.test", "/"), MethodNotAllowed},
		{"web socket", socket, UpgradeNotAllowed},
		{"no web socket", get("ws.test", "/"), RuleAllow},
		{"expired at its instant", get("old.test", "/"), RuleExpired},
		{"expired name", name("old.test"), RuleExpired},
		{"not yet expired", get("new.test", "/"), RuleAllow},
		{"no clock", noClock, RuleExpired},
		{"expired path", get("part.test", "/old/x"), RuleExpired},
		{"live path", get("part.test", "/new/x"), RuleAllow},
		{"deny path", get("deny.test", "/admin/users"), HostDenied},
		{"deny path itself", get("deny.test", "/admin"), HostDenied},
		{"deny path elsewhere", get("deny.test", "/public"), RuleAllow},
		{"deny path with parameters", get("deny.test", "/admin;x=1/users"), HostDenied},
		{"deny path, other reading", get("deny.test", "/admin%2Fusers"), HostDenied},
		{"deny path, dots", get("deny.test", "/x/../admin/users"), AmbiguousPath},
		{"OPTIONS *", request("OPTIONS", "deny.test", "*"), RuleAllow},
		{"OPTIONS * under deny of all", request("OPTIONS", "shut.test", "*"), HostDenied},
		{"deny of all paths", get("shut.test", "/x"), HostDenied},
		{"other sandbox", Request{Sandbox: "s2", Stage: StageName, Host: "group.test"}, UnknownSandbox},
		{"no host", get("", "/"), BadHostname},
		{"no stage", Request{Sandbox: "s1", Host: "ws.test"}, NoRuleMatched},
		{"stage too late", Request{Sandbox: "s1", Host: "ws.test", Stage: 9}, NoRuleMatched},
	} {
		t.Run(tt.title, func(t *testing.T) { wantReason(t, s, tt.r, tt.want) })
	}
	d := s.Decide(get("deny.test", "/admin"))
	if want := "this request to host deny.test is denied by policy: Admin is closed."; d.Message != want {
		t.Errorf("message %q, want %q", d.Message, want)
	}
	d = s.Decide(get("evil.test", "/"))
	if want := "host evil.test is not allowed by this sandbox's policy"; d.Message != want {
		t.Errorf("message %q, want %q", d.Message, want)
	}
}

func TestEncodedSlashIsAdmittedByRule(t *testing.T) {
	s := mustCompile(t, sandboxDoc(
		allowRule("npm.test", access("read"), paths("/*"), encodedSlash),
		allowRule("npm.test", paths("/-/**")),
		allowRule("plain.test", paths("/*")),
	))
	wantReason(t, s, get("npm.test", "/@scope%2fname"), RuleAllow)
	wantReason(t, s, get("npm.test", "/@scope%2F.."), AmbiguousPath)
	wantReason(t, s, get("npm.test", "/@scope%252fname"), AmbiguousPath)
	wantReason(t, s, request("PUT", "npm.test", "/@scope%2fname"), NoRuleMatched)
	wantReason(t, s, get("plain.test", "/@scope%2fname"), AmbiguousPath)
}

func TestNamedRuleAndInject(t *testing.T) {
	doc := sandboxDoc(
		allowRule("*.a.test", line(1)),
		allowRule("*.b.a.test", line(2)),
		allowRule("x.b.a.test", line(3)),
		allowRule("x.b.a.test", line(4), inject("KEY_ONE")),
		allowRule("x.b.a.test", line(5), inject("KEY_TWO", "KEY_ONE"), addresses("10.0.0.0/8")),
		allowRule("x.b.a.test", line(6), inject("KEY_ONE"), schemes(HTTP, HTTPS)),
	)
	doc.Secrets = []Secret{{Name: "KEY_ONE", Hosts: []string{"*.a.test"}}, {Name: "KEY_TWO", Hosts: []string{"x.b.a.test"}}}
	s := mustCompile(t, doc)
	for host, want := range map[string]int{"y.a.test": 1, "y.b.a.test": 2, "x.b.a.test": 4} {
		if d := s.Decide(get(host, "/")); d.Rule == nil || d.Rule.Pos.Line != want {
			t.Errorf("%s: decided by %+v, want line %d", host, d.Rule, want)
		}
	}
	d := s.Decide(get("x.b.a.test", "/"))
	if !slices.Equal(d.Inject, []string{"KEY_ONE", "KEY_TWO"}) {
		t.Errorf("inject %v, want both", d.Inject)
	}
	if len(d.Addresses) != 1 {
		t.Errorf("addresses %v, want the one range", d.Addresses)
	}
	plain := get("x.b.a.test", "/")
	plain.Scheme, plain.Port = HTTP, 80
	if d := wantReason(t, s, plain, RuleAllow); d.Inject != nil {
		t.Errorf("plain HTTP injects %v", d.Inject)
	}
	if d := s.Decide(name("x.b.a.test")); d.Relay != RelayNone || d.Inject != nil {
		t.Errorf("a name relays %v and injects %v", d.Relay, d.Inject)
	}
}

func TestNameResolvesOnlyIfSomethingCouldBeAllowed(t *testing.T) {
	s := mustCompile(t, sandboxDoc(
		allowRule("all.test", schemes(HTTP, HTTPS)),
		denyRule("all.test", ports(443)),
		denyRule("all.test", schemes(HTTP)),
		allowRule("some.test", schemes(HTTP, HTTPS)),
		denyRule("some.test", ports(443)),
		allowRule("pinned.test"),
		denyRule("pinned.test", paths("/x")),
	))
	wantReason(t, s, name("all.test"), HostDenied)
	wantReason(t, s, name("some.test"), RuleAllow)
	wantReason(t, s, conn("some.test", 443, SchemeAny), HostDenied)
	wantReason(t, s, conn("some.test", 80, SchemeAny), RuleAllow)
	wantReason(t, s, conn("pinned.test", 443, HTTPS), RuleAllow)
	// What is relayed unopened never gets to the stage of a path.
	s = mustCompile(t, sandboxDoc(ruleOf(ActionPassthrough, "pinned.test"), denyRule("pinned.test", paths("/x"))))
	wantReason(t, s, conn("pinned.test", 443, HTTPS), HostDenied)
}

func TestReportMode(t *testing.T) {
	doc := sandboxDoc(allowRule("good.test", methods("GET")), denyRule("denied.test"), ruleOf(ActionTCP, "db.test:5432"))
	doc.Sandboxes[0].Mode = Report
	s := mustCompile(t, doc)
	for _, tt := range []struct {
		r     Request
		would Reason
		relay Relay
	}{
		{name("evil.test"), HostNotAllowed, RelayNone},
		{conn("evil.test", 443, SchemeAny), HostNotAllowed, RelayIntercept},
		{conn("evil.test", 22, TCP), HostNotAllowed, RelayTCP},
		{get("evil.test", "/"), HostNotAllowed, RelayIntercept},
		{get("denied.test", "/"), HostDenied, RelayIntercept},
		{request("POST", "good.test", "/"), MethodNotAllowed, RelayIntercept},
	} {
		d := wantReason(t, s, tt.r, ReportMode)
		if d.Would == nil || d.Would.Reason != tt.would || d.Would.Message == "" || d.Relay != tt.relay || d.Inject != nil {
			t.Errorf("Decide(%s) = %+v would %+v, want %s and relay %v", describe(tt.r), d, d.Would, tt.would, tt.relay)
		}
	}
	if d := wantReason(t, s, get("good.test", "/"), RuleAllow); d.Would != nil {
		t.Errorf("an allow would be %v", d.Would)
	}
	wantReason(t, s, request("CONNECT", "good.test", "/"), MethodNotAllowed)
	wantReason(t, s, get("NOT.canonical", "/"), BadHostname)
	wantReason(t, s, get("", "/"), BadHostname)

	doc.Org = &Org{Rules: []Rule{allowRule("good.test"), ruleOf(ActionTCP, "db.test:5432"), allowRule("denied.test"), allowRule("shut.test"), denyRule("shut.test")}}
	s = mustCompile(t, doc)
	wantReason(t, s, request("POST", "good.test", "/"), ReportMode)
	wantReason(t, s, get("denied.test", "/"), ReportMode)
	wantReason(t, s, get("evil.test", "/"), HostNotAllowed)
	wantReason(t, s, get("shut.test", "/"), HostDenied)
}

package inject

import (
	"net/http"
	"strings"
	"testing"

	"sallyport/policy"
)

// everywhere puts a placeholder into each place of a request that is looked
// into.
func everywhere(scheme, host, p string) map[string]*http.Request {
	base := scheme + "://" + host
	trailer := request("POST", base+"/")
	trailer.Trailer = http.Header{"X-Sum": {p}}
	trailerName := request("POST", base+"/")
	trailerName.Trailer = http.Header{http.CanonicalHeaderKey(p): nil}
	hostHeader := request("GET", base+"/")
	hostHeader.Host = p + "." + host
	method := request("GET", base+"/")
	method.Method = p
	return map[string]*http.Request{
		"authorization":       request("GET", base+"/", "Authorization: Bearer "+p),
		"api key":             request("GET", base+"/", "x-api-key: "+p),
		"basic user":          request("GET", base+"/", "Authorization: "+basicOf(p+":")),
		"basic password":      request("GET", base+"/", "Authorization: "+basicOf("x:"+p)),
		"basic elsewhere":     request("GET", base+"/", "X-Forward: "+basicOf("x:"+p)),
		"proxy authorization": request("GET", base+"/", "Proxy-Authorization: "+basicOf("x:"+p)),
		"user agent":          request("GET", base+"/", "User-Agent: curl "+p),
		"cookie":              request("GET", base+"/", "Cookie: a=1; k="+p),
		"referer":             request("GET", base+"/", "Referer: https://x.test/?k="+p),
		"referer escaped":     request("GET", base+"/", "Referer: https://x.test/?k="+escapeAll(p)),
		"second line":         request("GET", base+"/", "X-A: 1", "X-A: "+p),
		"path":                request("GET", base+"/bot"+p+"/send"),
		"path escaped":        request("GET", base+"/bot"+escapeAll(p)+"/send"),
		"path half escaped":   request("GET", base+"/"+p[:1]+escapeAll(p[1:])),
		"query":               request("GET", base+"/?k="+p),
		"query name":          request("GET", base+"/?"+p+"=1"),
		"query escaped":       request("GET", base+"/?k="+escapeAll(p)),
		"host":                hostHeader,
		"method":              method,
		"trailer":             trailer,
		"trailer name":        trailerName,
	}
}

func escapeAll(s string) string {
	const hex = "0123456789abcdef"
	var b strings.Builder
	for i := range len(s) {
		b.WriteString("%" + string(hex[s[i]>>4]) + string(hex[s[i]&15]))
	}
	return b.String()
}

// caseFolded are the places whose case does not survive, so that a shaped
// placeholder there is nobody's any more.
var caseFolded = map[string]bool{"trailer name": true}

func TestSEC01LeakInEveryPlace(t *testing.T) {
	table := testTable()
	for name, p := range map[string]string{
		"name": "$API_KEY", "braced": "${API_KEY}",
		"shaped": table.Placeholder("s1", "GH_TOKEN"), "other sandbox's": table.Placeholder("s2", "GH_TOKEN"),
		"of a host of its own": "$OTHER_KEY",
	} {
		for where, r := range everywhere("https", "allowed.test", p) {
			if caseFolded[where] && strings.HasPrefix(p, "ghp_") {
				continue
			}
			t.Run(name+"/"+where, func(t *testing.T) {
				reason, _ := outcome(t, table, input(r, allNames...))
				if reason != policy.PlaceholderLeak {
					t.Errorf("reason %q, want %q", reason, policy.PlaceholderLeak)
				}
			})
		}
	}
}

func TestSEC02PlaintextToAnApprovedHost(t *testing.T) {
	table := testTable()
	for where, r := range everywhere("http", goodHost, "$API_KEY") {
		t.Run(where, func(t *testing.T) {
			reason, _ := outcome(t, table, input(r, allNames...))
			if reason != policy.PlaintextInjection {
				t.Errorf("reason %q, want %q", reason, policy.PlaintextInjection)
			}
		})
	}
	t.Run("to another host it is a leak", func(t *testing.T) {
		reason, _ := outcome(t, table, input(request("GET", "http://other.test/", "Authorization: Bearer $API_KEY"), allNames...))
		if reason != policy.PlaceholderLeak {
			t.Errorf("reason %q", reason)
		}
	})
	t.Run("TLS that is not opened here", func(t *testing.T) {
		in := input(request("GET", "https://good.test/", "Authorization: Bearer $API_KEY"), allNames...)
		in.Intercepted = false
		if reason, _ := outcome(t, table, in); reason != policy.PlaintextInjection {
			t.Errorf("reason %q", reason)
		}
	})
}

func TestThreeAgreements(t *testing.T) {
	table := testTable()
	tests := map[string]struct {
		change func(*Input)
		want   policy.Reason
	}{
		"all three":               {func(*Input) {}, ""},
		"not listed by the rule":  {func(in *Input) { in.Decision.Inject = []string{"GH_TOKEN"} }, policy.PlaceholderLeak},
		"host not covered":        {func(in *Input) { in.Host = "x.good.test" }, policy.PlaceholderLeak},
		"plain HTTP":              {func(in *Input) { in.Scheme = policy.HTTP }, policy.PlaintextInjection},
		"scheme not known":        {func(in *Input) { in.Scheme = policy.SchemeAny }, policy.PlaintextInjection},
		"not intercepted":         {func(in *Input) { in.Intercepted = false }, policy.PlaintextInjection},
		"decision denies":         {func(in *Input) { in.Decision.Verdict = policy.Deny }, policy.PlaceholderLeak},
		"zero decision":           {func(in *Input) { in.Decision = policy.Decision{} }, policy.PlaceholderLeak},
		"report mode: not listed": {func(in *Input) { in.Decision.Inject = nil; in.Decision.Reason = policy.ReportMode }, policy.PlaceholderLeak},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := input(request("GET", "https://good.test/", "Authorization: Bearer $API_KEY"), "API_KEY")
			tt.change(&in)
			if reason, _ := outcome(t, table, in); reason != tt.want {
				t.Errorf("reason %q, want %q", reason, tt.want)
			}
		})
	}
}

func TestOtherSandboxsPlaceholderNamesItInTheRecordOnly(t *testing.T) {
	table := testTable()
	p := table.Placeholder("s2", "GH_TOKEN")
	_, refusal := table.Plan(input(request("GET", "https://good.test/", "Authorization: Bearer "+p), allNames...))
	if refusal == nil || refusal.Reason != policy.PlaceholderLeak {
		t.Fatalf("refusal %v", refusal)
	}
	want := Use{Name: "GH_TOKEN", Place: "header Authorization", Action: Withheld, Count: 1, Sandbox: "s2"}
	if len(refusal.Uses) != 1 || refusal.Uses[0] != want {
		t.Errorf("uses %+v, want %+v", refusal.Uses, want)
	}
	if strings.Contains(refusal.Message, "s2") || strings.Contains(refusal.Message, p) {
		t.Errorf("message %q names the other sandbox", refusal.Message)
	}
	t.Run("of a sandbox that is gone", func(t *testing.T) {
		p := table.Placeholder("long-gone", "GH_TOKEN")
		reason, _ := outcome(t, table, input(request("GET", "https://good.test/?k="+p), allNames...))
		if reason != policy.PlaceholderLeak {
			t.Errorf("reason %q", reason)
		}
	})
	t.Run("of another gateway", func(t *testing.T) {
		foreign := NewTable([]Secret{{Name: "GH_TOKEN", Spec: &policy.Secret{Placeholder: "ghp_{rand:36}"}}}, nil, []byte("another key"))
		reason, _ := outcome(t, table, input(request("GET", "https://good.test/?k="+foreign.Placeholder("s1", "GH_TOKEN")), allNames...))
		if reason != "" {
			t.Errorf("reason %q: it is not this gateway's", reason)
		}
	})
}

func TestOnLeakPassForwardsUnchanged(t *testing.T) {
	table := testTable()
	for where, r := range everywhere("https", "allowed.test", "$API_KEY") {
		t.Run(where, func(t *testing.T) {
			in := input(r, allNames...)
			in.Decision.Rule.OnLeakPass = true
			p, refusal := table.Plan(in)
			if refusal != nil {
				t.Fatal(refusal)
			}
			if len(p.Uses()) != 1 || p.Uses()[0].Action != Withheld || len(p.Secrets()) != 0 {
				t.Errorf("uses %+v secrets %v", p.Uses(), p.Secrets())
			}
			out := r.Clone(r.Context())
			if err := p.Apply(out, nil); err != nil {
				t.Fatal(err)
			}
			for name, lines := range r.Header {
				if strings.Join(lines, "\n") != strings.Join(out.Header[name], "\n") {
					t.Errorf("%s changed to %q", name, out.Header[name])
				}
			}
		})
	}
}

func TestSEC30NeverAPlaceEvenOnTheApprovedHost(t *testing.T) {
	table := testTable()
	places := map[string]bool{"authorization": true, "api key": true, "basic user": true, "basic password": true}
	for where, r := range everywhere("https", goodHost, "$API_KEY") {
		t.Run(where, func(t *testing.T) {
			want := policy.PlaceholderPlace
			if places[where] {
				want = ""
			}
			in := input(r, allNames...)
			in.Host = goodHost
			if reason, _ := outcome(t, table, in); reason != want {
				t.Errorf("reason %q, want %q", reason, want)
			}
		})
	}
}

func TestSEC30NamesOutsideHTTP(t *testing.T) {
	table := testTable()
	for _, text := range []string{"$API_KEY.evil.test", "$api_key.evil.test", "x.${Api_Key}.test", table.Placeholder("s1", "GH_TOKEN") + ".test"} {
		if got := table.Leak("s1", "dns", text); len(got) != 1 || got[0].Place != "dns" || got[0].Action != Withheld {
			t.Errorf("Leak(%q) = %+v", text, got)
		}
	}
	for _, text := range []string{"", "evil.test", "api-key.test", "$FOO.test", "$API_KEYS.test"} {
		if got := table.Leak("s1", "dns", text); got != nil {
			t.Errorf("Leak(%q) = %+v", text, got)
		}
	}
}

func TestSEC11EscapedToAnUnapprovedHost(t *testing.T) {
	table := testTable()
	for name, r := range map[string]*http.Request{
		"dollar":           request("GET", "https://allowed.test/?k=%24API_KEY"),
		"a letter":         request("GET", "https://allowed.test/?k=$%41PI_KEY"),
		"braces":           request("GET", "https://allowed.test/?k=%24%7BAPI_KEY%7D"),
		"in the path":      request("GET", "https://allowed.test/%24API_KEY"),
		"in a header":      request("GET", "https://allowed.test/", "X-A: %24API_KEY"),
		"in Authorization": request("GET", "https://allowed.test/", "Authorization: Bearer %24API_KEY"),
		"base64 of Basic":  request("GET", "https://allowed.test/", "Authorization: "+basicOf("a:$API_KEY")),
		"broken escapes":   request("GET", "https://allowed.test/?a=%zz&k=%24API_KEY&b=%"),
	} {
		t.Run(name, func(t *testing.T) {
			if reason, _ := outcome(t, table, input(r)); reason != policy.PlaceholderLeak {
				t.Errorf("reason %q", reason)
			}
		})
	}
	t.Run("not what only looks like one", func(t *testing.T) {
		r := request("GET", "https://allowed.test/a%2Fb?q=%24FOO&price=%245&x=$%7B", "X-A: 100%", "Referer: https://x.test/%24")
		if reason, _ := outcome(t, table, input(r)); reason != "" {
			t.Errorf("reason %q", reason)
		}
	})
}

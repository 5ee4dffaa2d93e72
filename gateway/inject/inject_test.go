package inject

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport/policy"
	"sallyport/secrets"
)

const (
	realAPI  = "REAL-api-value-0123456789"
	realGH   = "REAL-gh-value-abcdefghij"
	goodHost = "good.test"
)

var testKey = []byte("0123456789abcdef0123456789abcdef")

func covers(hosts ...string) func(string) bool {
	return func(host string) bool {
		for _, h := range hosts {
			if h == host {
				return true
			}
		}
		return false
	}
}

// testTable has API_KEY and API_KEY_2 for good.test, GH_TOKEN shaped for
// git.test and good.test, HEADER_KEY for one header of good.test, SET_KEY set
// on set.test, and OTHER_KEY for elsewhere.
func testTable() *Table {
	return NewTable([]Secret{
		{Name: "API_KEY", Spec: &policy.Secret{}, Covers: covers(goodHost)},
		{Name: "API_KEY_2", Spec: &policy.Secret{}, Covers: covers(goodHost)},
		{Name: "GH_TOKEN", Spec: &policy.Secret{Placeholder: "ghp_{rand:36}"}, Covers: covers(goodHost, "git.test")},
		{Name: "HEADER_KEY", Spec: &policy.Secret{Headers: []string{"x-data"}}, Covers: covers(goodHost)},
		{Name: "SET_KEY", Spec: &policy.Secret{Set: true}, Covers: covers("set.test")},
		{Name: "OTHER_KEY", Spec: &policy.Secret{}, Covers: covers("other.test")},
	}, []string{"s1", "s2"}, testKey)
}

func testValues(t testing.TB) map[string]secrets.Value {
	t.Helper()
	out := map[string]secrets.Value{}
	for name, text := range map[string]string{
		"API_KEY": realAPI, "API_KEY_2": "REAL-second", "GH_TOKEN": realGH,
		"HEADER_KEY": "REAL-header", "SET_KEY": "REAL-set", "OTHER_KEY": "REAL-other",
	} {
		v, err := secrets.NewValue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = v
	}
	return out
}

var allNames = []string{"API_KEY", "API_KEY_2", "GH_TOKEN", "HEADER_KEY", "SET_KEY"}

// request makes a request and header lines of "Name: value".
func request(method, url string, lines ...string) *http.Request {
	r := httptest.NewRequest(method, url, nil)
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func input(r *http.Request, inject ...string) Input {
	in := Input{
		Sandbox: "s1", Request: r, Host: r.URL.Hostname(), Scheme: policy.HTTP,
		Decision: policy.Decision{Verdict: policy.Allow, Rule: &policy.Rule{Action: policy.ActionAllow}, Inject: inject},
	}
	if r.URL.Scheme == "https" {
		in.Scheme, in.Intercepted = policy.HTTPS, true
	}
	return in
}

// outcome plans and applies in, and returns the reason of a refusal or the
// outgoing header.
func outcome(t *testing.T, table *Table, in Input) (policy.Reason, http.Header) {
	t.Helper()
	p, refusal := table.Plan(in)
	if refusal != nil {
		if p != nil {
			t.Error("a refused request has a plan")
		}
		if strings.Contains(refusal.Message, "REAL") || refusal.Message == "" {
			t.Errorf("message %q", refusal.Message)
		}
		return refusal.Reason, nil
	}
	out := in.Request.Clone(in.Request.Context())
	values := map[string]secrets.Value{}
	all := testValues(t)
	for _, n := range p.Secrets() {
		values[n] = all[n]
	}
	if err := p.Apply(out, values); err != nil {
		t.Fatalf("apply: %v", err)
	}
	return "", out.Header
}

func basicOf(text string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(text))
}

func mustValue(t testing.TB, text string) secrets.Value {
	t.Helper()
	v, err := secrets.NewValue([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

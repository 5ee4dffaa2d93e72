package inject

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sallyport/policy"
	"sallyport/secrets"
)

func FuzzPlan(f *testing.F) {
	for _, s := range []string{
		"Authorization: Bearer $API_KEY\nX-Api-Key: foreign", "authorization: Basic JEFQSV9LRVk6\nAuthorization: x", "Cookie: $HEADER_KEY", "X-Data: $HEADER_KEY\nX-Data: 2", "$API_KEY: 1", "Authorization: Foo a=\"b, c\", d=\"$API_KEY\"", "X_Api_Key: 1\nX-Api-Key: Bearer $API_KEY;", "Trailer: x\nContent-Type: application/json",
	} {
		f.Add(s, "/a/%24API_KEY", "k=$GH_TOKEN&api_key=1", true)
		f.Add(s, "/", "", false)
	}
	table := testTable()
	values := testValues(f)
	f.Fuzz(func(t *testing.T, head, path, query string, approved bool) {
		r := &http.Request{Method: "POST", Host: goodHost, Header: http.Header{}, URL: &url.URL{Path: path, RawQuery: query}}
		for line := range strings.SplitSeq(head, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			if name != "" {
				r.Header.Add(name, value)
			}
		}
		in := Input{Sandbox: "s1", Request: r, Host: goodHost, Scheme: policy.HTTPS, Intercepted: approved, Decision: policy.Decision{Verdict: policy.Allow, Inject: allNames}}
		p, refusal := table.Plan(in)
		if (p == nil) == (refusal == nil) {
			t.Fatalf("plan %v, refusal %v", p, refusal)
		}
		if refusal != nil {
			if refusal.Reason == "" || refusal.Message == "" {
				t.Fatalf("refusal %+v", refusal)
			}
			return
		}
		if !approved && len(p.Secrets()) > 0 {
			t.Fatal("a secret over a connection that is not approved")
		}
		chosen := map[string]secrets.Value{}
		for _, n := range p.Secrets() {
			chosen[n] = values[n]
		}
		out := &http.Request{Method: r.Method, Host: r.Host, Header: r.Header.Clone(), URL: &url.URL{Path: path, RawQuery: query}}
		if err := p.Apply(out, chosen); err != nil {
			return // such as a value that cannot stand there
		}
		for name, lines := range out.Header {
			for _, text := range lines {
				if strings.Contains(text, "REAL") && !strings.Contains(head, "REAL") && !table.credential[name] && name != "X-Data" {
					t.Fatalf("a value in header %s", name)
				}
			}
			if len(lines) > 1 && table.credential[name] && strings.Contains(strings.Join(lines, ""), "REAL") && !strings.Contains(head, "REAL") {
				t.Fatalf("two credentials in %s", name)
			}
		}
		if strings.Contains(out.URL.RawQuery+out.URL.Path, "REAL") && !strings.Contains(path+query, "REAL") {
			t.Fatalf("a value in %s", out.URL)
		}
	})
}

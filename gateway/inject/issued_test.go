package inject

import (
	"net/url"
	"testing"

	"sallyport/policy"
)

// TestTokenEndpointHoweverWritten: a token endpoint is known in whatever way
// its path is written, and nothing but a POST may be sent to it.
func TestTokenEndpointHoweverWritten(t *testing.T) {
	table := NewTable([]Secret{
		{Name: "API_KEY", Spec: &policy.Secret{}, Covers: covers(goodHost), TokenURL: "https://good.test/oauth/token?a=b"},
		{Name: "ROOT_KEY", Spec: &policy.Secret{}, Covers: covers("root.test"), TokenURL: "https://root.test"},
	}, []string{"s1"}, testKey)
	for target, want := range map[string]bool{
		"https://good.test/oauth/token":            true,
		"https://good.test/oauth/token?x=y":        true,
		"https://good.test/oauth/%74oken":          true,
		"https://good.test/oauth/%2574oken":        true,
		"https://good.test/oauth%2Ftoken":          true,
		"https://good.test/oauth%5Ctoken":          true,
		"https://good.test/oauth/./token":          true,
		"https://good.test/oauth/x/../token":       true,
		"https://good.test/oauth/x/%2e%2e/token":   true,
		"https://good.test//oauth//token/":         true,
		"https://good.test/OAuth/Token":            true,
		"https://good.test/oauth;v=1/token;x=y":    true,
		"https://good.test/oauth/tokens":           false,
		"https://good.test/oauth":                  false,
		"https://good.test/x/oauth/token":          false,
		"https://other.test/oauth/token":           false,
		"http://good.test/oauth/token":             false,
		"https://root.test/":                       true,
		"https://root.test/x/..":                   true,
		"https://root.test/oauth/token?/oauth/..=": false,
	} {
		for _, method := range []string{"POST", "GET", "HEAD", "PUT", "OPTIONS", "post"} {
			u, err := url.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			r := request(method, target)
			r.URL = u
			in := input(r, "API_KEY", "ROOT_KEY")
			_, ok := table.TokenEndpoint(in)
			_, refusal := table.Plan(in)
			refused := refusal != nil && refusal.Reason == policy.MethodNotAllowed
			if ok != (want && method == "POST") || refused != (want && method != "POST") {
				t.Errorf("%s %s: answered %v, refused %v", method, target, ok, refusal)
			}
		}
	}
}

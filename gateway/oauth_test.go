package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/gateway/inject"
	"sallyport/policy"
)

// TestOAuthTokenEndpoint: a client that asks the token endpoint of a secret
// is given the placeholder, and nothing of what it sent leaves; what it asks
// elsewhere on the host goes out.
func TestOAuthTokenEndpoint(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2")
	base := fmt.Sprintf("https://api.test:%d/", o.port)
	l.allow("api.test", o.port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	snap := l.snapshot()
	snap.Inject = inject.NewTable([]inject.Secret{{Name: secretName, Spec: snap.Policy.Secret(secretName), TokenURL: "https://api.test/oauth/token",
		Covers: func(h string) bool { return snap.Policy.SecretCovers(secretName, h) }}}, snap.Policy.Sandboxes(), []byte("key"))
	l.g.Swap(snap)
	for _, h2 := range []bool{false, true} {
		c := l.client(t, h2)
		form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"$" + secretName}, "client_id": {"a client"}}
		resp, text, err := body(c.PostForm(base+"oauth/token", form))
		must(t, err)
		var got struct {
			Access string `json:"access_token"`
			Type   string `json:"token_type"`
			Life   int    `json:"expires_in"`
		}
		must(t, json.Unmarshal([]byte(text), &got))
		if resp.StatusCode != http.StatusOK || got.Access != "$"+secretName || got.Type != "Bearer" || got.Life <= 0 || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("h2=%v: %d %s %v", h2, resp.StatusCode, text, resp.Header)
		}
		if strings.Contains(text, secretValue) {
			t.Error("the real token came back")
		}
	}
	if n := len(o.saw()); n != 0 {
		t.Errorf("the origin saw %d requests", n)
	}
	for _, path := range []string{"oauth/%74oken", "oauth/./token", "/oauth/token", "oauth/x/%2e%2e/token?a=b"} {
		resp, text, err := body(l.client(t, false).PostForm(base+path, url.Values{"client_secret": {"a secret"}}))
		must(t, err)
		if n := len(o.saw()); n != 0 {
			t.Errorf("%s: %d %s, the origin saw %d requests", path, resp.StatusCode, text, n)
		}
	}
	resp, text, err := body(l.client(t, false).Get(base + "oauth/token"))
	must(t, err)
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "method_not_allowed") || len(o.saw()) != 0 {
		t.Errorf("a GET of the endpoint: %d %s, the origin saw %d requests", resp.StatusCode, text, len(o.saw()))
	}
	_, _, err = body(l.client(t, false).Get(base + "oauth/tokens"))
	must(t, err)
	if len(o.saw()) != 1 {
		t.Errorf("elsewhere: the origin saw %d requests", len(o.saw()))
	}
	l.await(t, "the end of a token request", func(e *audit.Event) bool {
		return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd && e.HTTP.Method == "POST" && e.HTTP.Status == 200
	})
}

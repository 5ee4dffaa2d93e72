package gcpjwt

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/test/issuer"
)

// keyFile is a key of a service account.
func keyFile(t *testing.T, pem, uri string) string {
	t.Helper()
	b, err := json.Marshal(account{Email: "a@p.iam.gserviceaccount.com", KeyID: "k1", Key: pem, TokenURI: uri})
	if err != nil {
		t.Fatal(err)
	}
	return issuer.File(t, string(b))
}

func TestFetch(t *testing.T) {
	key, pem := issuer.Key(t)
	var form map[string][]string
	address, ca := issuer.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // what is missing differs
		form = r.PostForm
		fmt.Fprint(w, `{"access_token":"ya29.abc","expires_in":3599,"token_type":"Bearer"}`)
	})
	for name, tt := range map[string]struct {
		c    Config
		want map[string]any
	}{
		"audience": {Config{Audience: "https://pubsub.googleapis.com/"}, map[string]any{"aud": "https://pubsub.googleapis.com/"}},
		"scopes":   {Config{Scopes: []string{"a", "b"}}, map[string]any{"scope": "a b"}},
		"exchange": {Config{Scopes: []string{"a"}, Exchange: true}, map[string]any{"scope": "a", "aud": address + "/token"}},
	} {
		tt.c.KeyFile, tt.c.CAFile = keyFile(t, pem, address+"/token"), ca
		s, err := New(tt.c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Fetch(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if got.TTL < 50*time.Minute || got.TTL > 56*time.Minute {
			t.Errorf("%s: good for %v", name, got.TTL)
		}
		token := got.Value.Reveal()
		if tt.c.Exchange {
			if token != "ya29.abc" || form["grant_type"][0] != grantType {
				t.Errorf("%s: %q for %v", name, token, form)
			}
			token = form["assertion"][0]
		}
		head, says := issuer.Claims(t, key, token)
		if head["kid"] != "k1" || says["iss"] != "a@p.iam.gserviceaccount.com" || says["sub"] != says["iss"] || says["exp"].(float64)-says["iat"].(float64) != 3600 {
			t.Errorf("%s: the token says %v %v", name, head, says)
		}
		for k, v := range tt.want {
			if says[k] != v {
				t.Errorf("%s: %s is %v, not %v", name, k, says[k], v)
			}
		}
	}
}

func TestFetchFails(t *testing.T) {
	_, pem := issuer.Key(t)
	address, ca := issuer.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_grant","error_description":"REAL"}`)
	})
	for name, tt := range map[string]struct{ file, want string }{
		"refused":    {keyFile(t, pem, address+"/token"), "status 400: invalid_grant"},
		"plain HTTP": {keyFile(t, pem, "http://token.example/"), "is not https"},
		"no key":     {keyFile(t, "REAL", ""), "holds no PEM block"},
		"no account": {issuer.File(t, `{"private_key":"REAL"}`), "is no key of a service account"},
		"gone":       {"/nonexistent/key", "no such file"},
	} {
		s, err := New(Config{KeyFile: tt.file, Scopes: []string{"a"}, Exchange: true, CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fetch(context.Background()); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "REAL") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]Config{
		"relative":                {KeyFile: "key", Audience: "a"},
		"nothing":                 {KeyFile: "/key"},
		"both":                    {KeyFile: "/key", Audience: "a", Scopes: []string{"b"}},
		"exchange of an audience": {KeyFile: "/key", Audience: "a", Exchange: true},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

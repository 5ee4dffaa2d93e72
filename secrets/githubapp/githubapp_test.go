package githubapp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/test/issuer"
)

func TestFetch(t *testing.T) {
	key, pem := issuer.Key(t)
	var body, jwt, path string
	address, ca := issuer.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // what is missing differs
		body, jwt, path = string(b), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Method+" "+r.URL.Path
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":"ghs_abc","expires_at":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
	for name, tt := range map[string]struct {
		c    Config
		path string
		body string
	}{
		"all of the installation": {Config{API: address}, "POST /app/installations/9/access_tokens", `{}`},
		"narrowed, own server": {Config{API: address + "/api/v3", Repositories: []string{"app"}, Permissions: map[string]string{"contents": "read"}},
			"POST /api/v3/app/installations/9/access_tokens", `{"repositories":["app"],"permissions":{"contents":"read"}}`},
	} {
		tt.c.AppID, tt.c.InstallationID, tt.c.KeyFile, tt.c.CAFile = "Iv1.abc", 9, issuer.File(t, pem), ca
		s, err := New(tt.c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Fetch(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if got.Value.Reveal() != "ghs_abc" || got.TTL < 50*time.Minute || got.TTL > 56*time.Minute {
			t.Errorf("%s: good for %v", name, got.TTL)
		}
		if path != tt.path || body != tt.body {
			t.Errorf("%s: asked %s with %s", name, path, body)
		}
		head, says := issuer.Claims(t, key, jwt)
		now := float64(time.Now().Unix())
		if head["alg"] != "RS256" || says["iss"] != "Iv1.abc" || says["iat"].(float64) > now-30 || says["exp"].(float64) > now+600 {
			t.Errorf("%s: the token says %v %v", name, head, says)
		}
	}
}

func TestFetchFails(t *testing.T) {
	_, pem := issuer.Key(t)
	address, ca := issuer.Serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "REAL-body", http.StatusUnauthorized) })
	for name, tt := range map[string]struct{ file, want string }{
		"refused": {issuer.File(t, pem), "answers with status 401"},
		"no key":  {issuer.File(t, "REAL-key"), "holds no PEM block"},
		"gone":    {"/nonexistent/key", "no such file"},
	} {
		s, err := New(Config{AppID: "1", InstallationID: 1, KeyFile: tt.file, API: address, CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fetch(context.Background()); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "REAL") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{AppID: "1", InstallationID: 1, KeyFile: "/key"}
	for name, change := range map[string]func(*Config){
		"no app":          func(c *Config) { c.AppID = "" },
		"no installation": func(c *Config) { c.InstallationID = 0 },
		"relative":        func(c *Config) { c.KeyFile = "key" },
		"plain HTTP":      func(c *Config) { c.API = "http://github.example/api/v3" },
		"no roots":        func(c *Config) { c.CAFile = "/nonexistent" },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

package vault

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server speaks the part of Vault's protocol that this package uses, and
// refuses what Vault refuses.
type server struct {
	*httptest.Server
	mu        sync.Mutex
	namespace string
	tokens    map[string]time.Time // good ones, and until when; zero: always
	later     time.Duration        // how much later it is than the clock says
	busy      int                  // how many requests are turned away
	lease     int                  // seconds, of logins and renewals
	renewable bool
	logins    int
	renewals  int
	answer    string // of the secret; "": a good one
	status    int    // of the secret; 0: 200
	value     string
}

func newServer(t *testing.T, secure bool) *server {
	s := &server{tokens: map[string]time.Time{"root-token": {}}, lease: 3600, renewable: true, value: "REAL"}
	if secure {
		s.Server = httptest.NewTLSServer(s)
	} else {
		s.Server = httptest.NewServer(s)
	}
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fail := func(status int, text string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{text}})
	}
	if r.Header.Get("X-Vault-Request") != "true" || r.Header.Get("X-Vault-Namespace") != s.namespace {
		fail(http.StatusPreconditionFailed, "wrong namespace")
		return
	}
	if s.busy > 0 {
		s.busy--
		w.Header().Set("Retry-After", "1")
		fail(http.StatusTooManyRequests, "rate limit quota exceeded")
		return
	}
	var with map[string]string
	_ = json.NewDecoder(r.Body).Decode(&with)
	auth := func(token string) {
		s.tokens[token] = time.Now().Add(s.later + time.Duration(s.lease)*time.Second)
		_ = json.NewEncoder(w).Encode(map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": s.lease, "renewable": s.renewable}})
	}
	token := r.Header.Get("X-Vault-Token")
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/auth/approle/login":
		if with["role_id"] != "role" || with["secret_id"] != "SECRET-ID" {
			fail(400, "invalid role or secret ID "+with["secret_id"])
			return
		}
		s.logins++
		auth(fmt.Sprint("approle-token-", s.logins))
		return
	case "POST /v1/auth/k8s/cluster/login":
		if with["role"] != "reader" || with["jwt"] != "JWT" {
			fail(403, "permission denied")
			return
		}
		s.logins++
		auth(fmt.Sprint("k8s-token-", s.logins))
		return
	}
	if until, ok := s.tokens[token]; !ok || !until.IsZero() && time.Now().Add(s.later).After(until) {
		fail(403, "permission denied")
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/auth/token/lookup-self":
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"ttl": s.lease, "renewable": s.renewable}})
	case "POST /v1/auth/token/renew-self":
		if !s.renewable {
			fail(400, "lease is not renewable")
			return
		}
		s.renewals++
		auth(token)
	case "GET /v1/secret/data/app/key":
		switch {
		case s.status != 0:
			if s.status/100 == 3 {
				w.Header().Set("Location", "http://attacker.test/")
			}
			fail(s.status, "the server says no to "+token)
		case s.answer != "":
			fmt.Fprint(w, s.answer)
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{
				"data": map[string]any{"value": s.value, "number": 12345678901, "list": []int{1}, "line": "REAL\nX: y"}, "metadata": map[string]any{"version": 1, "deletion_time": ""},
			}})
		}
	default:
		fail(404, "")
	}
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *server) config(t *testing.T) Config {
	return Config{Address: s.URL, Path: "secret/app/key", TokenFile: file(t, "root-token\n")}
}

func TestFetch(t *testing.T) {
	t.Setenv("SALLYPORT_TEST_VAULT_TOKEN", "root-token")
	tests := map[string]struct {
		config func(*testing.T, *Config)
		server func(*server)
		want   string
		err    string
	}{
		"token":               {want: "REAL"},
		"token of a variable": {config: func(_ *testing.T, c *Config) { c.TokenFile, c.TokenEnv = "", "SALLYPORT_TEST_VAULT_TOKEN" }, want: "REAL"},
		"path of the API":     {config: func(_ *testing.T, c *Config) { c.Path = "/secret/data/app/key" }, want: "REAL"},
		"mount":               {config: func(_ *testing.T, c *Config) { c.Mount = "secret" }, want: "REAL"},
		"number":              {config: func(_ *testing.T, c *Config) { c.Field = "number" }, want: "12345678901"},
		"namespace":           {config: func(_ *testing.T, c *Config) { c.Namespace = "team" }, server: func(s *server) { s.namespace = "team" }, want: "REAL"},
		"AppRole": {config: func(t *testing.T, c *Config) {
			c.TokenFile, c.AppRole = "", &AppRole{RoleID: "role", SecretIDFile: file(t, "SECRET-ID\n")}
		}, want: "REAL"},
		"Kubernetes": {config: func(t *testing.T, c *Config) {
			c.TokenFile, c.Kubernetes = "", &Kubernetes{Mount: "/k8s/cluster/", Role: "reader", JWTFile: file(t, "JWT")}
		}, want: "REAL"},
		"wrong namespace": {server: func(s *server) { s.namespace = "team" }, err: "wrong namespace"},
		"wrong token":     {config: func(t *testing.T, c *Config) { c.TokenFile = file(t, "WRONG") }, err: "status 403: permission denied"},
		"wrong secret ID": {config: func(t *testing.T, c *Config) {
			c.TokenFile, c.AppRole = "", &AppRole{RoleID: "role", SecretIDFile: file(t, "WRONG-ID")}
		}, err: "vault: login: status 400"},
		"no token file":    {config: func(_ *testing.T, c *Config) { c.TokenFile = "/no/such/file" }, err: "no such file"},
		"empty token file": {config: func(t *testing.T, c *Config) { c.TokenFile = file(t, "\n") }, err: "is empty"},
		"no variable":      {config: func(_ *testing.T, c *Config) { c.TokenFile, c.TokenEnv = "", "SALLYPORT_TEST_NOT_SET" }, err: "is not set"},
		"no field":         {config: func(_ *testing.T, c *Config) { c.Field = "x" }, err: `has no field "x"`},
		"list":             {config: func(_ *testing.T, c *Config) { c.Field = "list" }, err: `field "list" is no string`},
		"line":             {config: func(_ *testing.T, c *Config) { c.Field = "line" }, err: "control character"},
		"no secret":        {config: func(_ *testing.T, c *Config) { c.Path = "secret/other" }, err: "vault: read secret/other: status 404"},
		"redirect":         {server: func(s *server) { s.status = 307 }, err: "redirects are not followed"},
		"sealed":           {server: func(s *server) { s.status = 503 }, err: "status 503"},
		"no JSON":          {server: func(s *server) { s.answer = "REAL" }, err: "not that of a key-value store"},
		"version 1":        {server: func(s *server) { s.answer = `{"data":{"value":"REAL"}}` }, err: `has no field "value"`},
		"deleted": {server: func(s *server) {
			s.answer = `{"data":{"data":null,"metadata":{"deletion_time":"2026-01-01T00:00:00Z"}}}`
		}, err: "deleted"},
		"too long": {server: func(s *server) { s.answer = strings.Repeat("R", 2<<20) }, err: "longer than"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t, false)
			c := srv.config(t)
			if tt.config != nil {
				tt.config(t, &c)
			}
			if tt.server != nil {
				srv.set(tt.server)
			}
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			f, err := s.Fetch(t.Context())
			if tt.err == "" {
				if err != nil || f.Value.Reveal() != tt.want || f.TTL != defaultTTL {
					t.Errorf("%q, %v, %v", f.Value.Reveal(), f.TTL, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || !f.Value.IsZero() {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			for _, hidden := range []string{"REAL", "WRONG", "root-token", "SECRET-ID"} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("error shows %s: %v", hidden, err)
				}
			}
		})
	}
}

func TestTokenIsRenewedAndReplaced(t *testing.T) {
	srv := newServer(t, false)
	c := srv.config(t)
	c.TokenFile, c.AppRole = "", &AppRole{RoleID: "role", SecretIDFile: file(t, "SECRET-ID")}
	made, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := made.(*source)
	fetch := func(logins, renewals int) {
		t.Helper()
		f, err := s.Fetch(t.Context())
		if err != nil || f.Value.Reveal() != "REAL" || srv.logins != logins || srv.renewals != renewals {
			t.Fatalf("%v after %d logins and %d renewals, want %d and %d", err, srv.logins, srv.renewals, logins, renewals)
		}
	}
	pass := func(d time.Duration) { // on both sides
		s.token.begun = s.token.begun.Add(-d)
		srv.set(func(s *server) { s.later += d })
	}
	fetch(1, 0)
	fetch(1, 0)
	pass(31 * time.Minute) // past half of an hour
	fetch(1, 1)
	pass(20 * time.Minute) // and longer than the first lease
	fetch(1, 1)
	srv.set(func(s *server) { s.renewable = false })
	pass(20 * time.Minute)
	fetch(2, 1)
	pass(2 * time.Hour) // the token is over
	fetch(3, 1)
	srv.set(func(s *server) { s.later += 2 * time.Hour }) // and is by the server's clock alone
	fetch(4, 1)
	srv.set(func(s *server) { clear(s.tokens) }) // revoked
	fetch(5, 1)
	// The way to log in is gone, but the token is good for some time.
	s.token.begun = s.token.begun.Add(-31 * time.Minute)
	s.c.AppRole.SecretIDFile = "/no/such/file"
	fetch(5, 1)
}

// TestServerThatTurnsAway: a server that has too much to do, or is sealed, is
// asked again after a pause, not at once, by the store, and the value is had
// once it answers.
func TestServerThatTurnsAway(t *testing.T) {
	srv := newServer(t, false)
	srv.set(func(s *server) { s.busy = 2 })
	src, err := New(srv.config(t))
	if err != nil {
		t.Fatal(err)
	}
	store, err := secrets.Open(secrets.Options{Specs: []secrets.Spec{{Name: "KEY", Kind: "vault", Source: src}}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { store.Run(ctx) })
	defer running.Wait()
	defer cancel()
	begun := time.Now()
	store.Warm(ctx, []string{"KEY"})
	for range 20 { // none of these asks the server
		if _, err := store.Get(ctx, "KEY"); err == nil || !strings.Contains(err.Error(), "status 429: rate limit quota exceeded") {
			t.Fatalf("turned away: %v", err)
		}
	}
	for {
		v, err := store.Get(ctx, "KEY")
		if err == nil {
			if took := time.Since(begun); v.Reveal() != "REAL" || took < 3*time.Second {
				t.Errorf("%q after %v", v.Reveal(), took)
			}
			return
		}
		if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{Address: "https://vault.test:8200", Path: "secret/app", TokenFile: "/token"}
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"plain HTTP":   {func(c *Config) { c.Address = "http://vault.test:8200" }, "plain HTTP"},
		"no scheme":    {func(c *Config) { c.Address = "vault.test:8200" }, "is not https"},
		"userinfo":     {func(c *Config) { c.Address = "https://a:b@vault.test" }, "is not https"},
		"path":         {func(c *Config) { c.Address = "https://vault.test/v1" }, "is not https"},
		"no path":      {func(c *Config) { c.Path = "" }, "is not mount/path"},
		"mount alone":  {func(c *Config) { c.Path = "secret" }, "is not mount/path"},
		"dots":         {func(c *Config) { c.Path = "secret/../sys/raw" }, "no name"},
		"query":        {func(c *Config) { c.Path = "secret/a?version=1" }, "no name"},
		"no login":     {func(c *Config) { c.TokenFile = "" }, "one way to log in"},
		"two logins":   {func(c *Config) { c.TokenEnv = "X" }, "one way to log in"},
		"half AppRole": {func(c *Config) { c.TokenFile, c.AppRole = "", &AppRole{RoleID: "x"} }, "AppRole needs"},
		"no role":      {func(c *Config) { c.TokenFile, c.Kubernetes = "", &Kubernetes{} }, "needs a role"},
		"negative":     {func(c *Config) { c.TTL = -1 }, "negative"},
		"no CA file":   {func(c *Config) { c.CAFile = "/no/such/ca" }, "ca_file"},
	} {
		c := good
		tt.change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

func TestCertificateIsVerified(t *testing.T) {
	srv := newServer(t, true)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	c := srv.config(t)
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v", err)
	}
	c.CAFile = file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	if s, err = New(c); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Fetch(t.Context()); err != nil || f.Value.Reveal() != "REAL" {
		t.Errorf("error %v", err)
	}
}

package oauth2

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport/test/issuer"
)

// asked is what the endpoint was sent.
type asked struct {
	Form       url.Values
	User, Pass string
}

func endpoint(t *testing.T, answer string) (address, ca string, last *asked) {
	last = &asked{}
	address, ca = issuer.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // what is missing differs
		last.Form = r.PostForm
		last.User, last.Pass, _ = r.BasicAuth()
		fmt.Fprint(w, answer)
	})
	return address + "/token", ca, last
}

func TestFetch(t *testing.T) {
	secret := issuer.File(t, "s/e c\n")
	for name, tt := range map[string]struct {
		c    Config
		want asked
	}{
		"Basic": {Config{ClientSecretFile: secret, Scopes: []string{"a", "b"}, Audience: "api", Params: map[string]string{"resource": "x"}},
			asked{url.Values{"grant_type": {"client_credentials"}, "scope": {"a b"}, "audience": {"api"}, "resource": {"x"}}, "id", "s%2Fe+c"}},
		"in the body": {Config{ClientSecretFile: secret, InBody: true},
			asked{url.Values{"grant_type": {"client_credentials"}, "client_id": {"id"}, "client_secret": {"s/e c"}}, "", ""}},
		"refresh token of a public client": {Config{Grant: RefreshToken, RefreshTokenFile: issuer.File(t, "r0\n")},
			asked{url.Values{"grant_type": {"refresh_token"}, "refresh_token": {"r0"}, "client_id": {"id"}}, "", ""}},
	} {
		address, ca, last := endpoint(t, `{"access_token":"at","token_type":"bearer","expires_in":600}`)
		tt.c.TokenURL, tt.c.ClientID, tt.c.CAFile = address, "id", ca
		s, err := New(tt.c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Fetch(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if got.Value.Reveal() != "at" || got.TTL != 9*time.Minute {
			t.Errorf("%s: good for %v", name, got.TTL)
		}
		if diff := cmp.Diff(tt.want, *last); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRefreshTokenIsReplaced: the new one is on disk, or in memory where the
// folder cannot be written, and is what is used next.
func TestRefreshTokenIsReplaced(t *testing.T) {
	address, ca, last := endpoint(t, `{"access_token":"at","refresh_token":"r1"}`)
	file := issuer.File(t, "r0\n")
	c := Config{TokenURL: address, ClientID: "id", Grant: RefreshToken, RefreshTokenFile: file, CAFile: ca}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"r0", "r1", "r1"} {
		if _, err := s.Fetch(context.Background()); err != nil || last.Form.Get("refresh_token") != want {
			t.Errorf("asked with %q, %v", last.Form.Get("refresh_token"), err)
		}
	}
	b, err := os.ReadFile(file)
	info, serr := os.Stat(file)
	if err != nil || serr != nil || string(b) != "r1\n" || info.Mode().Perm() != 0o600 {
		t.Errorf("the file holds %q, %v %v", b, err, serr)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*"))
	if len(left) != 1 || left[0] != NextFile(file) {
		t.Errorf("%v were left behind", left)
	}
	if next, err := os.Stat(NextFile(file)); err != nil || next.Size() != 0 || next.Mode().Perm() != 0o600 {
		t.Errorf("the file for the next token: %v, %v", next, err)
	}
	c.RefreshTokenFile = "/proc/self/comm" // can be read, and nothing can be made beside it
	if s, err = New(c); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := s.Fetch(context.Background()); err != nil || i == 1 && last.Form.Get("refresh_token") != "r1" {
			t.Errorf("asked with %q, %v", last.Form.Get("refresh_token"), err)
		}
	}
}

// TestRefreshTokenOfAnExchangeUnderWay: an endpoint that has been asked is
// heard out when the fetch is cancelled, as at the end of a store, and what it
// gives is kept.
func TestRefreshTokenOfAnExchangeUnderWay(t *testing.T) {
	asked, cancelled := make(chan struct{}), make(chan struct{})
	address, ca := issuer.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-cancelled
		fmt.Fprint(w, `{"access_token":"at","refresh_token":"r1"}`)
	})
	file := issuer.File(t, "r0\n")
	s, err := New(Config{TokenURL: address, ClientID: "id", Grant: RefreshToken, RefreshTokenFile: file, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-asked
		cancel()
		close(cancelled)
	}()
	if got, err := s.Fetch(ctx); err != nil || got.Value.Reveal() != "at" {
		t.Errorf("fetched with %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "r1\n" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if _, err := s.Fetch(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("asked again after the end: %v", err)
	}
}

// TestNextFileIsEmptied: what a process left that ended while it wrote goes.
func TestNextFileIsEmptied(t *testing.T) {
	address, ca, _ := endpoint(t, `{"access_token":"at"}`)
	file := issuer.File(t, "r0\n")
	if err := os.WriteFile(NextFile(file), []byte("r1"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{TokenURL: address, ClientID: "id", Grant: RefreshToken, RefreshTokenFile: file, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(NextFile(file)); err != nil || len(b) != 0 {
		t.Errorf("it holds %q, %v", b, err)
	}
}

func TestFetchFails(t *testing.T) {
	for name, tt := range map[string]struct{ answer, file, want string }{
		"no token":         {`{"token_type":"bearer","x":"REAL"}`, "", "value is empty"},
		"control":          {`{"access_token":"REAL\u0000"}`, "", "control character"},
		"bad refresh":      {`{"access_token":"at","refresh_token":"REAL\n\n"}`, "", "refresh_token: "},
		"no refresh token": {`{}`, "/nonexistent/r", "no such file"},
	} {
		address, ca, _ := endpoint(t, tt.answer)
		if tt.file == "" {
			tt.file = issuer.File(t, "r0")
		}
		s, err := New(Config{TokenURL: address, ClientID: "id", Grant: RefreshToken, RefreshTokenFile: tt.file, CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fetch(context.Background()); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "REAL") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{TokenURL: "https://login.example/token", ClientID: "id", ClientSecretFile: "/s"}
	for name, change := range map[string]func(*Config){
		"plain HTTP":               func(c *Config) { c.TokenURL = "http://login.example/token" },
		"no client":                func(c *Config) { c.ClientID = "" },
		"no secret":                func(c *Config) { c.ClientSecretFile = "" },
		"relative":                 func(c *Config) { c.ClientSecretFile = "s" },
		"unknown grant":            func(c *Config) { c.Grant = "password" },
		"refresh without a file":   func(c *Config) { c.Grant = RefreshToken },
		"a file without the grant": func(c *Config) { c.RefreshTokenFile = "/r" },
		"no roots":                 func(c *Config) { c.CAFile = "/nonexistent" },
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

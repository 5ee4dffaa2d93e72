// Package oauth2 takes access tokens from an OAuth 2 token endpoint (RFC 6749)
// in the place of the sandbox's clients.
package oauth2

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sallyport/secrets"
)

// The grants that a client can do without a person.
const (
	ClientCredentials = "client_credentials"
	RefreshToken      = "refresh_token"
)

// defaultTTL is how long a token is good whose endpoint does not say.
const defaultTTL = 5 * time.Minute

// maxFile is the longest file of a secret, in bytes.
const maxFile = 64 << 10

// Config says which endpoint, and who asks.
type Config struct {
	TokenURL         string
	Grant            string // ClientCredentials or RefreshToken; "": the first
	ClientID         string
	ClientSecretFile string // absolute path; "": a public client
	RefreshTokenFile string // absolute path, of RefreshToken; rewritten when the endpoint gives another
	Scopes           []string
	Audience         string            // of endpoints that want one; "": none
	Params           map[string]string // further parameters
	InBody           bool              // the client's secret goes into the body, not into Basic
	CAFile           string            // roots beside the system's; "": none
}

type source struct {
	c      Config
	url    string
	client *secrets.Client

	mu      sync.Mutex
	refresh func() string // the token that the endpoint gave last, when it could not be written
}

// New makes a source of c. Files are read at each fetch.
func New(c Config) (secrets.Source, error) {
	u, err := secrets.Endpoint(c.TokenURL)
	if err != nil {
		return nil, fmt.Errorf("oauth2: token_url: %w", err)
	}
	if c.Grant == "" {
		c.Grant = ClientCredentials
	}
	switch {
	case c.ClientID == "":
		return nil, errors.New("oauth2: client_id is missing")
	case c.Grant != ClientCredentials && c.Grant != RefreshToken:
		return nil, fmt.Errorf("oauth2: grant %q is neither %s nor %s", c.Grant, ClientCredentials, RefreshToken)
	case (c.Grant == RefreshToken) != (c.RefreshTokenFile != ""):
		return nil, fmt.Errorf("oauth2: refresh_token_file belongs to the grant %s", RefreshToken)
	case c.Grant == ClientCredentials && c.ClientSecretFile == "":
		return nil, errors.New("oauth2: client_secret_file is missing")
	}
	for _, f := range []struct{ name, path string }{{"client_secret_file", c.ClientSecretFile}, {"refresh_token_file", c.RefreshTokenFile}} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return nil, fmt.Errorf("oauth2: %s %q is not absolute", f.name, f.path)
		}
	}
	client, err := secrets.NewClient(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("oauth2: %w", err)
	}
	return &source{c: c, url: u.String(), client: client}, nil
}

// Fetch asks for a token.
func (s *source) Fetch(ctx context.Context) (secrets.Fetched, error) {
	f, err := s.fetch(ctx)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("oauth2: %w", err)
	}
	return f, nil
}

func (s *source) fetch(ctx context.Context) (secrets.Fetched, error) {
	s.lay()
	req, err := s.request()
	if err != nil {
		return secrets.Fetched{}, err
	}
	ctx, done := s.whole(ctx)
	defer done()
	var answer struct {
		Access  string `json:"access_token"`
		Type    string `json:"token_type"`
		Seconds int64  `json:"expires_in"`
		Refresh string `json:"refresh_token"`
	}
	if err := s.client.JSON(ctx, req, &answer); err != nil {
		return secrets.Fetched{}, fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	v, err := secrets.NewValue([]byte(answer.Access))
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("%s: access_token: %w", req.URL.Host, err)
	}
	if answer.Refresh != "" && s.c.Grant == RefreshToken {
		if err := s.keep(answer.Refresh); err != nil {
			return secrets.Fetched{}, err
		}
	}
	ttl := defaultTTL
	if answer.Seconds > 0 {
		// A tenth of its life, at most a minute, is left for the way.
		ttl = time.Duration(min(answer.Seconds, 1<<31)) * time.Second
		ttl -= min(ttl/10, time.Minute)
	}
	return secrets.Fetched{Value: v, TTL: ttl}, nil
}

// request makes the request of RFC 6749, section 4.4.2 or 6.
func (s *source) request() (*http.Request, error) {
	form := url.Values{"grant_type": {s.c.Grant}}
	for name, value := range s.c.Params {
		form.Set(name, value)
	}
	if len(s.c.Scopes) > 0 {
		form.Set("scope", strings.Join(s.c.Scopes, " "))
	}
	if s.c.Audience != "" {
		form.Set("audience", s.c.Audience)
	}
	if s.c.Grant == RefreshToken {
		token, err := s.held()
		if err != nil {
			return nil, err
		}
		form.Set("refresh_token", token)
	}
	secret := ""
	if s.c.ClientSecretFile != "" {
		var err error
		if secret, err = read(s.c.ClientSecretFile); err != nil {
			return nil, err
		}
	}
	basic := secret != "" && !s.c.InBody
	if !basic {
		form.Set("client_id", s.c.ClientID)
		if secret != "" {
			form.Set("client_secret", secret)
		}
	}
	req, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}, "User-Agent": {"sallyport"}}
	if basic { // each is encoded as in a form (section 2.3.1)
		req.SetBasicAuth(url.QueryEscape(s.c.ClientID), url.QueryEscape(secret))
	}
	return req, nil
}

// Package githubapp mints installation tokens of a GitHub App.
package githubapp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"sallyport/secrets"
)

const (
	defaultAPI = "https://api.github.com"
	// skew is how far GitHub's clock may be behind.
	skew = time.Minute
	// life is that of the token which asks; GitHub takes at most 10 minutes.
	life = 9 * time.Minute
	// early is how long before its end an installation token is replaced.
	early = 5 * time.Minute
)

// Config says which app, and what its tokens may do. What is not narrowed is
// what the installation may.
type Config struct {
	AppID          string // or the app's client ID
	InstallationID int64
	KeyFile        string            // absolute path of the app's private key, in PEM
	API            string            // "": https://api.github.com; https://HOST/api/v3 of a server of one's own
	Repositories   []string          // names without the owner; empty: all of the installation
	Permissions    map[string]string // such as contents = "read"; empty: all of the installation
	CAFile         string            // roots beside the system's; "": none
}

type source struct {
	c      Config
	client *secrets.Client
	target string
	body   []byte
}

// New makes a source of c. It reads the key and connects at each fetch.
func New(c Config) (secrets.Source, error) {
	switch {
	case c.AppID == "":
		return nil, errors.New("github_app: app_id is missing")
	case c.InstallationID <= 0:
		return nil, errors.New("github_app: installation_id is missing")
	case !filepath.IsAbs(c.KeyFile):
		return nil, fmt.Errorf("github_app: key_file %q is not absolute", c.KeyFile)
	}
	if c.API == "" {
		c.API = defaultAPI
	}
	u, err := secrets.Endpoint(c.API)
	if err != nil {
		return nil, fmt.Errorf("github_app: api: %w", err)
	}
	client, err := secrets.NewClient(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("github_app: %w", err)
	}
	body, err := json.Marshal(struct {
		Repositories []string          `json:"repositories,omitempty"`
		Permissions  map[string]string `json:"permissions,omitempty"`
	}{c.Repositories, c.Permissions})
	if err != nil {
		return nil, fmt.Errorf("github_app: %w", err)
	}
	target := u.JoinPath("app", "installations", strconv.FormatInt(c.InstallationID, 10), "access_tokens")
	return &source{c: c, client: client, target: target.String(), body: body}, nil
}

// Fetch mints a token.
func (s *source) Fetch(ctx context.Context) (secrets.Fetched, error) {
	pem, err := secrets.ReadFile(s.c.KeyFile)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("github_app: %w", err)
	}
	key, err := secrets.RSAKey(pem)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("github_app: key_file %s: %w", s.c.KeyFile, err)
	}
	now := time.Now()
	jwt, err := secrets.SignJWT(key, "", map[string]any{"iat": now.Add(-skew).Unix(), "exp": now.Add(life).Unix(), "iss": s.c.AppID})
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("github_app: %w", err)
	}
	req, err := http.NewRequest(http.MethodPost, s.target, bytes.NewReader(s.body))
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("github_app: %w", err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + jwt}, "Accept": {"application/vnd.github+json"},
		"Content-Type": {"application/json"}, "X-Github-Api-Version": {"2022-11-28"}, "User-Agent": {"sallyport"}}
	var answer struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	if err := s.client.JSON(ctx, req, &answer); err != nil {
		return secrets.Fetched{}, fmt.Errorf("github_app: %s: %w", s.c.API, err)
	}
	v, err := secrets.NewValue([]byte(answer.Token))
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("github_app: %s: token: %w", s.c.API, err)
	}
	ttl := answer.Expires.Sub(now) - early
	if answer.Expires.IsZero() || ttl <= 0 {
		ttl = early
	}
	return secrets.Fetched{Value: v, TTL: ttl}, nil
}

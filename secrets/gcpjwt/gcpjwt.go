// Package gcpjwt mints tokens of a Google service account.
package gcpjwt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"sallyport/secrets"
)

const (
	// life is that of a token; Google takes at most an hour.
	life = time.Hour
	// early is how long before its end a token is replaced.
	early     = 5 * time.Minute
	grantType = "urn:ietf:params:oauth:grant-type:jwt-bearer"
)

// Config says whose tokens, and for what: an audience or scopes.
type Config struct {
	KeyFile  string // absolute path of the account's JSON key
	Audience string // of a token that the service itself takes, such as "https://pubsub.googleapis.com/"
	Scopes   []string
	Exchange bool   // for an access token, at the account's token endpoint
	CAFile   string // roots beside the system's; "": none
}

type source struct {
	c      Config
	client *secrets.Client
}

// New makes a source of c. The key is read at each fetch.
func New(c Config) (secrets.Source, error) {
	switch {
	case !filepath.IsAbs(c.KeyFile):
		return nil, fmt.Errorf("gcp_jwt: key_file %q is not absolute", c.KeyFile)
	case (c.Audience == "") == (len(c.Scopes) == 0):
		return nil, errors.New("gcp_jwt: give either audience or scopes")
	case c.Exchange && c.Audience != "":
		return nil, errors.New("gcp_jwt: exchange is for scopes, not for an audience")
	}
	client, err := secrets.NewClient(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("gcp_jwt: %w", err)
	}
	return &source{c, client}, nil
}

// account is what a key file says.
type account struct {
	Email    string `json:"client_email"`
	KeyID    string `json:"private_key_id"`
	Key      string `json:"private_key"`
	TokenURI string `json:"token_uri"`
}

// Fetch mints a token.
func (s *source) Fetch(ctx context.Context) (secrets.Fetched, error) {
	f, err := s.fetch(ctx)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("gcp_jwt: %w", err)
	}
	return f, nil
}

func (s *source) fetch(ctx context.Context) (secrets.Fetched, error) {
	b, err := secrets.ReadFile(s.c.KeyFile)
	if err != nil {
		return secrets.Fetched{}, err
	}
	var a account
	if json.Unmarshal(b, &a) != nil || a.Email == "" {
		return secrets.Fetched{}, fmt.Errorf("key_file %s: is no key of a service account", s.c.KeyFile)
	}
	key, err := secrets.RSAKey([]byte(a.Key))
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("key_file %s: %w", s.c.KeyFile, err)
	}
	now := time.Now()
	claims := map[string]any{"iss": a.Email, "sub": a.Email, "iat": now.Unix(), "exp": now.Add(life).Unix()}
	if s.c.Audience != "" {
		claims["aud"] = s.c.Audience
	} else {
		claims["scope"] = strings.Join(s.c.Scopes, " ")
	}
	if s.c.Exchange {
		claims["aud"] = a.TokenURI
	}
	token, err := secrets.SignJWT(key, a.KeyID, claims)
	if err != nil {
		return secrets.Fetched{}, err
	}
	ttl := life
	if s.c.Exchange {
		if token, ttl, err = s.exchange(ctx, a.TokenURI, token); err != nil {
			return secrets.Fetched{}, err
		}
	}
	v, err := secrets.NewValue([]byte(token))
	return secrets.Fetched{Value: v, TTL: max(ttl-early, time.Second)}, err
}

// exchange takes an access token for one that was signed here (RFC 7523,
// section 2.1).
func (s *source) exchange(ctx context.Context, uri, assertion string) (string, time.Duration, error) {
	u, err := secrets.Endpoint(uri)
	if err != nil {
		return "", 0, fmt.Errorf("token_uri: %w", err)
	}
	form := url.Values{"grant_type": {grantType}, "assertion": {assertion}}
	req, err := http.NewRequest(http.MethodPost, u.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int64  `json:"expires_in"`
	}
	if err := s.client.JSON(ctx, req, &answer); err != nil {
		return "", 0, fmt.Errorf("%s: %w", u.Host, err)
	}
	return answer.Token, time.Duration(min(answer.Seconds, int64(life/time.Second))) * time.Second, nil
}

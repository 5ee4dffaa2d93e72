package vault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"sallyport/secrets"
)

// serviceAccount is where Kubernetes mounts the token of a pod's account.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// maxFile is the longest file of a credential, in bytes.
const maxFile = 64 << 10

// token is what a login gave.
type token struct {
	text      string
	begun     time.Time
	lease     time.Duration // 0: it does not end
	renewable bool
}

// aging says whether half of t's life is over.
func (t token) aging(now time.Time) bool { return t.lease > 0 && now.Sub(t.begun) > t.lease/2 }

// over says whether t is good for less than a few seconds.
func (t token) over(now time.Time) bool {
	return t.lease > 0 && now.Sub(t.begun) > t.lease-5*time.Second
}

func (c *Config) checkLogin() error {
	n := 0
	for _, given := range []bool{c.TokenFile != "", c.TokenEnv != "", c.AppRole != nil, c.Kubernetes != nil} {
		if given {
			n++
		}
	}
	switch {
	case n != 1:
		return errors.New("vault: name one way to log in: a token, an AppRole or Kubernetes")
	case c.AppRole != nil && (c.AppRole.RoleID == "" || c.AppRole.SecretIDFile == ""):
		return errors.New("vault: an AppRole needs its role ID and the file of its secret ID")
	case c.Kubernetes != nil && c.Kubernetes.Role == "":
		return errors.New("vault: Kubernetes needs a role")
	}
	return nil
}

// ensure makes sure that there is a token: one that ages is renewed, one that
// is over or cannot be renewed is replaced. It says whether the token is new.
func (s *source) ensure(ctx context.Context) (fresh bool, err error) {
	now := time.Now()
	if s.token.text != "" && !s.token.over(now) {
		if !s.token.aging(now) {
			return false, nil
		}
		if s.token.renewable && s.renew(ctx) == nil {
			return false, nil
		}
	}
	t, err := s.login(ctx)
	if err != nil {
		if s.token.text != "" && !s.token.over(now) {
			return false, nil // old, but good
		}
		return false, err
	}
	s.token = t
	return true, nil
}

func (s *source) login(ctx context.Context) (token, error) {
	switch {
	case s.c.AppRole != nil:
		secretID, err := readFile(s.c.AppRole.SecretIDFile)
		if err != nil {
			return token{}, err
		}
		return s.auth(ctx, or(s.c.AppRole.Mount, "approle"), map[string]string{"role_id": s.c.AppRole.RoleID, "secret_id": secretID})
	case s.c.Kubernetes != nil:
		jwt, err := readFile(or(s.c.Kubernetes.JWTFile, serviceAccount))
		if err != nil {
			return token{}, err
		}
		return s.auth(ctx, or(s.c.Kubernetes.Mount, "kubernetes"), map[string]string{"role": s.c.Kubernetes.Role, "jwt": jwt})
	case s.c.TokenEnv != "":
		text := strings.TrimSpace(os.Getenv(s.c.TokenEnv))
		if text == "" {
			return token{}, fmt.Errorf("environment variable %s is not set", s.c.TokenEnv)
		}
		return s.lookup(ctx, text)
	}
	text, err := readFile(s.c.TokenFile)
	if err != nil {
		return token{}, err
	}
	return s.lookup(ctx, text)
}

// auth logs in at an auth method.
func (s *source) auth(ctx context.Context, mount string, with map[string]string) (token, error) {
	body, err := s.call(ctx, http.MethodPost, s.c.Address+"/v1/auth/"+strings.Trim(mount, "/")+"/login", "", with)
	if err != nil {
		return token{}, err
	}
	return leased(body)
}

// renew lengthens the life of the token.
func (s *source) renew(ctx context.Context) error {
	body, err := s.call(ctx, http.MethodPost, s.c.Address+"/v1/auth/token/renew-self", s.token.text, map[string]string{})
	if err != nil {
		return err
	}
	t, err := leased(body)
	if err == nil {
		s.token = t
	}
	return err
}

// lookup asks how long a token that was given is good. A token that may not
// ask is used as it is.
func (s *source) lookup(ctx context.Context, text string) (token, error) {
	t := token{text: text, begun: time.Now()}
	body, err := s.call(ctx, http.MethodGet, s.c.Address+"/v1/auth/token/lookup-self", text, nil)
	if isStatus(err, http.StatusForbidden) {
		return t, nil
	}
	if err != nil {
		return token{}, err
	}
	var doc struct {
		Data struct {
			TTL       int64 `json:"ttl"` // seconds
			Renewable bool  `json:"renewable"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return token{}, errors.New("answer about the token cannot be read")
	}
	t.lease, t.renewable = time.Duration(doc.Data.TTL)*time.Second, doc.Data.Renewable
	return t, nil
}

// leased reads the answer to a login or a renewal.
func leased(body []byte) (token, error) {
	var doc struct {
		Auth struct {
			Token     string `json:"client_token"`
			Lease     int64  `json:"lease_duration"` // seconds
			Renewable bool   `json:"renewable"`
		} `json:"auth"`
	}
	if json.Unmarshal(body, &doc) != nil || doc.Auth.Token == "" {
		return token{}, errors.New("answer holds no token")
	}
	return token{text: doc.Auth.Token, begun: time.Now(), lease: time.Duration(doc.Auth.Lease) * time.Second, renewable: doc.Auth.Renewable}, nil
}

// readFile reads the credential in a file, without white space round it.
func readFile(path string) (string, error) {
	f, err := secrets.OpenFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return "", fmt.Errorf("file %s is empty", path)
	}
	return text, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

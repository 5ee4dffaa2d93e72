// Package vault takes a secret from the key-value store, version 2, of a
// HashiCorp Vault or a server that speaks its protocol.
package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"sallyport/secrets"
)

// defaultTTL is how long a value is good when the configuration does not say:
// the store itself does not announce changes.
const defaultTTL = 5 * time.Minute

// Config says which field of which secret, and how to log in. Exactly one of
// Token…, AppRole and Kubernetes has to be given.
type Config struct {
	Address   string        // https://host:port; plain HTTP to loopback only
	Namespace string        // "": none
	Path      string        // mount/path, with or without the "data" of the API after the mount
	Mount     string        // of the engine, when it has more than one segment
	Field     string        // "": "value"
	TTL       time.Duration // 0: 5 min
	CAFile    string        // "": the system's roots

	TokenFile string // read at each login
	TokenEnv  string // name of a variable of the gateway

	AppRole    *AppRole
	Kubernetes *Kubernetes
}

// AppRole logs in by a role and its secret.
type AppRole struct {
	Mount        string // "": "approle"
	RoleID       string
	SecretIDFile string
}

// Kubernetes logs in by the token of a service account.
type Kubernetes struct {
	Mount   string // "": "kubernetes"
	Role    string
	JWTFile string // "": where Kubernetes mounts it
}

type source struct {
	c      Config
	client *http.Client
	url    string // of the secret

	mu    sync.Mutex // of token; the store never fetches twice at once, but Sources may be shared
	token token
}

// New makes a source of c. It connects at each fetch, not in New.
func New(c Config) (secrets.Source, error) {
	base, err := address(c.Address)
	if err != nil {
		return nil, err
	}
	path, err := dataPath(c.Path, c.Mount)
	if err != nil {
		return nil, err
	}
	if err := c.checkLogin(); err != nil {
		return nil, err
	}
	if c.TTL < 0 {
		return nil, errors.New("vault: ttl is negative")
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Field == "" {
		c.Field = "value"
	}
	client, err := newClient(c.CAFile)
	if err != nil {
		return nil, err
	}
	c.Address = base
	return &source{c: c, client: client, url: base + "/v1/" + path}, nil
}

// dataPath returns the path of the API for a secret.
func dataPath(path, mount string) (string, error) {
	path, mount = strings.Trim(path, "/"), strings.Trim(mount, "/")
	if mount == "" {
		mount, _, _ = strings.Cut(path, "/")
	}
	rest, ok := strings.CutPrefix(path, mount+"/")
	rest = strings.TrimPrefix(rest, "data/")
	if !ok || rest == "" {
		return "", fmt.Errorf("vault: path %q is not mount/path", path)
	}
	for _, seg := range strings.Split(mount+"/"+rest, "/") {
		if seg == "" || seg == "." || seg == ".." || strings.ContainsAny(seg, "?#%\\") {
			return "", fmt.Errorf("vault: path %q has a segment that is no name", path)
		}
	}
	return mount + "/data/" + rest, nil
}

// Fetch logs in if need be and reads the secret. A login that the server no
// longer knows is made anew once.
func (s *source) Fetch(ctx context.Context) (secrets.Fetched, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh, err := s.ensure(ctx)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("vault: login: %w", err)
	}
	body, err := s.call(ctx, http.MethodGet, s.url, s.token.text, nil)
	if isStatus(err, http.StatusForbidden) && !fresh {
		s.token = token{}
		if _, err := s.ensure(ctx); err != nil {
			return secrets.Fetched{}, fmt.Errorf("vault: login: %w", err)
		}
		body, err = s.call(ctx, http.MethodGet, s.url, s.token.text, nil)
	}
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("vault: read %s: %w", s.c.Path, err)
	}
	v, err := field(body, s.c.Field)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("vault: %s: %w", s.c.Path, err)
	}
	return secrets.Fetched{Value: v, TTL: s.c.TTL}, nil
}

// field takes a field out of an answer of the key-value store. Its errors
// name the field and quote nothing.
func field(body []byte, name string) (secrets.Value, error) {
	var doc struct {
		Data struct {
			Data     map[string]any `json:"data"`
			Metadata struct {
				Destroyed bool   `json:"destroyed"`
				Deleted   string `json:"deletion_time"`
			} `json:"metadata"`
		} `json:"data"`
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if dec.Decode(&doc) != nil {
		return secrets.Value{}, errors.New("answer is not that of a key-value store, version 2")
	}
	if doc.Data.Metadata.Destroyed || doc.Data.Metadata.Deleted != "" && doc.Data.Data == nil {
		return secrets.Value{}, errors.New("this version is deleted")
	}
	var text string
	switch v := doc.Data.Data[name].(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	case nil:
		return secrets.Value{}, fmt.Errorf("has no field %q", name)
	default:
		return secrets.Value{}, fmt.Errorf("field %q is no string", name)
	}
	v, err := secrets.NewValue([]byte(text))
	if err != nil {
		return secrets.Value{}, fmt.Errorf("field %q: %w", name, err)
	}
	return v, nil
}

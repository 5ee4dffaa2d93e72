package awssm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"sallyport/secrets"
)

const (
	metadata      = "http://169.254.169.254"
	container     = "http://169.254.170.2"
	tokenLife     = "300" // seconds, of a metadata token
	metadataLimit = 5 * time.Second
	// early is how long before their end credentials are asked for anew.
	early = 5 * time.Minute
)

// credentials are those of AWS. They are never printed: the type has no
// exported field and every String is that of the SDK's own type, which is
// made only to sign.
type credentials struct {
	id, key, session func() string
	expires          time.Time // zero: never
}

func newCredentials(id, key, session string, expires time.Time) credentials {
	return credentials{
		id: func() string { return id }, key: func() string { return key }, session: func() string { return session }, expires: expires,
	}
}

func (c credentials) aws() aws.Credentials {
	return aws.Credentials{AccessKeyID: c.id(), SecretAccessKey: c.key(), SessionToken: c.session()}
}

func (c credentials) good(now time.Time) bool {
	return c.id != nil && (c.expires.IsZero() || now.Before(c.expires.Add(-early)))
}

// credentials returns the first that there are.
func (s *source) credentials(ctx context.Context) (credentials, error) {
	if id, key := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"); id != "" && key != "" {
		return newCredentials(id, key, os.Getenv("AWS_SESSION_TOKEN"), time.Time{}), nil
	}
	if s.c.CredentialsFile != "" {
		profile := s.c.Profile
		if profile == "" {
			profile = "default"
		}
		return fromFile(s.c.CredentialsFile, profile)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role.good(time.Now()) {
		return s.role, nil
	}
	ctx, cancel := context.WithTimeout(ctx, metadataLimit)
	defer cancel()
	var role credentials
	var err error
	switch path := os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); {
	case strings.HasPrefix(path, "/"):
		role, err = s.ask(ctx, or(s.c.Metadata, container)+path, nil)
	case s.c.NoInstance:
		return credentials{}, errors.New("none in the environment, and no credentials file is named")
	default:
		role, err = s.instance(ctx)
	}
	if err != nil {
		return credentials{}, err
	}
	s.role = role
	return role, nil
}

// instance asks the metadata service, version 2, for the instance's role.
func (s *source) instance(ctx context.Context) (credentials, error) {
	base := or(s.c.Metadata, metadata)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, base+"/latest/api/token", nil)
	if err != nil {
		return credentials{}, err
	}
	req.Header.Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", tokenLife)
	token, status, err := s.do(req)
	if err != nil || status != http.StatusOK {
		return credentials{}, errors.New("none in the environment, no credentials file is named, and no metadata service answers")
	}
	header := http.Header{"X-Aws-Ec2-Metadata-Token": {string(token)}}
	list := base + "/latest/meta-data/iam/security-credentials/"
	if req, err = http.NewRequestWithContext(ctx, http.MethodGet, list, nil); err != nil {
		return credentials{}, err
	}
	req.Header = header
	role, status, err := s.do(req)
	name, _, _ := strings.Cut(strings.TrimSpace(string(role)), "\n")
	if err != nil || status != http.StatusOK || name == "" {
		return credentials{}, errors.New("the instance has no role")
	}
	return s.ask(ctx, list+url.PathEscape(name), header)
}

// ask takes credentials from a metadata service.
func (s *source) ask(ctx context.Context, target string, header http.Header) (credentials, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return credentials{}, err
	}
	if header != nil {
		req.Header = header
	}
	answer, status, err := s.do(req)
	if err != nil {
		return credentials{}, err
	}
	var doc struct {
		AccessKeyID     string    `json:"AccessKeyId"`
		SecretAccessKey string    `json:"SecretAccessKey"`
		Token           string    `json:"Token"`
		Expiration      time.Time `json:"Expiration"`
	}
	if status != http.StatusOK || json.Unmarshal(answer, &doc) != nil || doc.AccessKeyID == "" || doc.SecretAccessKey == "" {
		return credentials{}, fmt.Errorf("metadata service answers with status %d and no credentials", status)
	}
	return newCredentials(doc.AccessKeyID, doc.SecretAccessKey, doc.Token, doc.Expiration), nil
}

// fromFile reads a profile of a shared credentials file.
func fromFile(path, profile string) (credentials, error) {
	f, err := secrets.OpenFile(path)
	if err != nil {
		return credentials{}, err
	}
	defer f.Close()
	values := map[string]string{}
	in := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
			in = strings.TrimSpace(text[1:len(text)-1]) == profile
			continue
		}
		if name, value, ok := strings.Cut(text, "="); ok && in && text[0] != '#' && text[0] != ';' {
			values[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	id, key := values["aws_access_key_id"], values["aws_secret_access_key"]
	if id == "" || key == "" {
		return credentials{}, fmt.Errorf("file %s has no keys for profile %q", path, profile)
	}
	return newCredentials(id, key, values["aws_session_token"], time.Time{}), nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

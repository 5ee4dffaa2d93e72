// Package awssm takes a secret from AWS Secrets Manager.
package awssm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"sallyport/secrets"
)

const (
	service = "secretsmanager"
	// defaultTTL is how long a value is good when the configuration does not
	// say: the service does not announce changes.
	defaultTTL = 5 * time.Minute
	maxAnswer  = 1 << 20 // bytes
	dialTime   = 10 * time.Second
)

// Config says which secret, and whose credentials ask for it: those of the
// gateway's environment, of a shared credentials file, or of the role of the
// instance or the container that it runs in, whichever is there first.
type Config struct {
	ID       string // name or ARN
	Region   string
	Field    string        // of a JSON object; "": the whole string
	Endpoint string        // "": the region's; https://host[:port]
	TTL      time.Duration // 0: 5 min

	Profile         string // of the credentials file; "": "default"
	CredentialsFile string // "": none
	NoInstance      bool   // never ask the instance's metadata service

	// Metadata is the address of the instance's metadata service; "": the
	// usual link-local one.
	Metadata string
}

type source struct {
	c        Config
	client   *http.Client
	endpoint string

	mu   sync.Mutex
	role credentials // of the instance or container, while they are good
}

// New makes a source of c. It connects at each fetch, not in New.
func New(c Config) (secrets.Source, error) {
	if c.ID == "" {
		return nil, errors.New("awssm: id is missing")
	}
	if !region(c.Region) {
		return nil, fmt.Errorf("awssm: region %q is no region", c.Region)
	}
	if c.TTL < 0 {
		return nil, errors.New("awssm: ttl is negative")
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	endpoint := c.Endpoint
	if endpoint == "" {
		endpoint = "https://" + service + "." + c.Region + "." + suffix(c.Region)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return nil, fmt.Errorf("awssm: endpoint %q is not https://host", endpoint)
	}
	return &source{c: c, endpoint: u.Scheme + "://" + u.Host + "/", client: &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
			TLSHandshakeTimeout: dialTime,
			DisableKeepAlives:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// region says whether s has the form of a region's name, so that it can stand
// in a host name and in a signature's scope.
func region(s string) bool {
	for i := range len(s) {
		if c := s[i]; c-'a' >= 26 && c-'0' >= 10 && c != '-' {
			return false
		}
	}
	return len(s) >= 5 && len(s) <= 32 && s[0] != '-' && s[len(s)-1] != '-'
}

// suffix is the domain of a region's partition.
func suffix(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "amazonaws.com.cn"
	case strings.HasPrefix(region, "us-iso-"):
		return "c2s.ic.gov"
	case strings.HasPrefix(region, "us-isob-"):
		return "sc2s.sgov.gov"
	}
	return "amazonaws.com"
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Fetch asks for the current version of the secret.
func (s *source) Fetch(ctx context.Context) (secrets.Fetched, error) {
	creds, err := s.credentials(ctx)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("awssm: credentials: %w", err)
	}
	body, err := json.Marshal(map[string]string{"SecretId": s.c.ID})
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("awssm: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.endpoint, bytes.NewReader(body))
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("awssm: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "secretsmanager.GetSecretValue")
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, creds.aws(), req, hex.EncodeToString(sum[:]), service, s.c.Region, time.Now()); err != nil {
		return secrets.Fetched{}, errors.New("awssm: the request cannot be signed")
	}
	answer, status, err := s.do(req)
	switch {
	case err != nil:
		return secrets.Fetched{}, fmt.Errorf("awssm: secret %s: %w", s.c.ID, err)
	case status != http.StatusOK:
		return secrets.Fetched{}, fmt.Errorf("awssm: secret %s: %s", s.c.ID, failure(answer, status))
	}
	v, err := value(answer, s.c.Field)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("awssm: secret %s: %w", s.c.ID, err)
	}
	return secrets.Fetched{Value: v, TTL: s.c.TTL}, nil
}

// do makes a request and reads its answer.
func (s *source) do(req *http.Request) (answer []byte, status int, err error) {
	resp, err := s.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which can hold what is not for a log
		}
		return nil, 0, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("answer is longer than %d bytes", maxAnswer)
	}
	return answer, resp.StatusCode, err
}

// failure returns the kind of an error that the service names, and no more:
// its message repeats who asked for what.
func failure(answer []byte, status int) string {
	var doc struct {
		Type string `json:"__type"`
	}
	_ = json.Unmarshal(answer, &doc)
	kind := doc.Type[strings.LastIndexByte(doc.Type, '#')+1:]
	for i := range len(kind) {
		if c := kind[i] | 0x20; c-'a' >= 26 {
			kind = ""
			break
		}
	}
	if kind == "" || len(kind) > 64 {
		return fmt.Sprintf("status %d", status)
	}
	return fmt.Sprintf("status %d: %s", status, kind)
}

// value takes the secret, or a field of it, out of an answer. Its errors
// quote nothing.
func value(answer []byte, field string) (secrets.Value, error) {
	var doc struct {
		String *string `json:"SecretString"`
		Binary string  `json:"SecretBinary"`
	}
	if json.Unmarshal(answer, &doc) != nil {
		return secrets.Value{}, errors.New("answer cannot be read")
	}
	text := []byte(nil)
	switch {
	case doc.String != nil:
		text = []byte(*doc.String)
	case doc.Binary != "":
		b, err := base64.StdEncoding.DecodeString(doc.Binary)
		if err != nil {
			return secrets.Value{}, errors.New("answer cannot be read")
		}
		text = b
	}
	if field == "" {
		return secrets.NewValue(text)
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&fields) != nil {
		return secrets.Value{}, errors.New("is no JSON object")
	}
	switch v := fields[field].(type) {
	case string:
		return secrets.NewValue([]byte(v))
	case json.Number:
		return secrets.NewValue([]byte(v.String()))
	case nil:
		return secrets.Value{}, fmt.Errorf("has no field %q", field)
	}
	return secrets.Value{}, fmt.Errorf("field %q is no string", field)
}

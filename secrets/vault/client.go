package vault

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sallyport/secrets"
)

const (
	maxAnswer = 1 << 20 // bytes
	// maxQuoted is how much of a server's error is quoted, in bytes.
	maxQuoted = 200
	dialTime  = 10 * time.Second
)

// statusError is an answer that is no success.
type statusError struct {
	status int
	text   string // of the server, escaped and capped
}

func (e *statusError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("status %d", e.status)
	}
	return fmt.Sprintf("status %d: %s", e.status, e.text)
}

func isStatus(err error, status int) bool {
	var e *statusError
	return errors.As(err, &e) && e.status == status
}

// address checks the address of a server and returns it without a slash at
// its end.
func address(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("vault: address %q is not https://host:port", s)
	}
	switch {
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	case u.Scheme == "http":
		return "", fmt.Errorf("vault: address %q is plain HTTP, over which a token is not sent but to loopback", s)
	default:
		return "", fmt.Errorf("vault: address %q is not https://host:port", s)
	}
	return u.Scheme + "://" + u.Host, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newClient makes a client that uses no proxy of the environment, keeps no
// connection and follows no redirect, which would carry the token elsewhere.
func newClient(caFile string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := secrets.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("vault: ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("vault: ca_file %s holds no certificate", caFile)
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: dialTime,
			DisableKeepAlives:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// call makes one request. Its errors quote neither the token nor what was
// sent.
func (s *source) call(ctx context.Context, method, target, token string, with map[string]string) ([]byte, error) {
	var body io.Reader
	if with != nil {
		b, err := json.Marshal(with)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Vault-Request", "true")
	if token != "" {
		req.Header.Set("X-Vault-Token", token)
	}
	if s.c.Namespace != "" {
		req.Header.Set("X-Vault-Namespace", s.c.Namespace)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which the caller names
		}
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("answer is longer than %d bytes", maxAnswer)
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return nil, &statusError{resp.StatusCode, "redirects are not followed; name the active server"}
	case resp.StatusCode != http.StatusOK:
		return nil, &statusError{resp.StatusCode, quote(answer, token, with)}
	}
	return answer, nil
}

// quote returns the server's own words for an error, if they repeat nothing
// of what was sent.
func quote(answer []byte, token string, with map[string]string) string {
	var doc struct {
		Errors []string `json:"errors"`
	}
	if json.Unmarshal(answer, &doc) != nil || len(doc.Errors) == 0 {
		return ""
	}
	text := strings.TrimSpace(doc.Errors[0])
	for _, sent := range with {
		if sent != "" && strings.Contains(text, sent) {
			return ""
		}
	}
	if token != "" && strings.Contains(text, token) {
		return ""
	}
	if len(text) > maxQuoted {
		text = text[:maxQuoted]
	}
	return strings.Trim(strconv.QuoteToASCII(text), `"`)
}

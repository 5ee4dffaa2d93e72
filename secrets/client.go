package secrets

import (
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
	"time"
)

const (
	clientDial   = 10 * time.Second
	clientHeader = 20 * time.Second
	maxAnswer    = 1 << 20 // bytes
)

// Client asks services that issue secrets. It follows no redirect, so that a
// credential goes to the host that was named, and quotes no answer in an
// error.
type Client struct{ http *http.Client }

// NewClient makes a Client that trusts the system's roots and those of a file
// of PEM certificates, "" for none.
func NewClient(caFile string) (*Client, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if caFile != "" {
		pem, err := ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s: holds no certificate", caFile)
		}
	}
	return &Client{&http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: clientDial}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   clientDial,
			ResponseHeaderTimeout: clientHeader,
			DisableKeepAlives:     true, // it is asked once in many minutes
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// JSON sends a request and decodes the answer into out if its status is one of
// 200 to 299. Of any other answer the error gives the status, and the code of
// an OAuth error (RFC 6749, section 5.2) if there is one.
func (c *Client) JSON(ctx context.Context, req *http.Request, out any) error {
	resp, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which the caller knows
		}
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > maxAnswer {
		return errors.New("the answer is too long")
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var e struct{ Error string }
		if json.Unmarshal(body, &e) == nil && errorCode(e.Error) {
			return fmt.Errorf("answers with status %d: %s", resp.StatusCode, e.Error)
		}
		return fmt.Errorf("answers with status %d", resp.StatusCode)
	}
	if json.Unmarshal(body, out) != nil {
		return errors.New("answers with something that is no JSON of the form expected")
	}
	return nil
}

// errorCode says whether s has the form of the codes of RFC 6749, section 5.2.
func errorCode(s string) bool {
	for i := range len(s) {
		if c := s[i]; c-'a' >= 26 && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 40
}

// Endpoint checks the address of such a service: https, or http on this
// machine.
func Endpoint(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%q is no address of the form https://host/path", s)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme != "https" && !(u.Scheme == "http" && ip != nil && ip.IsLoopback()) {
		return nil, fmt.Errorf("%q is not https", s)
	}
	return u, nil
}

package audit

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Sink is where notices of alerts are sent. Send returns nil when the receiver
// has accepted the notice; until then it is sent again, so a receiver may get
// one twice, with the same ID, State and LastSeen. An error that is Permanent is
// not tried again. Its text has no secret in it: it goes into the log.
type Sink interface {
	Send(ctx context.Context, a Alert) error
}

// Text is a setting that may be secret and may change: it is asked for at
// every use.
type Text func(ctx context.Context) (string, error)

// Fixed is a Text that is no secret.
func Fixed(s string) Text { return func(context.Context) (string, error) { return s, nil } }

// permanent marks an error that trying again does not help.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent marks err as one that trying again does not help.
func Permanent(err error) error { return permanent{err} }

// IsPermanent reports whether err, or one that it wraps, was marked.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

// NewClient returns an HTTP client for a sink: bounded waits, no redirects, no
// proxy from the environment. A nil transport is a plain one.
func NewClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = NewTransport(nil)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// NewTransport returns a transport for a sink that trusts roots; nil are those
// of the system.
func NewTransport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 20 * time.Second,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
	}
}

// StatusError is an answer of a receiver that is not 2xx.
type StatusError struct {
	Code  int
	Reply string // the beginning of it, escaped
}

// Error says what was answered.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the receiver answered %d: %s", e.Code, e.Reply)
}

// maxReply is as much of a reply as is read.
const maxReply = 4 << 10

// Post sends body and returns the beginning of the reply. Any answer but 2xx is
// an error; a 4xx one that does not ask for patience is a permanent one. The
// error does not have the URL in it, which may be secret.
func Post(ctx context.Context, c *http.Client, target string, header http.Header, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, Permanent(errors.New("the URL is malformed"))
	}
	req.Header = header.Clone()
	if req.Header == nil {
		req.Header = make(http.Header)
	}
	req.Header.Set("User-Agent", "sallyport")
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil && resp.StatusCode/100 == 2 {
		return nil, fmt.Errorf("reply: %w", err)
	}
	if resp.StatusCode/100 == 2 {
		return reply, nil
	}
	err = &StatusError{Code: resp.StatusCode, Reply: Escape(strings.Join(strings.Fields(string(reply)), " "), 200)}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return nil, err
	}
	if resp.StatusCode/100 == 4 || resp.StatusCode/100 == 3 {
		err = Permanent(err)
	}
	return nil, err
}

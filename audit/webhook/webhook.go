// Package webhook sends notices of alerts as signed JSON over HTTP.
package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sallyport/audit"
)

// Headers of a delivery.
const (
	// SignatureHeader is t=SECONDS,v1=HEX, in which HEX is the HMAC-SHA-256 of
	// SECONDS, a dot and the body.
	SignatureHeader = "X-Sallyport-Signature"
	// DeliveryHeader is the same when a notice is sent again.
	DeliveryHeader = "X-Sallyport-Delivery"
)

// Config of a Sink. URL and Secret are required.
type Config struct {
	URL       audit.Text
	Secret    audit.Text        // of the signature
	Headers   map[string]string // further ones
	Transport http.RoundTripper // nil is a plain one
	Now       func() time.Time  // nil is time.Now
}

// Sink is a webhook.
type Sink struct {
	c      Config
	client *http.Client
}

// New returns a Sink.
func New(c Config) (*Sink, error) {
	if c.URL == nil || c.Secret == nil {
		return nil, errors.New("webhook: url and secret are required")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Sink{c: c, client: audit.NewClient(c.Transport)}, nil
}

// Send posts the notice as JSON.
func (s *Sink) Send(ctx context.Context, a audit.Alert) error {
	url, err := s.c.URL(ctx)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	secret, err := s.c.Secret(ctx)
	if err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	body, err := json.Marshal(a)
	if err != nil {
		return audit.Permanent(err)
	}
	h := make(http.Header)
	for k, v := range s.c.Headers {
		h.Set(k, v)
	}
	h.Set(DeliveryHeader, delivery(a))
	h.Set(SignatureHeader, Sign(secret, s.c.Now(), body))
	_, err = audit.Post(ctx, s.client, url, h, body)
	return err
}

// delivery names the notice.
func delivery(a audit.Alert) string {
	return a.ID + "-" + a.State + "-" + strconv.FormatInt(a.LastSeen.UnixMilli(), 10)
}

// Sign returns the value of SignatureHeader.
func Sign(secret string, at time.Time, body []byte) string {
	seconds := strconv.FormatInt(at.Unix(), 10)
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac(secret, seconds, body))
}

func mac(secret, seconds string, body []byte) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(seconds + "."))
	m.Write(body)
	return m.Sum(nil)
}

// Verify is what a receiver does: it checks a SignatureHeader that is no older
// than maxAge.
func Verify(secret, signature string, body []byte, now time.Time, maxAge time.Duration) error {
	t, v1, ok := strings.Cut(signature, ",v1=")
	seconds, ok2 := strings.CutPrefix(t, "t=")
	if !ok || !ok2 {
		return errors.New("signature: malformed")
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return errors.New("signature: malformed time")
	}
	if age := now.Sub(time.Unix(unix, 0)); age > maxAge || age < -maxAge {
		return errors.New("signature: too old")
	}
	sent, err := hex.DecodeString(v1)
	if err != nil || !hmac.Equal(sent, mac(secret, seconds, body)) {
		return errors.New("signature: does not match")
	}
	return nil
}

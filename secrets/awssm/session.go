package awssm

import (
	"context"
	"fmt"
	"time"

	"sallyport/secrets"
)

// sessionTTL is how long credentials without an end of their own are good:
// a file or an instance's role does not say when it changes.
const sessionTTL = 5 * time.Minute

// NewCredentials makes a source whose value are the AWS credentials
// themselves, with which the gateway signs requests: c says where they come
// from as it does for a secret, and names none. The value is the key ID, the
// secret key and, where there is one, the session token (see
// [secrets.Compound]).
func NewCredentials(c Config) (secrets.Source, error) {
	c.ID, c.Region, c.Endpoint = "-", "us-east-1", ""
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	return credentialSource{s.(*source)}, nil
}

// credentialSource gives the credentials with which a source asks.
type credentialSource struct{ s *source }

// Fetch returns the credentials.
func (c credentialSource) Fetch(ctx context.Context) (secrets.Fetched, error) {
	got, err := c.s.credentials(ctx)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("aws credentials: %w", err)
	}
	hidden := []string{got.key()}
	if token := got.session(); token != "" {
		hidden = append(hidden, token)
	}
	v, err := secrets.Compound(got.id(), hidden...)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("aws credentials: %w", err)
	}
	ttl := sessionTTL
	if !got.expires.IsZero() {
		ttl = max(min(ttl, time.Until(got.expires)-early), time.Second)
	}
	return secrets.Fetched{Value: v, TTL: ttl}, nil
}

// Package clientcert takes a client certificate and its key from files.
package clientcert

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"sallyport/secrets"
)

// reread is how long a pair is good: files do not say when they change.
const reread = time.Minute

// Config says which files.
type Config struct {
	CertFile string // absolute path, PEM, the leaf first
	KeyFile  string // absolute path, PEM; "": in CertFile too
}

type source struct{ c Config }

// New makes a source of c, whose value is the certificate and its key in PEM.
// The files are read at each fetch.
func New(c Config) (secrets.Source, error) {
	if c.KeyFile == "" {
		c.KeyFile = c.CertFile
	}
	for _, f := range []struct{ name, path string }{{"cert_file", c.CertFile}, {"key_file", c.KeyFile}} {
		if !filepath.IsAbs(f.path) {
			return nil, fmt.Errorf("client_cert: %s %q is not absolute", f.name, f.path)
		}
	}
	return source{c}, nil
}

// Fetch reads the files.
func (s source) Fetch(context.Context) (secrets.Fetched, error) {
	cert, err := secrets.ReadFile(s.c.CertFile)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("client_cert: %w", err)
	}
	key, err := secrets.ReadFile(s.c.KeyFile)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("client_cert: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return secrets.Fetched{}, fmt.Errorf("client_cert: %s and %s are no certificate and its key", s.c.CertFile, s.c.KeyFile)
	}
	if pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter) {
		return secrets.Fetched{}, errors.New("client_cert: the certificate has expired")
	}
	v, err := secrets.Blob(append(append(cert, '\n'), key...))
	return secrets.Fetched{Value: v, TTL: reread}, err
}

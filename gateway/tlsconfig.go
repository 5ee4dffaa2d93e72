package gateway

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"

	lru "github.com/hashicorp/golang-lru/v2"

	"sallyport/certs"
)

// tlsConfigs holds the server side configuration of each name, with its leaf
// and its own session ticket keys, so that no session is resumed under
// another name.
type tlsConfigs struct {
	leaves *certs.Leaves
	key    [32]byte
	cache  *lru.Cache[string, *nameConfig]
}

type nameConfig struct {
	leaf   *tls.Certificate
	config *tls.Config
}

const cachedConfigs = 4096

func newTLSConfigs(leaves *certs.Leaves, key [32]byte) (*tlsConfigs, error) {
	cache, err := lru.New[string, *nameConfig](cachedConfigs)
	if err != nil {
		return nil, err
	}
	return &tlsConfigs{leaves: leaves, key: key, cache: cache}, nil
}

// forName returns the configuration of a canonical name or IP literal. It is
// made anew when the leaf was.
func (t *tlsConfigs) forName(name string) (*tls.Config, error) {
	leaf, err := t.leaves.Leaf(name)
	if err != nil {
		return nil, err
	}
	if c, ok := t.cache.Get(name); ok && c.leaf == leaf {
		return c.config, nil
	}
	ticket, err := hkdf.Key(sha256.New, t.key[:], nil, "session ticket for "+name, 32)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{*leaf},
	}
	c.SetSessionTicketKeys([][32]byte{[32]byte(ticket)})
	t.cache.Add(name, &nameConfig{leaf, c})
	return c, nil
}

// Package certs holds the gateway's own certificate authority: it makes or
// loads the CA, mints the leaf certificates with which intercepted TLS is
// answered, and writes the files and variables that make clients inside a
// sandbox trust them.
//
// The CA's key never leaves this package: it is written to one file that
// only its owner can read, and no exported function returns it.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

const (
	// caLife is how long a new CA is valid. Clients put no bound on the life
	// of a root, and a root that ends takes every sandbox with it.
	caLife = 10 * 365 * 24 * time.Hour

	// backdate is how far before their making certificates begin, so that a
	// client whose clock is a day and more behind accepts them.
	backdate = 48 * time.Hour
)

// Options are the parts of a CA that a caller may choose. The zero value is
// ready for use.
type Options struct {
	// Name is the CA's common name; "" is "sallyport CA" with a random mark
	// and the day, so that two CAs never share a name. It is visible inside
	// every sandbox.
	Name string

	// Overlap is how long a CA stays in the bundles after Rotate has
	// replaced it: 0 is DefaultOverlap, negative drops it at once.
	Overlap time.Duration

	// Now tells the time; nil is time.Now.
	Now func() time.Time
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// CA is a certificate authority that is ready to sign. It does not change;
// Rotate makes another one.
type CA struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	former []*x509.Certificate // replaced less than an overlap ago, newest first
}

// Certificate returns the CA's certificate. It is shared: do not write to it.
func (c *CA) Certificate() *x509.Certificate { return c.cert }

// PEM returns the certificates that a client must trust: the CA's own, then
// those that it replaced and whose overlap has not ended when it was loaded.
func (c *CA) PEM() []byte {
	out := encodeCertificate(c.cert, nil)
	for _, f := range c.former {
		out = append(out, encodeCertificate(f, nil)...)
	}
	return out
}

// Roots returns the certificates that PEM encodes.
func (c *CA) Roots() []*x509.Certificate {
	return append([]*x509.Certificate{c.cert}, c.former...)
}

// Fingerprint returns the SHA-256 of the CA's certificate, in lower-case hex.
func (c *CA) Fingerprint() string {
	sum := sha256.Sum256(c.cert.Raw)
	return hex.EncodeToString(sum[:])
}

// String names the CA by its subject and fingerprint, never by its key.
func (c *CA) String() string {
	return fmt.Sprintf("%s (sha256 %s)", c.cert.Subject.CommonName, c.Fingerprint())
}

// GoString keeps %#v from printing the key.
func (c *CA) GoString() string { return c.String() }

// Format keeps every verb from printing the key.
func (c *CA) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// newCA makes a certificate for key, or for a new key if it is nil.
func newCA(key *ecdsa.PrivateKey, o Options) (*CA, error) {
	if key == nil {
		var err error
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, fmt.Errorf("ca key: %w", err)
		}
	}
	now := o.now().UTC()
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("ca certificate: %w", err)
	}
	name := o.Name
	if name == "" {
		name = fmt.Sprintf("sallyport CA %x %s", serial[:3], now.Format(time.DateOnly))
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("ca certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(serial[:]),
		Subject:               pkix.Name{CommonName: name, Organization: []string{"sallyport"}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLen:            0,
		MaxPathLenZero:        true,
		SubjectKeyId:          id,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("ca certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("ca certificate: %w", err)
	}
	return &CA{cert: cert, key: key}, nil
}

// newSerial returns 16 random bytes that read as a positive DER integer of
// full length: the first bit is 0 and the second is 1. That leaves 126 bits
// of chance, more than the 64 that the CA/Browser Forum asks for.
func newSerial() ([16]byte, error) {
	var s [16]byte
	if _, err := rand.Read(s[:]); err != nil {
		return s, err
	}
	s[0] = s[0]&0x3f | 0x40
	return s, nil
}

// keyID derives a key identifier from a public key (RFC 7093, section 2,
// method 1: the leftmost 160 bits of SHA-256 over the key's bits).
func keyID(pub *ecdsa.PublicKey) ([]byte, error) {
	bits, err := pub.Bytes()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(bits)
	return sum[:20], nil
}

func encodeCertificate(c *x509.Certificate, headers map[string]string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: headers, Bytes: c.Raw})
}

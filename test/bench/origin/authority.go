// Package origin is what the benchmark's requests are for: an HTTPS server,
// its name server, and the authorities that certificates come from.
package origin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one and writes NAME.crt, NAME.key and both as NAME.pem.
func NewAuthority(dir, name string) (*Authority, error) {
	t := &x509.Certificate{Subject: pkix.Name{CommonName: "benchmark " + name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature}
	der, key, err := sign(t, nil)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{cert, key}, write(filepath.Join(dir, name), key, der)
}

// LoadAuthority reads what NewAuthority wrote.
func LoadAuthority(dir, name string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is not an ECDSA key")
	}
	return &Authority{pair.Leaf, key}, nil
}

// Pair is the authority as a certificate and key.
func (a *Authority) Pair() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{a.Cert.Raw}, PrivateKey: a.key, Leaf: a.Cert}
}

// Issue writes a certificate for names as NAME.crt, NAME.key and, with the
// authority's own, NAME.pem below dir.
func (a *Authority) Issue(dir, name string, names ...string) error {
	der, key, err := a.leaf(names)
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, name), key, der, a.Cert.Raw)
}

// Leaf is a certificate for names.
func (a *Authority) Leaf(names ...string) (*tls.Certificate, error) {
	der, key, err := a.leaf(names)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (a *Authority) leaf(names []string) ([]byte, *ecdsa.PrivateKey, error) {
	t := &x509.Certificate{Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	return sign(t, a)
}

// sign makes a key and its certificate, by a or by itself.
func sign(t *x509.Certificate, a *Authority) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	t.NotBefore, t.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(0, 3, 0)
	parent, signer := t, key
	if a != nil {
		parent, signer = a.Cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	return der, key, err
}

func write(path string, key *ecdsa.PrivateKey, chain ...[]byte) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	var public []byte
	for _, der := range chain {
		public = append(public, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return errors.Join(os.WriteFile(path+".crt", public, 0o644), os.WriteFile(path+".key", private, 0o644),
		os.WriteFile(path+".pem", append(private, public...), 0o644))
}

//go:build linux

package lab

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// Authority is a certificate authority of the net.
type Authority struct {
	Cert  *x509.Certificate
	key   crypto.Signer
	chain [][]byte // between a leaf and its root
}

// NewAuthority makes a root.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := caTemplate(name)
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{Cert: cert, key: key}, err
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
}

// Intermediate makes an authority below a. Its leaves come with its own
// certificate, unless bare is set.
func (a *Authority) Intermediate(name string, bare bool) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, caTemplate(name), a.Cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	out := &Authority{Cert: cert, key: key}
	if !bare {
		out.chain = [][]byte{der}
	}
	return out, err
}

// PEM returns the certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})
}

// Leaf signs a certificate for host, after change has had its way with it.
func (a *Authority) Leaf(host string, change func(*x509.Certificate)) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return a.sign(host, key, change)
}

func (a *Authority) sign(host string, key crypto.Signer, change func(*x509.Certificate)) (*tls.Certificate, error) {
	t := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if change != nil {
		change(t)
	}
	parent, signer := a.Cert, a.key
	if t.Issuer.CommonName == selfSigned {
		parent, signer = t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", host, err)
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, a.chain...), PrivateKey: key}, nil
}

const selfSigned = "self-signed"

// SelfSigned is a change that makes a leaf its own issuer.
func SelfSigned(c *x509.Certificate) { c.Issuer.CommonName = selfSigned }

// NewRSAAuthority makes a root with an RSA key, which can sign with SHA-1.
func NewRSAAuthority(name string, key *rsa.PrivateKey) (*Authority, error) {
	t := caTemplate(name)
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Authority{Cert: cert, key: key}, err
}

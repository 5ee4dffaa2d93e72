package clientcert

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"sallyport/test/issuer"
)

// pair is a certificate and its key, in PEM.
func pair(t *testing.T, life time.Duration) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kder}))
}

func TestFetch(t *testing.T) {
	cert, key := pair(t, time.Hour)
	_, otherKey := pair(t, time.Hour)
	oldCert, oldKey := pair(t, -time.Minute)
	for name, tt := range map[string]struct {
		c    Config
		want string
	}{
		"two files":  {Config{issuer.File(t, cert), issuer.File(t, key)}, ""},
		"one file":   {Config{CertFile: issuer.File(t, cert+key)}, ""},
		"no match":   {Config{issuer.File(t, cert), issuer.File(t, otherKey)}, "are no certificate and its key"},
		"expired":    {Config{issuer.File(t, oldCert), issuer.File(t, oldKey)}, "has expired"},
		"no key":     {Config{CertFile: issuer.File(t, cert)}, "are no certificate and its key"},
		"gone":       {Config{CertFile: "/nonexistent/cert"}, "no such file"},
		"not a pair": {Config{CertFile: issuer.File(t, "REAL")}, "are no certificate and its key"},
	} {
		s, err := New(tt.c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Fetch(context.Background())
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "REAL") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := []byte(got.Value.Reveal())
		if _, err := tls.X509KeyPair(text, text); err != nil || len(got.Value.Parts()) != 0 || got.TTL != reread {
			t.Errorf("%s: %v, %d parts", name, err, len(got.Value.Parts()))
		}
	}
	for _, c := range []Config{{}, {CertFile: "cert"}, {CertFile: "/cert", KeyFile: "key"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

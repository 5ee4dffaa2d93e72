package upstream

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// authority is a CA of an origin.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	return (&authority{}).sub(t)
}

// sub returns a CA that a signed, or a root if a is empty.
func (a *authority) sub(t testing.TB) *authority {
	t.Helper()
	c := a.make(t, func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "origin CA"}
		c.DNSNames, c.IsCA, c.KeyUsage = nil, true, x509.KeyUsageCertSign
	})
	return &authority{c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)}
}

// issue returns a certificate for good.test, changed by change.
func (a *authority) issue(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	return a.make(t, change)
}

func (a *authority) make(t testing.TB, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<60))
	template := &x509.Certificate{
		SerialNumber: serial, BasicConstraintsValid: true,
		Subject:   pkix.Name{CommonName: "good.test"},
		DNSNames:  []string{"good.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if change != nil {
		change(template)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestTLS05UpstreamCertificate serves each wrong certificate from a real TLS
// server and looks at what the server decrypts: nothing.
func TestTLS05UpstreamCertificate(t *testing.T) {
	root := newAuthority(t)
	middle := root.sub(t)
	now := time.Now()
	for _, tc := range []struct {
		name   string
		cert   tls.Certificate
		detail string
	}{
		{"self-signed", (&authority{}).issue(t, nil), "certificate signed by unknown authority"},
		{"expired", root.issue(t, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour)
		}), "certificate has expired"},
		{"not yet valid", root.issue(t, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour)
		}), "certificate is not yet valid"},
		{"wrong name", root.issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"a.test"} }),
			"certificate is valid for a.test, not good.test"},
		{"hostile name", root.issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"a.test<script>"} }),
			"certificate is not valid for good.test"},
		{"only a name above", root.issue(t, func(c *x509.Certificate) { c.DNSNames = []string{"test", "*.good.test"} }),
			"certificate is valid for test, *.good.test, not good.test"},
		{"missing intermediate", middle.issue(t, nil), "certificate signed by unknown authority"},
		{"common name only", root.issue(t, func(c *x509.Certificate) { c.DNSNames = nil }),
			"certificate has no alternative names; a common name is not enough"},
		{"untrusted authority", newAuthority(t).issue(t, nil), "certificate signed by unknown authority"},
		{"SHA-1", root.issue(t, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 }),
			"certificate signed with an insecure algorithm"},
		{"for clients only", root.issue(t, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), "certificate is not for servers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			read := make(chan int, 1)
			to := rawTLS(t, &tls.Config{Certificates: []tls.Certificate{tc.cert}}, read)
			roots := x509.NewCertPool()
			roots.AddCert(root.cert)
			u := newUpstream(t, Options{Roots: roots})
			_, _, err := send(t, u, to, "https", "POST", strings.NewReader("secret"), nil)
			class, detail := ErrorClass(err)
			if class != "upstream_tls" || detail != tc.detail {
				t.Errorf("%s: %s\n(%v)", class, detail, errors.Unwrap(err))
			}
			if n := <-read; n != 0 {
				t.Errorf("the server read %d bytes", n)
			}
			if strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the error names the address: %v", err)
			}
		})
	}
}

// rawTLS is a TLS server that tells how many bytes of data it could read from
// its first connection.
func rawTLS(t testing.TB, c *tls.Config, read chan<- int) Target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(10 * time.Second))
		n, _ := tls.Server(nc, c).Read(make([]byte, 4096))
		read <- n
	}()
	return Target{Sandbox: "s1", Host: "good.test", Port: netip.MustParseAddrPort(ln.Addr().String()).Port(), Addresses: loopback()}
}

func TestTLS05OldVersion(t *testing.T) {
	root := newAuthority(t)
	read := make(chan int, 1)
	to := rawTLS(t, &tls.Config{Certificates: []tls.Certificate{root.issue(t, nil)}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, read)
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	_, _, err := send(t, newUpstream(t, Options{Roots: roots}), to, "https", "GET", nil, nil)
	if class, detail := ErrorClass(err); class != "upstream_tls" {
		t.Errorf("%s: %s (%v)", class, detail, err)
	}
	if n := <-read; n != 0 {
		t.Errorf("the server read %d bytes", n)
	}
}

func TestTLS05ServerWithoutTLS(t *testing.T) {
	o := newOrigin(t, false, nil)
	_, _, err := send(t, newUpstream(t, Options{}), o.target(), "https", "GET", nil, nil)
	if class, detail := ErrorClass(err); class != "upstream_tls" || detail != "the server does not speak TLS" {
		t.Errorf("%s: %s (%v)", class, detail, err)
	}
}

func TestTLS05ChainAndAddressCertificatesAreAccepted(t *testing.T) {
	root := newAuthority(t)
	middle := root.sub(t)
	chain := middle.issue(t, nil)
	chain.Certificate = append(chain.Certificate, middle.cert.Raw)
	ip := root.issue(t, func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = nil, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	for _, tc := range []struct {
		name, host string
		cert       tls.Certificate
	}{{"chain", "good.test", chain}, {"address", "127.0.0.1", ip}} {
		t.Run(tc.name, func(t *testing.T) {
			read := make(chan int, 1)
			to := rawTLS(t, &tls.Config{Certificates: []tls.Certificate{tc.cert}, NextProtos: []string{"http/1.1"}}, read)
			to.Host = tc.host
			send(t, newUpstream(t, Options{Roots: roots}), to, "https", "GET", nil, nil)
			if n := <-read; n == 0 {
				t.Error("nothing was sent")
			}
		})
	}
}

func TestRoots(t *testing.T) {
	ca := newAuthority(t)
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
	if _, err := Roots(nil); err != nil {
		t.Error(err)
	}
	roots, err := Roots(append([]byte("# our proxy\n"), good...))
	if err != nil {
		t.Fatal(err)
	}
	leaf := ca.issue(t, nil)
	if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "good.test", Roots: roots}); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string][]byte{
		"no certificate": []byte("hello"),
		"a key":          pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
		"broken":         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
	} {
		if _, err := Roots(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestErrorClassOfContext(t *testing.T) {
	for _, tc := range []struct {
		err   error
		class string
	}{
		{nil, ""},
		{context.Canceled, "reset"},
		{context.DeadlineExceeded, "timeout"},
		{io.ErrUnexpectedEOF, "reset"},
		{&net.DNSError{IsNotFound: true, Name: "x.test", Server: "192.0.2.53"}, "dns"},
		{errors.New("anything 192.0.2.1 at all"), "protocol"},
		{&Refusal{Reason: "resolves_private"}, "dial"},
	} {
		class, detail := ErrorClass(tc.err)
		if class != tc.class || strings.Contains(detail, "192.0.2") {
			t.Errorf("%v: %s: %s", tc.err, class, detail)
		}
	}
}

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// demoOrigin is an HTTPS server on this machine, with a CA of its own, that
// remembers the Authorization of every request.
type demoOrigin struct {
	port  int
	caPEM []byte
	srv   *http.Server

	mu   sync.Mutex
	seen []string
}

func startDemoOrigin() (*demoOrigin, error) {
	pemCA, leaf, err := demoCertificates(demoHosts())
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &demoOrigin{port: l.Addr().(*net.TCPAddr).Port, caPEM: pemCA}
	o.srv = &http.Server{Handler: o, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12}}
	go func() { _ = o.srv.ServeTLS(l, "", "") }() // ends with close
	return o, nil
}

// ServeHTTP answers every request and remembers its credential.
func (o *demoOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.seen = append(o.seen, r.Header.Get("Authorization"))
	o.mu.Unlock()
	fmt.Fprintln(w, "hello from the origin")
}

func (o *demoOrigin) received() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

func (o *demoOrigin) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = nil
}

func (o *demoOrigin) close() { _ = o.srv.Close() } // the process ends next

// demoCertificates makes a CA and one leaf for hosts.
func demoCertificates(hosts []string) ([]byte, tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sallyport demo origin"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: hosts, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

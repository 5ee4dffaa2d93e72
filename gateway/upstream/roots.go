package upstream

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Roots returns the system's roots and those of extraPEM, which may be empty.
// In extraPEM everything must be a certificate: a file that was meant to add
// a root and adds none is a mistake.
func Roots(extraPEM []byte) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("upstream roots: %w", err)
	}
	if len(extraPEM) == 0 {
		return roots, nil
	}
	count := 0
	for rest := extraPEM; ; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("upstream roots: a PEM block is %q, not CERTIFICATE", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("upstream roots: certificate %d: %w", count+1, err)
		}
		roots.AddCert(cert)
	}
	if count == 0 {
		return nil, errors.New("upstream roots: no certificate in the extra file")
	}
	return roots, nil
}

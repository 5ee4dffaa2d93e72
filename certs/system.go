package certs

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// systemBundles are where distributions keep the bundle of trusted roots,
// without the leading slash.
func systemBundles() []string {
	return []string{
		"etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Alpine, Arch, Gentoo, NixOS
		"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL, CentOS
		"etc/pki/tls/certs/ca-bundle.crt",                  // older Fedora and RHEL
		"var/lib/ca-certificates/ca-bundle.pem",            // SUSE
		"etc/ssl/ca-bundle.pem",                            // older SUSE
		"etc/pki/tls/cacert.pem",                           // OpenELEC
		"etc/ssl/cert.pem",                                 // Alpine without ca-certificates
	}
}

// SystemBundlePaths returns where clients that read no variable look for the
// bundle of trusted roots.
func SystemBundlePaths() []string {
	var out []string
	for _, name := range systemBundles() {
		out = append(out, "/"+name)
	}
	return out
}

// SystemBundle returns the host's bundle of trusted roots as PEM, certificates
// only.
func SystemBundle() ([]byte, error) { return systemBundle(os.DirFS("/")) }

func systemBundle(root fs.FS) ([]byte, error) {
	for _, name := range systemBundles() {
		b, err := fs.ReadFile(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("system roots: %w", err)
		}
		if certs := parseBundle(b); len(certs) > 0 {
			return encodeBundle(certs), nil
		}
	}
	return nil, fmt.Errorf("system roots: none of %s holds a certificate: install the package ca-certificates", "/"+strings.Join(systemBundles(), ", /"))
}

// parseBundle returns the certificates of a PEM bundle and leaves out what is
// not one: distributions ship roots that Go refuses to read, such as those
// with a negative serial number, and comments between blocks.
func parseBundle(b []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return out
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, cert)
		}
	}
}

func encodeBundle(certs []*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, encodeCertificate(c, nil)...)
	}
	return out
}

package certs

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"software.sslmate.com/src/go-pkcs12"
)

// Names of the files that WriteTrust writes. All are public.
const (
	TrustCAFile     = "ca.pem"         // the CA alone
	TrustBundleFile = "bundle.pem"     // the system's roots and the CA
	TrustJavaFile   = "truststore.p12" // the same, PKCS #12, for Java
	TrustNSSDir     = "nssdb"          // folder of a database of NSS with the CA, for Chromium
	TrustNSSFile    = TrustNSSDir + "/cert9.db"
)

// trustStorePassword protects nothing: Java wants one for a store of public
// certificates, and this is the one that its own store has.
const trustStorePassword = "changeit"

// Trust names the files that make clients trust the CA, by absolute path.
type Trust struct {
	CA     string // the CA alone
	Bundle string // the system's roots and the CA
	Java   string // PKCS #12 trust store with the certificates of Bundle
}

// TrustFiles returns the content of the files by name. The bundle extends the
// system's roots: what passes through unopened must still be verified.
func TrustFiles(ca *CA, system []byte) (map[string][]byte, error) {
	roots := append(parseBundle(system), ca.Roots()...)
	store, err := javaStore(roots)
	if err != nil {
		return nil, err
	}
	database, err := nssDatabase(ca.Roots())
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		TrustCAFile:     ca.PEM(),
		TrustBundleFile: encodeBundle(roots),
		TrustJavaFile:   store,
		TrustNSSFile:    database,
	}, nil
}

// WriteTrust writes the trust files into dir, each at once and readable by
// all, and makes dir if need be. Calling it again brings them up to date.
func WriteTrust(dir string, ca *CA, system []byte) (Trust, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Trust{}, fmt.Errorf("trust folder: %w", err)
	}
	files, err := TrustFiles(ca, system)
	if err != nil {
		return Trust{}, err
	}
	if err := os.MkdirAll(filepath.Join(dir, TrustNSSDir), 0o755); err != nil {
		return Trust{}, fmt.Errorf("trust folder: %w", err)
	}
	for name, b := range files {
		if err := replaceFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return Trust{}, fmt.Errorf("trust file %s: %w", name, err)
		}
	}
	return TrustAt(dir), nil
}

// TrustAt names the trust files as they are seen in dir, which may be a path
// that exists inside a sandbox only.
func TrustAt(dir string) Trust {
	return Trust{
		CA:     filepath.Join(dir, TrustCAFile),
		Bundle: filepath.Join(dir, TrustBundleFile),
		Java:   filepath.Join(dir, TrustJavaFile),
	}
}

// javaStore encodes a PKCS #12 trust store. The old algorithms are what every
// Java since 6 reads; nothing in the store is secret, and its integrity is
// that of the file.
func javaStore(roots []*x509.Certificate) ([]byte, error) {
	entries := make([]pkcs12.TrustStoreEntry, len(roots))
	for i, c := range roots {
		// Names must differ: Java keeps one certificate a name.
		entries[i] = pkcs12.TrustStoreEntry{Cert: c, FriendlyName: fmt.Sprintf("root-%04d", i)}
	}
	b, err := pkcs12.LegacyDES.EncodeTrustStoreEntries(entries, trustStorePassword)
	if err != nil {
		return nil, fmt.Errorf("java trust store: %w", err)
	}
	return b, nil
}

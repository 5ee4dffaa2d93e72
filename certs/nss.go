package certs

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// NSS keeps certificates as PKCS #11 objects, each a row of the table
// nssPublic with a column for each attribute: "a" and its number in hex.
// Chromium, and what is built on it, reads no variable and no bundle, but a
// database of this form in its user's home.
const (
	nssClass       = "a0"
	nssToken       = "a1"
	nssPrivate     = "a2"
	nssLabel       = "a3"
	nssValue       = "a11"
	nssCertType    = "a80"
	nssIssuer      = "a81"
	nssSerial      = "a82"
	nssSubject     = "a101"
	nssID          = "a102"
	nssModifiable  = "a170"
	nssTrustServer = "ace536358"
	nssTrustClient = "ace536359"
	nssTrustCode   = "ace53635a"
	nssTrustMail   = "ace53635b"
	nssTrustStepUp = "ace536360"
	nssTrustSHA1   = "ace5363b4"
	nssTrustMD5    = "ace5363b5"
)

// Classes of objects, and what a trust object says of a use of a certificate.
const (
	nssCertificate = 0x00000001 // CKO_CERTIFICATE
	nssTrust       = 0xce534353 // CKO_NSS_TRUST
	nssDelegator   = 0xce534352 // CKT_NSS_TRUSTED_DELEGATOR: an authority
	nssValid       = 0xce53435b // CKT_NSS_VALID_DELEGATOR: one for others to trust
	nssMustVerify  = 0xce534353 // CKT_NSS_MUST_VERIFY_TRUST
)

// nssColumns are the columns of the table that NSS itself makes, without the
// row's number. An NSS that knows more adds them.
func nssColumns() []string {
	var out []string
	for _, r := range []struct {
		first, last int
	}{
		{0x0, 0x3}, {0x10, 0x12}, {0x80, 0x8b}, {0x90, 0x90}, {0x100, 0x10c}, {0x110, 0x111}, {0x120, 0x134}, {0x160, 0x166},
		{0x170, 0x170}, {0x180, 0x181}, {0x200, 0x202}, {0x210, 0x210}, {0x300, 0x302}, {0x400, 0x406}, {0x480, 0x482}, {0x500, 0x503},
		{0x40000211, 0x40000212}, {0x80000001, 0x80000001}, {0xce534351, 0xce534358}, {0xce534364, 0xce534369}, {0xce534373, 0xce534374},
		{0xce536351, 0xce536360}, {0xce5363b4, 0xce5363b5}, {0xd5a0db00, 0xd5a0db00},
	} {
		for n := r.first; n <= r.last; n++ {
			out = append(out, fmt.Sprintf("a%x", n))
		}
	}
	return out
}

// nssDatabase returns a certificate database (cert9.db) in which roots are
// trusted as authorities of TLS servers, and for nothing else. It holds no
// key; NSS adds the files beside it when it first opens it.
func nssDatabase(roots []*x509.Certificate) ([]byte, error) {
	columns := nssColumns()
	var rows [][][]byte
	for _, c := range roots {
		cert, trust, err := nssObjects(c)
		if err != nil {
			return nil, fmt.Errorf("NSS database: %w", err)
		}
		for _, object := range []map[string][]byte{cert, trust} {
			row := make([][]byte, len(columns))
			for i, name := range columns {
				row[i] = object[name]
			}
			rows = append(rows, row)
		}
	}
	b, err := sqliteTable("nssPublic", columns, rows)
	if err != nil {
		return nil, fmt.Errorf("NSS database: %w", err)
	}
	return b, nil
}

// nssObjects are a certificate and what is said of it.
func nssObjects(c *x509.Certificate) (cert, trust map[string][]byte, err error) {
	serial, err := asn1.Marshal(c.SerialNumber)
	if err != nil {
		return nil, nil, err
	}
	key := sha1.Sum(c.RawSubjectPublicKeyInfo)
	short, shorter := sha1.Sum(c.Raw), md5.Sum(c.Raw)
	cert = map[string][]byte{
		nssClass: nssNumber(nssCertificate), nssToken: {1}, nssPrivate: {0}, nssModifiable: {1}, nssCertType: nssNumber(0),
		nssLabel: []byte("sallyport " + hex.EncodeToString(short[:4])), nssValue: c.Raw, nssIssuer: c.RawIssuer, nssSerial: serial,
		nssSubject: c.RawSubject, nssID: slices.Clone(key[:]),
	}
	trust = map[string][]byte{
		nssClass: nssNumber(nssTrust), nssToken: {1}, nssPrivate: {0}, nssModifiable: {1},
		nssIssuer: c.RawIssuer, nssSerial: serial, nssTrustSHA1: slices.Clone(short[:]), nssTrustMD5: slices.Clone(shorter[:]),
		nssTrustServer: nssNumber(nssDelegator), nssTrustClient: nssNumber(nssValid), nssTrustCode: nssNumber(nssMustVerify),
		nssTrustMail: nssNumber(nssMustVerify), nssTrustStepUp: {0},
	}
	return cert, trust, nil
}

// nssNumber is a number as NSS stores it.
func nssNumber(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// minter signs leaves. It lays the certificate out itself (RFC 5280, section
// 4.1) around parts that were encoded once: x509.CreateCertificate verifies
// each signature that it has just made, which is twice the work of making it.
type minter struct {
	ca   *CA
	once sync.Once
	err  error

	key        *ecdsa.PrivateKey
	spki       []byte // SubjectPublicKeyInfo
	extensions []byte // all but the subject alternative name
}

// DER of what never changes. ecdsa-with-SHA256 is 1.2.840.10045.4.3.2.
const (
	derVersion3   = "\xa0\x03\x02\x01\x02"
	derSigECDSA   = "\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"
	derCommonName = "\x06\x03\x55\x04\x03" // 2.5.4.3
	derSAN        = "\x06\x03\x55\x1d\x11" // 2.5.29.17
	derTrue       = "\x01\x01\xff"
	derKeyUsage   = "\x30\x0e\x06\x03\x55\x1d\x0f\x01\x01\xff\x04\x04\x03\x02\x07\x80"                     // critical, digitalSignature
	derServerAuth = "\x30\x13\x06\x03\x55\x1d\x25\x04\x0c\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01" // 1.3.6.1.5.5.7.3.1
	derNotCA      = "\x30\x0c\x06\x03\x55\x1d\x13\x01\x01\xff\x04\x02\x30\x00"                             // critical, empty
	derSKI        = "\x06\x03\x55\x1d\x0e"                                                                 // 2.5.29.14
	derAKI        = "\x06\x03\x55\x1d\x23"                                                                 // 2.5.29.35
)

// DER tags.
const (
	tagInteger    = 0x02
	tagBitString  = 0x03
	tagOctets     = 0x04
	tagUTF8       = 0x0c
	tagUTCTime    = 0x17
	tagTime       = 0x18
	tagSequence   = 0x30
	tagSet        = 0x31
	tagExtensions = 0xa3 // [3] EXPLICIT
	tagDNSName    = 0x82 // [2] IMPLICIT IA5String
	tagIPAddress  = 0x87 // [7] IMPLICIT OCTET STRING
	tagKeyID      = 0x80 // [0] IMPLICIT OCTET STRING
)

// maxCommonName is ub-common-name of RFC 5280, appendix A.1, in characters.
const maxCommonName = 64

// prepare makes the shared key and encodes the parts that do not change.
func (m *minter) prepare() {
	if m.key, m.err = newLeafKey(); m.err != nil {
		return
	}
	if m.spki, m.err = x509.MarshalPKIXPublicKey(&m.key.PublicKey); m.err != nil {
		return
	}
	id, err := keyID(&m.key.PublicKey)
	if err != nil {
		m.err = err
		return
	}
	ski := tlv(tagSequence, []byte(derSKI), tlv(tagOctets, tlv(tagOctets, id)))
	aki := tlv(tagSequence, []byte(derAKI), tlv(tagOctets, tlv(tagSequence, tlv(tagKeyID, m.ca.cert.SubjectKeyId))))
	m.extensions = join([]byte(derKeyUsage), []byte(derServerAuth), []byte(derNotCA), ski, aki)
}

// leaf signs a certificate for exactly one host.
func (m *minter) leaf(host string, now time.Time, life time.Duration) (*tls.Certificate, error) {
	ip, err := checkHost(host)
	if err != nil {
		return nil, err
	}
	if m.once.Do(m.prepare); m.err != nil {
		return nil, fmt.Errorf("leaf key: %w", m.err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("leaf %q: %w", host, err)
	}
	from, to := m.validity(now, life)
	subject, critical := tlv(tagSequence), []byte(derTrue)
	if len(host) <= maxCommonName {
		name := tlv(tagSequence, []byte(derCommonName), tlv(tagUTF8, []byte(host)))
		subject, critical = tlv(tagSequence, tlv(tagSet, name)), nil
	}
	// RFC 5280, section 4.2.1.6: critical when the subject is empty.
	san := tlv(tagSequence, []byte(derSAN), critical, tlv(tagOctets, tlv(tagSequence, generalName(host, ip))))
	tbs := tlv(tagSequence,
		[]byte(derVersion3),
		tlv(tagInteger, serial[:]),
		[]byte(derSigECDSA),
		m.ca.cert.RawSubject,
		tlv(tagSequence, derTime(from), derTime(to)),
		subject,
		m.spki,
		tlv(tagExtensions, tlv(tagSequence, m.extensions, san)),
	)
	digest := sha256.Sum256(tbs)
	sig, err := m.ca.key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("leaf %q: %w", host, err)
	}
	der := tlv(tagSequence, tbs, []byte(derSigECDSA), tlv(tagBitString, []byte{0}, sig))
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("leaf %q: %w", host, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: m.key, Leaf: parsed}, nil
}

// validity returns the life of a leaf, which lies within its CA's.
func (m *minter) validity(now time.Time, life time.Duration) (from, to time.Time) {
	from, to = now.Add(-backdate), now.Add(life)
	if from.Before(m.ca.cert.NotBefore) {
		from = m.ca.cert.NotBefore
	}
	if to.After(m.ca.cert.NotAfter) {
		to = m.ca.cert.NotAfter
	}
	return from, to
}

func generalName(host string, ip netip.Addr) []byte {
	if ip.IsValid() {
		return tlv(tagIPAddress, ip.AsSlice())
	}
	return tlv(tagDNSName, []byte(host))
}

// derTime encodes a time in the form that RFC 5280, section 4.1.2.5, asks for.
func derTime(t time.Time) []byte {
	t = t.UTC()
	if y := t.Year(); y >= 1950 && y < 2050 {
		return tlv(tagUTCTime, []byte(t.Format("060102150405Z")))
	}
	return tlv(tagTime, []byte(t.Format("20060102150405Z")))
}

// tlv returns a DER element of one-byte tag whose content is the parts joined.
func tlv(tag byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	out := make([]byte, 0, n+5)
	out = append(out, tag)
	switch {
	case n < 1<<7:
		out = append(out, byte(n))
	case n < 1<<8:
		out = append(out, 0x81, byte(n))
	default: // a certificate of one name is far under 64 KiB
		out = append(out, 0x82, byte(n>>8), byte(n))
	}
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

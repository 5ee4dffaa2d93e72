package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// DefaultOverlap is how long a replaced CA stays in the bundles that are
// given to sandboxes: as long as a leaf that it signed may live.
const DefaultOverlap = 7 * 24 * time.Hour

// untilHeader is the PEM header with the end of a former CA's overlap.
const untilHeader = "Sallyport-Until"

// Rotate replaces the CA in dir with a new one and a new key. The old key is
// gone afterwards. The old certificate stays in PEM, and so in every bundle
// that is written, until Options.Overlap has passed: a sandbox that starts
// after the rotation also trusts a gateway that has not yet loaded the new
// CA. A sandbox that started before trusts only the old one; its bundle must
// be written again (WriteTrust into the same directory) for it to go on.
//
// Leaves of the old CA are not served by the new one: their cache belongs to
// the CA, so a new CA needs a new Leaves.
func Rotate(dir string, o Options) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("ca folder: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()

	now := o.now()
	if o.Overlap == 0 {
		o.Overlap = DefaultOverlap
	}
	// An old key that is missing or broken is a reason to rotate, not to
	// refuse; the old certificate only has to be readable to stay trusted.
	old, err := readCertificate(filepath.Join(dir, certFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c, err := newCA(nil, o)
	if err != nil {
		return nil, err
	}
	if err := keepFormer(filepath.Join(dir, formerFile), old, now, o.Overlap); err != nil {
		return nil, err
	}
	if err := c.swap(dir); err != nil {
		return nil, err
	}
	c.former, err = readFormer(filepath.Join(dir, formerFile), now)
	return c, err
}

// swap replaces key and certificate. A crash in between must not leave the
// new key beside the old certificate, so the old certificate goes first: what
// is then found is a key alone, for which LoadOrCreate makes a certificate.
func (c *CA) swap(dir string) error {
	if err := os.Remove(filepath.Join(dir, certFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ca certificate: %w", err)
	}
	return c.write(dir)
}

// former is a replaced certificate and the end of its overlap.
type former struct {
	cert  *x509.Certificate
	until time.Time
}

// keepFormer rewrites the file of former certificates: cert first, then those
// whose overlap has not ended. A negative overlap drops all.
func keepFormer(path string, cert *x509.Certificate, now time.Time, overlap time.Duration) error {
	var keep []former
	if overlap > 0 {
		earlier, err := parseFormer(path)
		if err != nil {
			return err
		}
		if cert != nil {
			keep = append(keep, former{cert, now.Add(overlap)})
		}
		keep = append(keep, earlier...)
	}
	var out bytes.Buffer
	for _, f := range keep {
		if now.Before(f.until) && now.Before(f.cert.NotAfter) {
			out.Write(encodeCertificate(f.cert, map[string]string{untilHeader: f.until.UTC().Format(time.RFC3339)}))
		}
	}
	if out.Len() == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("former ca: %w", err)
		}
		return nil
	}
	if err := replaceFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("former ca: %w", err)
	}
	return nil
}

// readFormer returns the former certificates that are still to be trusted.
func readFormer(path string, now time.Time) ([]*x509.Certificate, error) {
	all, err := parseFormer(path)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for _, f := range all {
		if now.Before(f.until) && now.Before(f.cert.NotAfter) {
			out = append(out, f.cert)
		}
	}
	return out, nil
}

func parseFormer(path string) ([]former, error) {
	rest, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("former ca: %w", err)
	}
	var out []former
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out, nil
		}
		until, err := time.Parse(time.RFC3339, block.Headers[untilHeader])
		if err != nil {
			return nil, fmt.Errorf("former ca %s: %w: remove the file to trust the current CA alone", path, err)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("former ca %s: %w: remove the file to trust the current CA alone", path, err)
		}
		out = append(out, former{cert, until})
	}
}

package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func testCA(t testing.TB) *CA {
	t.Helper()
	c, err := LoadOrCreate(t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pool(certs ...*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

func mustLeaf(t testing.TB, l *Leaves, host string) *x509.Certificate {
	t.Helper()
	c, err := l.Leaf(host)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

// longName is a DNS name of n bytes, n between 70 and 253, under good.test.
func longName(n int) string {
	s := "good.test"
	for len(s) < n {
		room := min(n-len(s)-1, 63)
		if n-len(s)-1-room == 1 { // a dot alone cannot be filled
			room--
		}
		s = strings.Repeat("a", room) + "." + s
	}
	return s
}

func TestTLS08LeafNames(t *testing.T) {
	ca := testCA(t)
	l := NewLeaves(ca, LeavesOptions{})
	for _, tc := range []struct {
		name, host string
		commonName bool
	}{
		{"short", "good.test", true},
		{"underscore", "foo_bar.good.test", true},
		{"64 bytes", longName(64), true},
		{"65 bytes", longName(65), false},
		{"labels of 63 and 40", strings.Repeat("a", 63) + "." + strings.Repeat("b", 40) + ".good.test", false},
		{"253 bytes", longName(253), false},
		{"IPv4", "203.0.113.7", true},
		{"IPv6", "2001:db8::7", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := mustLeaf(t, l, tc.host)
			if got := c.Subject.CommonName; (got == tc.host) != tc.commonName || got != "" && got != tc.host {
				t.Errorf("common name %q", got)
			}
			if len(c.DNSNames)+len(c.IPAddresses) != 1 || len(c.EmailAddresses)+len(c.URIs) != 0 {
				t.Errorf("alternative names: %v %v", c.DNSNames, c.IPAddresses)
			}
			for _, e := range c.Extensions {
				if e.Id.String() == "2.5.29.17" && e.Critical == tc.commonName {
					t.Errorf("subjectAltName critical: %v with common name %q", e.Critical, c.Subject.CommonName)
				}
			}
			if _, err := c.Verify(x509.VerifyOptions{DNSName: tc.host, Roots: pool(ca.Certificate())}); err != nil {
				t.Error(err)
			}
			if err := c.VerifyHostname("x." + tc.host); err == nil {
				t.Error("also valid for a name below")
			}
		})
	}
}

func TestTLS08RefusedNames(t *testing.T) {
	l := NewLeaves(testCA(t), LeavesOptions{Max: 1})
	mustLeaf(t, l, "good.test")
	for _, host := range []string{
		"", ".", "a..test", "good.test.", "GOOD.test", "*.good.test", "a b.test", "a\x00.test", "a/b.test",
		"[2001:db8::7]", "fe80::1%lo", strings.Repeat("a", 64) + ".test", longName(253) + "a", "b\u00fccher.test",
	} {
		if c, err := l.Leaf(host); err == nil {
			t.Errorf("%q: leaf for %v", host, c.Leaf.DNSNames)
		}
	}
	if l.Len() != 1 {
		t.Error("a refused name took the place of a good one")
	}
}

func TestTLS09LeafLife(t *testing.T) {
	ca := testCA(t)
	now := time.Now()
	for _, tc := range []struct {
		name string
		life time.Duration
	}{{"default", 0}, {"too long", 1000 * 24 * time.Hour}} {
		t.Run(tc.name, func(t *testing.T) {
			c := mustLeaf(t, NewLeaves(ca, LeavesOptions{Life: tc.life}), "good.test")
			if total := c.NotAfter.Sub(c.NotBefore); total > 100*24*time.Hour {
				t.Errorf("lives %v", total)
			}
			for _, skew := range []time.Duration{-26 * time.Hour, -5 * time.Minute, 0, 24 * time.Hour} {
				opts := x509.VerifyOptions{DNSName: "good.test", Roots: pool(ca.Certificate()), CurrentTime: now.Add(skew)}
				if _, err := c.Verify(opts); err != nil {
					t.Errorf("clock off by %v: %v", skew, err)
				}
			}
			if c.SerialNumber.Sign() <= 0 || c.SerialNumber.BitLen() < 120 {
				t.Errorf("serial of %d bits", c.SerialNumber.BitLen())
			}
		})
	}
}

func TestTLS09LeafEndsWithItsCA(t *testing.T) {
	ca := testCA(t)
	late := ca.Certificate().NotAfter.Add(-time.Hour)
	c := mustLeaf(t, NewLeaves(ca, LeavesOptions{Now: func() time.Time { return late }}), "good.test")
	if c.NotAfter.After(ca.Certificate().NotAfter) {
		t.Errorf("leaf ends %v, after its CA", c.NotAfter)
	}
	early := ca.Certificate().NotBefore.Add(time.Hour)
	c = mustLeaf(t, NewLeaves(ca, LeavesOptions{Now: func() time.Time { return early }}), "good.test")
	if c.NotBefore.Before(ca.Certificate().NotBefore) {
		t.Errorf("leaf begins %v, before its CA", c.NotBefore)
	}
}

func TestTLS09SerialsDiffer(t *testing.T) {
	l := NewLeaves(testCA(t), LeavesOptions{})
	seen := map[string]bool{}
	for i := range 200 {
		s := mustLeaf(t, l, fmt.Sprintf("h%d.good.test", i)).SerialNumber.String()
		if seen[s] {
			t.Fatal("serial used twice")
		}
		seen[s] = true
	}
}

func TestLeafIsWhatItShouldBe(t *testing.T) {
	ca := testCA(t)
	c := mustLeaf(t, NewLeaves(ca, LeavesOptions{}), "good.test")
	if c.IsCA || !c.BasicConstraintsValid || c.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("CA %v, usage %b", c.IsCA, c.KeyUsage)
	}
	if len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("extended usage %v", c.ExtKeyUsage)
	}
	if !bytes.Equal(c.AuthorityKeyId, ca.Certificate().SubjectKeyId) || len(c.SubjectKeyId) != 20 {
		t.Errorf("key ids %x %x", c.AuthorityKeyId, c.SubjectKeyId)
	}
	if c.SignatureAlgorithm != x509.ECDSAWithSHA256 || c.Version != 3 {
		t.Errorf("%v, version %d", c.SignatureAlgorithm, c.Version)
	}
}

// TestLeafInOpenSSL reads the leaf, which this package encodes itself, with
// another implementation of X.509.
func TestLeafInOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Logf("%v: read by crypto/x509 alone", err)
		return
	}
	dir, ca := t.TempDir(), testCA(t)
	l := NewLeaves(ca, LeavesOptions{})
	writeTest(t, filepath.Join(dir, "ca.pem"), ca.PEM())
	for i, host := range []string{"good.test", longName(253), "203.0.113.7", "2001:db8::7"} {
		c := mustLeaf(t, l, host)
		file := filepath.Join(dir, fmt.Sprint(i, ".pem"))
		writeTest(t, file, encodeCertificate(c, nil))
		kind := "-verify_hostname"
		if len(c.IPAddresses) > 0 {
			kind = "-verify_ip"
		}
		out, err := exec.Command(openssl, "verify", "-x509_strict", "-purpose", "sslserver", kind, host, "-CAfile", filepath.Join(dir, "ca.pem"), file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", host, err, out)
		}
	}
}

func writeTest(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLeavesAreBounded(t *testing.T) {
	l := NewLeaves(testCA(t), LeavesOptions{Max: 3})
	first := mustLeaf(t, l, "a.test")
	for _, h := range []string{"b.test", "c.test", "a.test", "d.test"} { // b is the oldest then
		mustLeaf(t, l, h)
	}
	if l.Len() != 3 {
		t.Fatalf("%d leaves kept", l.Len())
	}
	if mustLeaf(t, l, "a.test") != first {
		t.Error("the leaf in use was dropped")
	}
	if len(l.byKey) != l.order.Len() {
		t.Errorf("map of %d, list of %d", len(l.byKey), l.order.Len())
	}
	if hits, misses := l.Asked(); hits != 2 || misses != 4 {
		t.Errorf("%d hits and %d misses, want 2 and 4", hits, misses)
	}
}

func TestLeavesSingleFlight(t *testing.T) {
	l := NewLeaves(testCA(t), LeavesOptions{})
	var wg sync.WaitGroup
	got := make([]*tls.Certificate, 64)
	for i := range got {
		wg.Go(func() {
			c, err := l.Leaf("good.test")
			if err != nil {
				t.Error(err)
			}
			got[i] = c
		})
	}
	wg.Wait()
	for _, c := range got {
		if c != got[0] {
			t.Fatal("one name was minted twice")
		}
	}
}

func TestLeafIsRenewed(t *testing.T) {
	now := time.Now()
	l := NewLeaves(testCA(t), LeavesOptions{Now: func() time.Time { return now }})
	first := mustLeaf(t, l, "good.test")
	now = now.Add(DefaultLeafLife/2 - time.Minute)
	if mustLeaf(t, l, "good.test") != first {
		t.Error("renewed too early")
	}
	now = now.Add(2 * time.Minute)
	second := mustLeaf(t, l, "good.test")
	if second == first || !second.NotAfter.After(first.NotAfter) {
		t.Error("not renewed at half of its life")
	}
	if l.Len() != 1 {
		t.Errorf("%d leaves kept", l.Len())
	}
}

func TestLeafHandshake(t *testing.T) {
	ca := testCA(t)
	l := NewLeaves(ca, LeavesOptions{})
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client, server := net.Pipe()
		srv := tls.Server(server, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return l.Leaf(h.ServerName)
		}})
		done := make(chan error, 1)
		go func() { done <- srv.Handshake() }()
		cli := tls.Client(client, &tls.Config{ServerName: "good.test", RootCAs: pool(ca.Certificate()), MaxVersion: version})
		if err := cli.Handshake(); err != nil {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		client.Close()
		server.Close()
	}
}

func TestLeafHitDoesNotAllocate(t *testing.T) {
	l := NewLeaves(testCA(t), LeavesOptions{})
	mustLeaf(t, l, "good.test")
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.Leaf("good.test") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzLeafHost(f *testing.F) {
	for _, s := range []string{"good.test", "203.0.113.7", "2001:db8::7", "*.a", "a..b", "\x00", "fe80::1%lo", longName(253)} {
		f.Add(s)
	}
	ca := testCA(f)
	l := NewLeaves(ca, LeavesOptions{Max: 8})
	roots := pool(ca.Certificate())
	f.Fuzz(func(t *testing.T, host string) {
		c, err := l.Leaf(host)
		if err != nil {
			return
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil && !strings.Contains(host, "_") && !strings.HasPrefix(host, "-") {
			t.Errorf("%q: %v", host, err)
		}
		if block, _ := pem.Decode(encodeCertificate(c.Leaf, nil)); block == nil {
			t.Error("not encoded")
		}
	})
}

func BenchmarkLeafMint(b *testing.B) {
	m := &minter{ca: testCA(b)}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.leaf("good.test", now, DefaultLeafLife); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLeafHit(b *testing.B) {
	l := NewLeaves(testCA(b), LeavesOptions{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Leaf("good.test"); err != nil {
			b.Fatal(err)
		}
	}
}

//go:build linux

package e2e_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

func p4Policy() map[string]string {
	return one(`
secret "API_KEY" {
  hosts   = ["*.p4.test"]
  headers = ["Authorization", "X-Api-Key"]
  source "env" { name = "REAL_KEY" }
}
sandbox "p4" {
  allow "*.p4.test" {
    schemes   = ["http", "https"]
    ports     = [443, 80]
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "*.p4other.test" { addresses = DOCS }
}
sandbox "without" {
  allow "*.p4.test" { addresses = DOCS }
}
`)
}

// attempt is a request that carries the placeholder somewhere.
type attempt struct {
	name    string
	sandbox string
	method  string
	url     string
	lines   []string
	body    string
	reason  string // "" for one that is let through
	real    bool   // the origin receives the value
}

func p4Attempts() []attempt {
	basic := base64.StdEncoding.EncodeToString([]byte("user:$API_KEY"))
	return []attempt{
		{name: "approved", url: "https://yes.p4.test/", lines: []string{"Authorization: Bearer $API_KEY"}, real: true},
		{name: "approved, other field", url: "https://yes2.p4.test/", lines: []string{"X-Api-Key: $API_KEY"}, real: true},
		{name: "inside Basic", url: "https://basic.p4.test/", lines: []string{"Authorization: Basic " + basic}, real: true},
		{name: "other place", url: "https://place.p4.test/", lines: []string{"X-Custom: $API_KEY"}, reason: "placeholder_place"},
		{name: "user agent", url: "https://agent.p4.test/", lines: []string{"User-Agent: $API_KEY"}, reason: "placeholder_place"},
		{name: "query", url: "https://query.p4.test/?key=$API_KEY", reason: "placeholder_place"},
		{name: "path", url: "https://path.p4.test/$API_KEY/x", reason: "placeholder_place"},
		{name: "body", method: "POST", url: "https://body.p4.test/", body: "key=$API_KEY"},
		{name: "other host", url: "https://no.p4other.test/", lines: []string{"Authorization: Bearer $API_KEY"}, reason: "placeholder_leak"},
		{name: "other host, inside Basic", url: "https://no2.p4other.test/", lines: []string{"Authorization: Basic " + basic}, reason: "placeholder_leak"},
		{name: "plain HTTP", url: "http://plain.p4.test/", lines: []string{"Authorization: Bearer $API_KEY"}, reason: "plaintext_injection"},
		{name: "plain HTTP, port of HTTPS", url: "http://plain443.p4.test:443/", lines: []string{"Authorization: Bearer $API_KEY"}, reason: "plaintext_injection"},
		{name: "other sandbox", sandbox: "without", url: "https://sandbox.p4.test/", lines: []string{"Authorization: Bearer $API_KEY"}, reason: "placeholder_leak"},
	}
}

// TestP4OnlyToApprovedPlaces: the real value leaves in an approved place of a
// request to an approved host over TLS that was verified for that host, and
// not otherwise. SEC-01, SEC-02, SEC-16.
func TestP4OnlyToApprovedPlaces(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: p4Policy(), Env: []string{"REAL_KEY=" + value}})
	boxes := map[string]*lab.Sandbox{"": g.Attach(t, "p4"), "without": g.Attach(t, "without")}
	for _, h2 := range []bool{false, true} {
		for _, a := range p4Attempts() {
			if h2 && strings.HasPrefix(a.url, "http:") {
				continue // there is no h2 without TLS
			}
			t.Run(map[bool]string{false: "h1/", true: "h2/"}[h2]+a.name, func(t *testing.T) { a.try(t, boxes[a.sandbox], h2) })
		}
	}
	t.Run("certificates", func(t *testing.T) { p4Certificates(t, g, boxes[""]) })
	p4Everywhere(t, g)
}

func (a attempt) try(t *testing.T, s *lab.Sandbox, h2 bool) {
	host := strings.SplitN(strings.TrimPrefix(strings.TrimPrefix(a.url, "https://"), "http://"), "/", 2)[0]
	host, _, _ = strings.Cut(host, ":")
	before := len(origin(host).Requests())
	method := a.method
	if method == "" {
		method = http.MethodGet
	}
	req := lab.NewRequest(t, method, a.url, a.body, a.lines...)
	if strings.Contains(a.url, "$") { // as it is, not as %24
		req.URL.Opaque = "//" + host + strings.TrimPrefix(a.url, "https://"+host)
	}
	got, err := lab.Try(s.Client(t, h2), req)
	if err != nil {
		t.Fatal(err)
	}
	if got.Reason() != a.reason || (got.Status == 200) != (a.reason == "") {
		t.Errorf("got %d %q, want %q", got.Status, got.Reason(), a.reason)
	}
	requests := origin(host).Requests()[before:]
	if want := map[bool]int{true: 1, false: 0}[a.reason == ""]; len(requests) != want {
		t.Fatalf("the origin saw %d requests, not %d", len(requests), want)
	}
	for _, q := range requests {
		all := strings.Join(append(append([]string{q.Target, q.Body}, q.Header["Authorization"]...), q.Header["X-Api-Key"]...), "\n")
		plain, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(all[strings.LastIndexByte(all, '\n')+1:], "Basic "))
		if err == nil {
			all += string(plain)
		}
		if strings.Contains(all, value) != a.real {
			t.Errorf("the origin saw %q", all)
		}
	}
}

// p4Certificates holds that nothing is sent to an origin that cannot prove
// its name.
func p4Certificates(t *testing.T, g *lab.Gateway, s *lab.Sandbox) {
	stranger, err := lab.NewAuthority("Stranger")
	must(t, err)
	ca := world.lab.Origins.CA
	for name, c := range map[string]struct {
		by     *lab.Authority
		change func(*x509.Certificate)
	}{
		"selfsigned": {ca, lab.SelfSigned},
		"expired": {ca, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-time.Hour)
		}},
		"future":      {ca, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }},
		"wrongname":   {ca, func(c *x509.Certificate) { c.DNSNames = []string{"yes.p4.test"} }},
		"untrusted":   {stranger, nil},
		"forclients":  {ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }},
		"sandboxesca": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			host := name + ".p4.test"
			var leaf *tls.Certificate
			var err error
			if c.by == nil {
				leaf, err = stranger.Leaf(host, nil)
				if err == nil { // a chain that ends in the authority that sandboxes trust
					leaf.Certificate = append(leaf.Certificate, certificateOf(t, g.CA).Raw)
				}
			} else {
				leaf, err = c.by.Leaf(host, c.change)
			}
			must(t, err)
			origin(host).SetCertificate(leaf)
			for _, h2 := range []bool{false, true} {
				a := lab.Do(t, s.Client(t, h2), lab.NewRequest(t, "GET", "https://"+host+"/", "", "Authorization: Bearer $API_KEY"))
				if a.Status != http.StatusBadGateway || strings.Contains(a.Body, value) {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			}
			silent(t, host)
			if !lab.Within(patience, func() bool { return upstreamTLS(g, host) == 2 }) {
				t.Errorf("%d ends of class upstream_tls are recorded of %s, not 2", upstreamTLS(g, host), host)
			}
		})
	}
}

// upstreamTLS counts the requests to host that ended with a certificate.
func upstreamTLS(g *lab.Gateway, host string) (n int) {
	for _, e := range g.Events(audit.Filter{Host: host, Kind: "http"}) {
		if e.Phase == audit.PhaseEnd && e.Error != nil && e.Error.Class == "upstream_tls" {
			n++
		}
	}
	return n
}

// p4Everywhere holds that no log of the gateway has the value.
func p4Everywhere(t *testing.T, g *lab.Gateway) {
	if strings.Contains(g.Stderr(), value) {
		t.Error("the operational log has the value")
	}
	for path, b := range tree(t, g.State) {
		if bytes.Contains(b, []byte(value)) {
			t.Errorf("%s has the value", path)
		}
	}
}

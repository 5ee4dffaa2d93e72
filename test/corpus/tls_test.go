//go:build linux

package corpus_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

func tlsPolicy() map[string]string {
	return map[string]string{"tls.hcl": `
sandbox "tls13" {
  allow "a.tls13.test" { addresses = DOCS }
  allow "distrust.tls13.test" { addresses = DOCS }
  passthrough "pinned.tls13.test" { addresses = DOCS }
}
sandbox "tls20" {
  allow "tls20.good.test" {
    ports     = [80, 443, 8443]
    inject    = ["API_KEY"]
    addresses = DOCS
  }
}
sandbox "tls23" {
  tcp "db.tls23.test:5432" { addresses = DOCS }
  allow "*.tls23.test" { addresses = DOCS }
}
`}
}

func TestTLS01NoServerName(t *testing.T) {
	alone(t) // it measures how soon a connection is refused
	s := s1(t)
	const host = "tls01.good.test"
	events := s.Expect(t, append(named(host), "conn deny no_sni "+host), func() {
		c, err := s.Dial("tcp", host+":443")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var alert tls.AlertError
		tc, err := s.Handshake(c, "", &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			t.Fatalf("a certificate for %v was shown", tc.ConnectionState().PeerCertificates[0].DNSNames)
		}
		if !errors.As(err, &alert) && !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("the handshake ended with %v", err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	if e := events[1]; e.Dst == nil || e.Dst.Port != 443 {
		t.Errorf("the record's destination is %+v", e.Dst)
	}
	silent(t, host)
}

func TestTLS02DomainFronting(t *testing.T) {
	begin(t)
	s := s1(t)
	const good, other, evil = "tls02.good.test", "tls02.other.test", "tls02.evil.test"
	for _, h2 := range []bool{false, true} {
		send := func(name, host string) lab.Answer {
			c := s.Client(t, h2)
			req := lab.NewRequest(t, "GET", "https://"+name+"/", "", "Authorization: Bearer $API_KEY")
			req.Host = host
			return lab.Do(t, c, req)
		}
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) {
			events := s.Expect(t, refused(good, "authority_mismatch"), func() { check(t, send(good, evil), 421, "authority_mismatch") })
			if e := events[2]; e.Authority != evil || e.Severity != audit.High {
				t.Errorf("the record: authority %q, severity %s", e.Authority, e.Severity)
			}
			s.Expect(t, refused(other, "authority_mismatch"), func() { check(t, send(other, good), 421, "authority_mismatch") })
			s.Expect(t, unnamed(evil, "host_not_allowed"), func() { check(t, send(evil, good), 403, "host_not_allowed") })
		})
	}
	t.Run("the server name of another host than was looked up", func(t *testing.T) {
		s.Expect(t, append(named(good), "conn deny authority_mismatch "+good, "http deny authority_mismatch "+good), func() {
			c, err := s.Dial("tcp", good+":443")
			if err != nil {
				t.Fatal(err)
			}
			check(t, sayTLS(t, s, c, other, get("/", other)), 421, "authority_mismatch")
		})
	})
	silent(t, good, other, evil)
}

func TestTLS04SharedAddress(t *testing.T) {
	l := begin(t)
	s := s1(t)
	const good, evil = "tls04.good.test", "tls04.evil.test"
	l.DNS.Set(good, "60 A 203.0.113.10")
	l.DNS.Set(evil, "60 A 203.0.113.10")
	w := s.Secure(t, good+":443")
	w.Send(t, get("/", good))
	check(t, w.Answer(t, "GET"), 200, "")
	s.Expect(t, []string{"http deny authority_mismatch " + good}, func() {
		w.Send(t, get("/", evil))
		check(t, w.Answer(t, "GET"), 421, "authority_mismatch")
	})
	s.Expect(t, unnamed(evil, "host_not_allowed"), func() { check(t, s.Get(t, "https://"+evil+"/"), 403, "host_not_allowed") })
	s.Expect(t, []string{"conn deny ip_literal " + lab.Origin, "http deny ip_literal " + lab.Origin}, func() {
		c, err := s.DialIP("tcp", lab.Origin+":443")
		if err != nil {
			t.Fatal(err)
		}
		check(t, sayTLS(t, s, c, evil, get("/", evil)), 403, "ip_literal")
	})
	silent(t, evil)
}

func TestTLS05WrongUpstreamCertificate(t *testing.T) {
	l := begin(t)
	s := s1(t)
	ca := l.Origins.CA
	stranger, err := lab.NewAuthority("Stranger")
	if err != nil {
		t.Fatal(err)
	}
	bare, err := ca.Intermediate("Intermediate that is not sent", true)
	if err != nil {
		t.Fatal(err)
	}
	sha1, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	old, err := lab.NewRSAAuthority("SHA-1", sha1)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		ca     *lab.Authority
		change func(*x509.Certificate)
	}{
		{"self-signed", ca, lab.SelfSigned},
		{"expired", ca, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }},
		{"not-yet", ca, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }},
		{"wrong-name", ca, func(c *x509.Certificate) { c.DNSNames = []string{"another.good.test"} }},
		{"no-intermediate", bare, nil},
		{"sha1", old, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA }},
		{"stranger", stranger, nil},
		{"common-name", ca, func(c *x509.Certificate) {
			c.Subject, c.DNSNames = pkix.Name{CommonName: c.DNSNames[0]}, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := tt.name + ".tls05.good.test"
			cert, err := tt.ca.Leaf(host, tt.change)
			if err != nil {
				t.Fatal(err)
			}
			origin(host).SetCertificate(cert)
			var a lab.Answer
			events := s.Expect(t, allowed(host), func() {
				a = s.Get(t, "https://"+host+"/", "Authorization: Bearer $API_KEY", "X-Insecure: true")
			})
			check(t, a, 502, "upstream_tls")
			ends := s.Gateway.Await(t, 1, audit.Filter{Req: events[2].Req, Kind: "http"})
			if e := ends[len(ends)-1]; e.Phase != audit.PhaseEnd || e.Error == nil || e.Error.Class != "upstream_tls" {
				ends = s.Gateway.Await(t, 2, audit.Filter{Req: events[2].Req, Kind: "http"})
				if e := ends[len(ends)-1]; e.Error == nil || e.Error.Class != "upstream_tls" {
					t.Errorf("the end is recorded as %+v", e.Error)
				}
			}
			silent(t, host)
		})
	}
	t.Run("with its intermediate", func(t *testing.T) {
		whole, err := ca.Intermediate("Intermediate that is sent", false)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := whole.Leaf("whole.tls05.good.test", nil)
		if err != nil {
			t.Fatal(err)
		}
		origin("whole.tls05.good.test").SetCertificate(cert)
		check(t, s.Get(t, "https://whole.tls05.good.test/"), 200, "")
	})
}

func TestTLS08LongNames(t *testing.T) {
	begin(t)
	s := s1(t)
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 40) + ".tls08.good.test"
	longest := strings.Repeat(strings.Repeat("c", 60)+".", 4) + "good.test"
	if len(longest) != 253 {
		t.Fatal(len(longest))
	}
	for _, host := range []string{long, longest, "foo_bar.tls08.good.test"} {
		s.Expect(t, allowed(host), func() {
			w := s.Secure(t, host+":443")
			leaf := w.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
			if len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != host || len(leaf.Subject.CommonName) > 64 {
				t.Errorf("the leaf: names %v, CN %q", leaf.DNSNames, leaf.Subject.CommonName)
			}
			w.Send(t, get("/", host, "Connection: close"))
			check(t, w.Answer(t, "GET"), 200, "")
		})
	}
	t.Run("curl", func(t *testing.T) {
		r := s.Command(t, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://"+long+"/")
		if r.Stdout != "200" {
			t.Errorf("curl: %q %s", r.Stdout, r.Stderr)
		}
	})
	t.Run("too long", func(t *testing.T) {
		const host = "short.tls08.good.test"
		s.Expect(t, refused(host, "bad_hostname"), func() {
			w := s.Secure(t, host+":443")
			w.Send(t, get("/", "d"+strings.Repeat(strings.Repeat("d", 60)+".", 4)+host))
			check(t, w.Answer(t, "GET"), 400, "bad_hostname")
		})
	})
}

func TestTLS09LeafLife(t *testing.T) {
	begin(t)
	s := s1(t)
	serials := map[string]bool{}
	for i := range 3 {
		w := s.Secure(t, fmt.Sprintf("n%d.tls09.good.test:443", i))
		chain := w.Conn.(*tls.Conn).ConnectionState().VerifiedChains[0]
		leaf, root := chain[0], chain[len(chain)-1]
		if back := time.Since(leaf.NotBefore); back < time.Hour {
			t.Errorf("backdated by %v", back)
		}
		if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 90*24*time.Hour {
			t.Errorf("valid for %v", life)
		}
		if leaf.NotAfter.After(root.NotAfter) {
			t.Error("outlives the authority")
		}
		if leaf.SerialNumber.BitLen() < 64 || serials[leaf.SerialNumber.String()] {
			t.Errorf("serial %v", leaf.SerialNumber)
		}
		serials[leaf.SerialNumber.String()] = true
	}
}

func TestTLS12AuthorityKey(t *testing.T) {
	l := begin(t)
	g := world.gateway
	key := filepath.Join(g.State, "ca.key")
	info, err := os.Stat(key)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v", info.Mode())
	}
	block, _ := pem.Decode(g.CA)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !ca.IsCA || !ca.MaxPathLenZero || ca.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("the authority: CA %v, path length 0 %v, usage %b", ca.IsCA, ca.MaxPathLenZero, ca.KeyUsage)
	}
	s := s1(t)
	for _, path := range []string{"/ca.key", "/../ca.key", "/debug/pprof/", "/%2e%2e/ca.key", "/state/ca.key", "/"} {
		if a := s.Get(t, "http://sallyport.internal"+path); a.Status != 404 || strings.Contains(a.Body, "PRIVATE") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	if a := s.Get(t, "http://sallyport.internal/ca.pem"); a.Status != 200 || a.Body != string(g.CA) {
		t.Errorf("ca.pem: %d", a.Status)
	}
	for _, uid := range []int{0, lab.Nobody} {
		t.Run(fmt.Sprintf("from a command, uid %d", uid), func(t *testing.T) {
			state := filepath.Join(l.Dir, l.Unique("tls12"))
			if err := os.MkdirAll(state, 0o700); err != nil {
				t.Fatal(err)
			}
			r := l.Run(t, lab.RunOptions{UID: uid, Policy: "sandbox \"s1\" {}\n", State: state, Argv: []string{"sh", "-c",
				"cat " + state + "/ca.key " + state + "/runs/*/state.db; cat /proc/*/root" + state + "/ca.key; ls -la /run/sallyport; cat /run/sallyport/ca.pem; true"}})
			if strings.Contains(r.Stdout, "PRIVATE KEY") || !strings.Contains(r.Stdout, "BEGIN CERTIFICATE") {
				t.Errorf("the command saw:\n%s\n%s", r.Stdout, r.Stderr)
			}
			if err := os.Chmod(filepath.Join(state, "ca.key"), 0o644); err != nil {
				t.Fatal(err)
			}
			r = l.Run(t, lab.RunOptions{UID: uid, Policy: "sandbox \"s1\" {}\n", State: state, Argv: []string{"echo", "it ran"}})
			if r.Code != 125 || strings.Contains(r.Stdout, "it ran") || !strings.Contains(r.Stderr, "ca.key") {
				t.Errorf("with a key that others can read: exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

func TestTLS13TrustIsExtended(t *testing.T) {
	begin(t)
	s := attached(t, "tls13")
	bundle := s.Get(t, "http://sallyport.internal/bundle.pem").Body
	if n := strings.Count(bundle, "BEGIN CERTIFICATE"); n < 10 || !strings.Contains(bundle, strings.TrimSpace(string(world.gateway.CA))) {
		t.Errorf("the bundle has %d certificates", n)
	}
	roots := x509.NewCertPool()
	roots.AddCert(world.lab.Origins.CA.Cert)
	s.Expect(t, append(passed("pinned.tls13.test"), "conn allow passthrough_allow pinned.tls13.test"), func() {
		c, err := s.TLS("pinned.tls13.test:443", &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	})
	s.Expect(t, allowed("a.tls13.test"), func() { check(t, s.Get(t, "https://a.tls13.test/"), 200, "") })
	env := s.Get(t, "http://sallyport.internal/env.sh").Body
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT"} {
		if !strings.Contains(env, name+"=") {
			t.Errorf("env.sh does not set %s", name)
		}
	}
}

// passed is the name of a passthrough rule.
func passed(host string) []string { return []string{"dns allow passthrough_allow " + host} }

func TestTLS18PassthroughAndPins(t *testing.T) {
	begin(t)
	s := attached(t, "tls13")
	const host = "pinned.tls13.test"
	leaf, err := world.lab.Origins.CA.Leaf(host, nil)
	if err != nil {
		t.Fatal(err)
	}
	origin(host).SetCertificate(leaf)
	roots := x509.NewCertPool()
	roots.AddCert(world.lab.Origins.CA.Cert)
	events := s.Expect(t, append(passed(host), "conn allow passthrough_allow "+host), func() {
		c, err := s.TLS(host+":443", &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.ConnectionState().PeerCertificates[0].Raw, leaf.Certificate[0]) {
			t.Error("not the origin's own certificate")
		}
		w := lab.OnConn(t, c)
		w.Send(t, get("/", host, "Authorization: Bearer $API_KEY", "Connection: close"))
		check(t, w.Answer(t, "GET"), 200, "")
		_ = w.Close()
	})
	if e := events[1]; e.TLS == nil || e.TLS.Mode != "passthrough" {
		t.Errorf("the record: %+v", e.TLS)
	}
	end := s.Gateway.Await(t, 2, audit.Filter{Conn: events[1].Conn, Kind: "conn"})[1]
	if end.Phase != audit.PhaseEnd || end.Bytes == nil || end.Bytes.Sent < 100 || end.Bytes.Received < 100 {
		t.Errorf("the end: %s %+v", end.Phase, end.Bytes)
	}
	if q := origin(host).Requests(); q[len(q)-1].Header["Authorization"][0] != "Bearer $API_KEY" {
		t.Errorf("the origin saw %v", q[len(q)-1].Header)
	}
	t.Run("another server name on its address", func(t *testing.T) {
		s.Expect(t, append(passed(host), "conn deny authority_mismatch "+host, "http deny authority_mismatch "+host), func() {
			c, err := s.Dial("tcp", host+":443")
			if err != nil {
				t.Fatal(err)
			}
			check(t, sayTLS(t, s, c, "a.tls13.test", get("/", "a.tls13.test")), 421, "authority_mismatch")
		})
	})
	t.Run("no secret can be bound", func(t *testing.T) {
		rejected(t, `
secret "API_KEY" {
  hosts = ["a.test"]
  source "env" { name = "X" }
}
sandbox "s" {
  passthrough "a.test" { inject = ["API_KEY"] }
}
`, "policy.hcl:7", "inject")
	})
	t.Run("a client that does not trust the authority", func(t *testing.T) {
		before := s.Mark()
		if c, err := s.TLS("distrust.tls13.test:443", &tls.Config{RootCAs: x509.NewCertPool()}); err == nil {
			_ = c.Close()
			t.Fatal("the handshake completed")
		}
		got := s.Decided(t, before, append(connected("distrust.tls13.test"), "tls deny protocol_error distrust.tls13.test"))
		if e := got[len(got)-1]; e.Error == nil || e.Error.Class != "client_rejected_ca" || !strings.Contains(e.Message, "does not trust") {
			t.Errorf("recorded: %q %+v", e.Message, e.Error)
		}
	})
}

func TestTLS20ProtocolByItsBytes(t *testing.T) {
	begin(t)
	s := s1(t)
	const host, wide = "tls20s.good.test", "tls20.good.test"
	s.Expect(t, append(named(host), "conn deny port_not_allowed "+host, "http deny port_not_allowed "+host), func() {
		c, err := s.Dial("tcp", host+":80")
		if err != nil {
			t.Fatal(err)
		}
		check(t, sayTLS(t, s, c, host, get("/", host, "Authorization: Bearer $API_KEY")), 403, "port_not_allowed")
	})
	s.Expect(t, append(named(host), "conn deny scheme_not_allowed "+host, "http deny scheme_not_allowed "+host), func() {
		w := s.Plain(t, host+":443")
		w.Send(t, get("/", host, "Authorization: Bearer $API_KEY"))
		check(t, w.Answer(t, "GET"), 403, "scheme_not_allowed")
	})
	silent(t, host)

	s = attached(t, "tls20")
	t.Run("TLS on 8443 is opened", func(t *testing.T) {
		s.Expect(t, allowed(wide), func() {
			check(t, s.Get(t, "https://"+wide+":8443/", "Authorization: Bearer $API_KEY"), 200, "")
		})
		if q := origin(wide).Requests(); len(q) != 1 || q[0].Header["Authorization"][0] != "Bearer "+real {
			t.Errorf("the origin saw %+v", q)
		}
	})
	t.Run("TLS on 80 is opened too", func(t *testing.T) { // the origin's port 80 has no TLS
		s.Expect(t, allowed(wide), func() {
			check(t, s.Get(t, "https://"+wide+":80/", "Authorization: Bearer $API_KEY"), 502, "upstream_tls")
		})
	})
	t.Run("plain text on 80", func(t *testing.T) {
		s.Expect(t, append(named(wide), "conn deny scheme_not_allowed "+wide, "http deny scheme_not_allowed "+wide), func() {
			check(t, s.Get(t, "http://"+wide+"/", "Authorization: Bearer $API_KEY"), 403, "scheme_not_allowed")
		})
	})
	for _, path := range []string{"tls20s.good.test", "none.invalid"} {
		if bytes.Contains(origin(path).Raw(), []byte(real)) {
			t.Error("the secret went out in plain text")
		}
	}
}

// dribble writes one byte at a time.
type dribble struct{ net.Conn }

func (d dribble) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := d.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// twoRecords sends the first record, a ClientHello, as two.
type twoRecords struct {
	net.Conn
	done bool
}

func (c *twoRecords) Write(p []byte) (int, error) {
	if c.done || p[0] != 22 {
		return c.Conn.Write(p)
	}
	c.done = true
	body := p[5:]
	var out []byte
	for _, part := range [][]byte{body[:50], body[50:]} {
		out = append(append(out, p[0], p[1], p[2], byte(len(part)>>8), byte(len(part))), part...)
	}
	_, err := c.Conn.Write(out)
	return len(p), err
}

func TestTLS21SplitHello(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "tls21.good.test"
	wraps := map[string]func(net.Conn) net.Conn{
		"one byte at a time": func(c net.Conn) net.Conn { return dribble{c} },
		"two records":        func(c net.Conn) net.Conn { return &twoRecords{Conn: c} },
	}
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				host   string
				want   []string
				status int
			}{
				{host, allowed(host), 200},
				{"tls21.evil.test", unnamed("tls21.evil.test", "host_not_allowed"), 403},
			} {
				s.Expect(t, tt.want, func() {
					c, err := s.Dial("tcp", tt.host+":443")
					if err != nil {
						t.Fatal(err)
					}
					if a := sayTLS(t, s, wrap(c), tt.host, get("/", tt.host, "Connection: close")); a.Status != tt.status {
						t.Errorf("%s: %d", tt.host, a.Status)
					}
				})
			}
		})
	}
	t.Run("post-quantum key share", func(t *testing.T) {
		s.Expect(t, allowed(host), func() {
			c, err := s.TLS(host+":443", &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}})
			if err != nil {
				t.Fatal(err)
			}
			w := lab.OnConn(t, c)
			w.Send(t, get("/", host, "Connection: close"))
			check(t, w.Answer(t, "GET"), 200, "")
		})
	})
	t.Run("a hello without end", func(t *testing.T) {
		s.Expect(t, append(named(host), "conn deny protocol_error "+host), func() {
			w := s.Plain(t, host+":443")
			record := append([]byte{22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff}, make([]byte, 0x4000-4)...)
			_, _ = w.Write(record)
			for range 8 {
				_, _ = w.Write(append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 0x4000)...)) // it may be closed by now
			}
			w.Rest(t, 5*time.Second)
		})
	})
	t.Run("half a hello and no more", func(t *testing.T) {
		s.Expect(t, append(named(host), "conn deny protocol_error "+host), func() {
			w := s.Plain(t, host+":443")
			w.Send(t, string(helloFor(t, host)[:60]))
			w.Rest(t, 20*time.Second)
		})
	})
}

func TestTLS23OtherTCP(t *testing.T) {
	l := begin(t)
	l.DNS.Set("db.tls23.test", "60 A "+lab.Raw)
	l.DNS.Set("mail.tls23.test", "60 A "+lab.Raw)
	db := l.Peer(t, lab.Raw+":5432", func(p *lab.Peer, c *net.TCPConn) {
		_, _ = io.WriteString(c, "banner\n") // the client says whether it came
		b, _ := io.ReadAll(c)
		p.Hear(b)
		_, _ = fmt.Fprintf(c, "%d bytes", len(b))
	})
	mail := l.Peer(t, lab.Raw+":587", nil)
	s := attached(t, "tls23")
	events := s.Expect(t, append(named("db.tls23.test"), "conn allow rule_allow db.tls23.test"), func() {
		w := s.Plain(t, "db.tls23.test:5432")
		w.Send(t, "$API_KEY as it is")
		if err := w.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := w.Rest(t, 5*time.Second); got != "banner\n17 bytes" {
			t.Errorf("the client got %q", got)
		}
	})
	if db.Heard() != "$API_KEY as it is" {
		t.Errorf("the server heard %q", db.Heard())
	}
	end := s.Gateway.Await(t, 2, audit.Filter{Conn: events[1].Conn, Kind: "conn"})[1]
	if end.Bytes == nil || end.Bytes.Sent != 17 || end.Bytes.Received != 15 {
		t.Errorf("the end: %+v", end.Bytes)
	}
	s.Expect(t, append(named("mail.tls23.test"), "conn deny port_not_allowed mail.tls23.test"), func() {
		s.Plain(t, "mail.tls23.test:587").Rest(t, 5*time.Second)
	})
	if mail.Accepted() > 0 {
		t.Error("the mail server was reached")
	}
}

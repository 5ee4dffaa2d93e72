//go:build linux

package audit_test

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/test/lab"
)

// TestClientsThatDistrust: a client that was not told of the gateway's authority
// is recorded as such, with what makes it trust.
func TestClientsThatDistrust(t *testing.T) {
	l := begin(t)
	g := l.Gateway(t, lab.GatewayOptions{Policy: one("sandbox \"dev\" {\n  allow \"*.trust.test\" { addresses = DOCS }\n}\n")})
	s := g.Attach(t, "dev")
	clean := []string{"env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent"}
	resolve := func(t *testing.T, host string) string {
		a, err := s.Resolve(host, 1)
		must(t, err)
		return a.String()
	}
	command := func(argv ...string) func(*testing.T, string) {
		return func(t *testing.T, host string) {
			address := resolve(t, host)
			var args []string
			for _, a := range append(clean, argv...) {
				args = append(args, strings.NewReplacer("HOST", host, "ADDRESS", address).Replace(a))
			}
			if r := s.Command(t, args...); r.Code == 0 {
				t.Errorf("%v succeeded: %s", args, r.Stdout)
			} else {
				t.Logf("%s", r.Stderr)
			}
		}
	}
	const rejected = "client_rejected_ca"
	for name, c := range map[string]struct {
		try         func(t *testing.T, host string)
		class, hint string
	}{
		"curl":    {command("curl", "-sS", "--resolve", "HOST:443:ADDRESS", "https://HOST/"), rejected, "CURL_CA_BUNDLE"},
		"python":  {command("python3", "-c", "import socket,ssl; ssl.create_default_context().wrap_socket(socket.create_connection(('ADDRESS',443)), server_hostname='HOST')"), rejected, "REQUESTS_CA_BUNDLE"},
		"node":    {command("node", "-e", "require('tls').connect({host:'ADDRESS',port:443,servername:'HOST'}).on('error',()=>process.exit(1))"), "protocol", "NODE_EXTRA_CA_CERTS"},
		"openssl": {command("openssl", "s_client", "-verify_return_error", "-connect", "ADDRESS:443", "-servername", "HOST"), rejected, "SSL_CERT_FILE"},
		"go": {func(t *testing.T, host string) {
			if c, err := s.TLS(host+":443", &tls.Config{RootCAs: x509.NewCertPool()}); err == nil {
				t.Error("the handshake completed: ", c.Close())
			}
		}, rejected, "Go programs want SSL_CERT_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			host := name + ".trust.test"
			c.try(t, host)
			var got []*audit.Event
			eventually(t, "a record", func() bool {
				got = g.Events(audit.Filter{Kind: string(audit.KindTLS), Host: host})
				return len(got) > 0
			})
			if len(got) != 1 || got[0].Error == nil || got[0].Error.Class != c.class || !strings.Contains(got[0].Message, c.hint) || !strings.Contains(got[0].Message, "sallyport.internal/env.sh") {
				t.Errorf("%d records, the first: %q %+v", len(got), got[0].Message, got[0].Error)
			}
		})
	}
}

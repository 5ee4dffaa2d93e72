//go:build linux

package secrets_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/test/issuer"
	"sallyport/test/lab"
)

// tokenIssuer is a service that issues tokens to the gateway, on the gateway's
// host, and what it was asked.
type tokenIssuer struct {
	url    string
	ca     string // file
	asked  chan *http.Request
	answer func(r *http.Request) (int, string)
}

// newIssuer serves HTTPS on the gateway's host.
func newIssuer(t *testing.T, answer func(r *http.Request) (int, string)) *tokenIssuer {
	t.Helper()
	ca, err := lab.NewAuthority("Issuer")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Leaf("issuer.test", func(c *x509.Certificate) {
		c.IPAddresses, c.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"issuer.test", "login.token.test"}
	})
	if err != nil {
		t.Fatal(err)
	}
	i := &tokenIssuer{ca: filepath.Join(world.lab.Dir, world.lab.Unique("issuer")+".pem"), asked: make(chan *http.Request, 64), answer: answer}
	if err := os.WriteFile(i.ca, ca.PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := world.lab.GW.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i.url = "https://" + l.Addr().String()
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // of what is no form nothing is asked
		code, body := i.answer(r)
		i.asked <- r
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	})}
	go func() { _ = srv.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*leaf}})) }() // ends with Close
	t.Cleanup(func() { _ = srv.Close() })
	return i
}

// next is what the issuer was asked.
func (i *tokenIssuer) next(t *testing.T) *http.Request {
	t.Helper()
	select {
	case r := <-i.asked:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("the issuer was not asked")
		return nil
	}
}

// file writes a file that only root may read.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(world.lab.Dir, world.lab.Unique("file"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issuedPolicy is a policy with one secret of a source, for a host.
func issuedPolicy(host, source string) string {
	return fmt.Sprintf(`
secret "TOKEN" {
  hosts = [%q]
  %s
}
sandbox "s1" {
  allow %q {
    addresses = DOCS
    inject    = ["TOKEN"]
  }
}
`, host, source, host)
}

// TestOAuth2ClientCredentials: the gateway takes the token, the sandbox uses
// its placeholder. SEC-19; for a client that asks the endpoint itself see
// TestOAuthTokenEndpoint of package gateway.
func TestOAuth2ClientCredentials(t *testing.T) {
	const host, token = "api.oauth.test", "REAL-access-4be1970c"
	i := newIssuer(t, func(*http.Request) (int, string) {
		return 200, `{"access_token":"` + token + `","token_type":"Bearer","expires_in":3600}`
	})
	s := start(t, issuedPolicy(host, fmt.Sprintf(`source "oauth2" {
    token_url          = %q
    client_id          = "an:id"
    client_secret_file = %q
    scopes             = ["read", "write"]
    ca_file            = %q
  }`, i.url+"/token", file(t, "REAL-client-55a0\n"), i.ca)), token)
	for range 3 {
		passed(t, s.get(t, "https://"+host+"/", "Authorization: Bearer $TOKEN"))
		if got := header("Authorization")(last(t, host)); got != "Bearer "+token {
			t.Errorf("the origin saw %q", got)
		}
	}
	r := i.next(t)
	user, pass, _ := r.BasicAuth()
	if r.Method != "POST" || r.URL.Path != "/token" || user != "an%3Aid" || pass != "REAL-client-55a0" || r.Form.Get("grant_type") != "client_credentials" || r.Form.Get("scope") != "read write" {
		t.Errorf("the issuer was asked %s %s with %q %q and %v", r.Method, r.URL, user, pass, r.Form)
	}
	if n := len(i.asked); n != 0 {
		t.Errorf("the issuer was asked %d times more", n)
	}
}

// TestOAuth2RefreshToken: a refresh token that the endpoint replaces is
// written in the place of the old one.
func TestOAuth2RefreshToken(t *testing.T) {
	const host, token = "login.oauth.test", "REAL-access-77fd01aa"
	i := newIssuer(t, func(*http.Request) (int, string) {
		return 200, `{"access_token":"` + token + `","expires_in":600,"refresh_token":"REAL-rotated-1"}`
	})
	refresh := file(t, "REAL-refresh-0\n")
	source := fmt.Sprintf(`source "oauth2" {
    token_url          = %q
    client_id          = "id"
    grant              = "refresh_token"
    refresh_token_file = %q
    ca_file            = %q
  }`, i.url+"/token", refresh, i.ca)
	s := start(t, issuedPolicy(host, source), token)
	passed(t, s.get(t, "https://"+host+"/", "Authorization: Bearer $TOKEN"))
	if r := i.next(t); r.Form.Get("grant_type") != "refresh_token" || r.Form.Get("refresh_token") != "REAL-refresh-0" || r.Form.Get("client_id") != "id" {
		t.Errorf("the issuer was asked with %v", r.Form)
	}
	if b, err := os.ReadFile(refresh); err != nil || string(b) != "REAL-rotated-1\n" {
		t.Errorf("the refresh token on disk is %q, %v", b, err)
	}
}

// TestGitHubApp: installation tokens are minted outside. SEC-20.
func TestGitHubApp(t *testing.T) {
	const host, token = "api.github-app.test", "ghs_REALtoken4c0aa91be77d"
	key, text := issuer.Key(t)
	i := newIssuer(t, func(*http.Request) (int, string) {
		return 201, fmt.Sprintf(`{"token":%q,"expires_at":%q}`, token, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
	s := start(t, issuedPolicy(host, fmt.Sprintf(`source "github_app" {
    app_id          = "4711"
    installation_id = 815
    key_file        = %q
    repositories    = ["app"]
    permissions     = { contents = "read" }
    api             = %q
    ca_file         = %q
  }`, file(t, text), i.url, i.ca)), token)
	passed(t, s.get(t, "https://"+host+"/", "Authorization: token $TOKEN"))
	if got := header("Authorization")(last(t, host)); got != "token "+token {
		t.Errorf("the origin saw %q", got)
	}
	r := i.next(t)
	_, c := issuer.Claims(t, key, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if r.URL.Path != "/app/installations/815/access_tokens" || c["iss"] != "4711" || c["exp"].(float64)-c["iat"].(float64) > 600 {
		t.Errorf("asked at %s with %v", r.URL, c)
	}
}

// TestGoogleServiceAccount: the token is signed outside, so that no key is
// needed inside. SEC-20.
func TestGoogleServiceAccount(t *testing.T) {
	const host = "pubsub.google.test"
	key, text := issuer.Key(t)
	account, err := json.Marshal(map[string]string{"client_email": "a@p.iam.gserviceaccount.com", "private_key": text, "private_key_id": "k1"})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, issuedPolicy(host, fmt.Sprintf(`source "gcp_jwt" {
    key_file = %q
    audience = "https://pubsub.google.test/"
  }`, file(t, string(account)))), "no value is known beforehand")
	passed(t, s.get(t, "https://"+host+"/", "Authorization: Bearer $TOKEN"))
	token := strings.TrimPrefix(header("Authorization")(last(t, host)), "Bearer ")
	if _, c := issuer.Claims(t, key, token); c["iss"] != "a@p.iam.gserviceaccount.com" || c["aud"] != "https://pubsub.google.test/" {
		t.Errorf("the origin saw a token that says %v", c)
	}
	for _, got := range s.received {
		if strings.Contains(got, token) {
			t.Error("the sandbox received the token")
		}
	}
}

// TestClientCertificate: the gateway shows a certificate that the sandbox
// does not have, on connections of its own.
func TestClientCertificate(t *testing.T) {
	const host = "mtls.cert.test"
	clients, err := lab.NewAuthority("Clients")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := clients.Leaf("gateway", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	pair := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	roots := x509.NewCertPool()
	roots.AddCert(clients.Cert)
	server, err := world.lab.Origins.CA.Leaf(host, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 8)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := ""
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].DNSNames[0]
		}
		seen <- name
	})}
	l, err := world.lab.Net.Listen("tcp", lab.Spare+":9443")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = srv.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*server}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots}))
	}() // ends with Close
	t.Cleanup(func() { _ = srv.Close() })
	world.lab.DNS.Set(host, "60 A "+lab.Spare)
	s := start(t, fmt.Sprintf(`
secret "CLIENT_CERT" {
  hosts = [%[1]q]
  source "client_cert" { cert_file = %[2]q }
}
sandbox "s1" {
  allow %[1]q {
    ports     = [9443]
    paths     = ["/with/*"]
    addresses = DOCS
    inject    = ["CLIENT_CERT"]
  }
  allow %[1]q {
    ports     = [9443]
    paths     = ["/without/*"]
    addresses = DOCS
  }
}
`, host, file(t, pair)), "no value is known beforehand")
	for _, tt := range []struct{ path, want string }{{"/with/a", "gateway"}, {"/without/a", ""}, {"/with/b", "gateway"}, {"/without/b", ""}} {
		passed(t, s.get(t, "https://"+host+":9443"+tt.path))
		if got := <-seen; got != tt.want {
			t.Errorf("%s was shown %q", tt.path, got)
		}
	}
	refused(t, s.get(t, "https://"+host+":9443/with/c", "Authorization: Bearer $CLIENT_CERT"), "placeholder_place")
}

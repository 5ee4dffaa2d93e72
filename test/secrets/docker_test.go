//go:build linux

package secrets_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/test/lab"
)

// container names of the example.
const (
	registryHost = "registry.acme.test"
	realmHost    = "auth.acme.test"
	evilRealm    = "evil.acme.test"
)

// tokenService issues the tokens that a registry asks for.
type tokenService struct {
	key  *ecdsa.PrivateKey
	cert []byte // DER, of the key
}

func newTokenService(t *testing.T) *tokenService {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tokenService{key, der}
}

// token is one for what is asked of the repository "app".
func (s *tokenService) token(actions ...string) (string, error) {
	part := func(v any) string {
		b, _ := json.Marshal(v) // of maps of strings and numbers
		return base64.RawURLEncoding.EncodeToString(b)
	}
	now := time.Now().Unix()
	head := part(map[string]any{"typ": "JWT", "alg": "ES256", "x5c": []string{base64.StdEncoding.EncodeToString(s.cert)}})
	body := part(map[string]any{"iss": "lab", "aud": registryHost, "sub": "build", "jti": "1", "iat": now, "nbf": now - 60, "exp": now + 300,
		"access": []any{map[string]any{"type": "repository", "name": "app", "actions": actions}}})
	sum := sha256.Sum256([]byte(head + "." + body))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		return "", err
	}
	return head + "." + body + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...)), nil
}

// ServeHTTP takes the user's password and gives a token to pull.
func (s *tokenService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, pass, _ := r.BasicAuth(); user != "build" || pass != registryToken || r.FormValue("service") != registryHost {
		http.Error(w, "wrong password", http.StatusUnauthorized)
		return
	}
	token, err := s.token("pull")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 300}) // the client may have gone
}

// startRegistry runs a registry in the net whose realm is on a host, and
// returns what forwards to it.
func startRegistry(t *testing.T, s *tokenService, realm string) http.Handler {
	t.Helper()
	dir := t.TempDir()
	certs, config := filepath.Join(dir, "certs.pem"), filepath.Join(dir, "config.yml")
	if err := os.WriteFile(certs, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert}), 0o644); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: \"127.0.0.1:5000\", relativeurls: true, secret: lab}\n"+
		"auth: {token: {realm: \"https://%s/token\", service: %s, issuer: lab, rootcertbundle: %s}}\n", filepath.Join(dir, "data"), realm, registryHost, certs)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", config)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second
	if err := world.lab.Net.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	dial := func(context.Context, string, string) (c net.Conn, err error) {
		err = world.lab.Net.Do(func() (err error) { c, err = net.Dial("tcp", "127.0.0.1:5000"); return err })
		return c, err
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		if c, err := dial(t.Context(), "", ""); err == nil {
			_ = c.Close() // it answers
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the registry does not answer\n%s", &stderr)
		}
		time.Sleep(50 * time.Millisecond)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registryHost})
	proxy.Transport = &http.Transport{DialContext: dial, DisableKeepAlives: true}
	fill(t, proxy.Transport, s)
	return proxy
}

// fill pushes an image of one layer.
func fill(t *testing.T, to http.RoundTripper, s *tokenService) {
	t.Helper()
	token, err := s.token("pull", "push")
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, target, media string, body []byte) *http.Response {
		t.Helper()
		req, err := http.NewRequest(method, target, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", media)
		resp, err := to.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body) // for the message alone
		if resp.StatusCode >= 300 {
			t.Fatalf("%s %s: %d %s", method, target, resp.StatusCode, b)
		}
		return resp
	}
	base := "http://" + registryHost + "/v2/app/"
	blob := func(media string, b []byte) map[string]any {
		sum := sha256.Sum256(b)
		digest := "sha256:" + hex.EncodeToString(sum[:])
		at, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		if at, err = at.Parse(send("POST", base+"blobs/uploads/", "", nil).Header.Get("Location")); err != nil {
			t.Fatal(err)
		}
		q := at.Query()
		q.Set("digest", digest)
		at.RawQuery = q.Encode()
		send("PUT", at.String(), "application/octet-stream", b)
		return map[string]any{"mediaType": media, "size": len(b), "digest": digest}
	}
	layer := tarball(t, entry{"greeting", "docker works\n"})
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": blob("application/vnd.docker.container.image.v1+json", []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:`+strings.Repeat("0", 64)+`"]}}`)),
		"layers": []any{blob("application/vnd.docker.image.rootfs.diff.tar.gzip", layer)}})
	if err != nil {
		t.Fatal(err)
	}
	send("PUT", base+"manifests/latest", "application/vnd.docker.distribution.manifest.v2+json", manifest)
}

// TestRegistriesDocker: skopeo logs in to a registry and pulls from it. The
// password goes to the approved token service, the token that it gives to the
// registry; a registry whose realm is elsewhere gets nothing, whether the
// sandbox may go there or not.
func TestRegistriesDocker(t *testing.T) {
	service := newTokenService(t)
	origin(realmHost).SetHandler(service)
	origin(evilRealm).SetHandler(service)
	const script = `set -e
skopeo login --authfile auth.json -u build -p '$REGISTRY_PASSWORD' registry.acme.test
skopeo copy --authfile auth.json docker://registry.acme.test/app:latest dir:image
tar xzOf image/$(python3 -c 'import json; print(json.load(open("image/manifest.json"))["layers"][0]["digest"][7:])') greeting
`
	policy := examplePolicy(t, "docker")
	also := strings.Replace(policy, `  allow "registry.acme.test"`, "  allow \"evil.acme.test\" { addresses = DOCS }\n  allow \"registry.acme.test\"", 1)
	for _, tt := range []struct{ name, realm, policy, refusal string }{
		{"approved", realmHost, policy, ""},
		{"not approved", evilRealm, also, "placeholder_leak"},
		{"not allowed", evilRealm, policy, "host_not_allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			origin(registryHost).SetHandler(startRegistry(t, service, tt.realm))
			got := world.lab.Run(t, lab.RunOptions{Policy: world.lab.MustPolicy(t, tt.policy, registryToken), Sandbox: "s1", Argv: []string{"/bin/sh", "-c", script}})
			decisions := strings.Join(got.Decisions(t), "\n")
			switch {
			case strings.Contains(got.Stdout+got.Stderr, registryToken):
				t.Error("the sandbox has the password")
			case tt.refusal == "" && (got.Code != 0 || !strings.Contains(got.Stdout, "docker works")),
				tt.refusal != "" && (got.Code == 0 || !strings.Contains(decisions, tt.refusal)):
				t.Errorf("exit %d\n%s\n%s\n%s", got.Code, got.Stdout, got.Stderr, decisions)
			}
			if !origin(evilRealm).Silent() {
				t.Error("another realm was asked")
			}
			for _, r := range origin(registryHost).Requests() {
				if text := fmt.Sprint(r.Header); strings.Contains(text, registryToken) || strings.Contains(text, "Basic") {
					t.Errorf("the registry was sent %s", text)
				}
			}
		})
	}
}

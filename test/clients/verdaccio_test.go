//go:build linux

package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// verdaccio serves a registry of npm's ecosystem that holds ws, and makes the
// value of API_KEY the token that it gave to a user.
func verdaccio(t *testing.T, s *site) {
	dir, err := os.MkdirTemp("", "verdaccio")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const config = `storage: ./storage
auth: { htpasswd: { file: ./htpasswd } }
packages: { "**": { access: $authenticated, publish: $authenticated } }
log: { type: stdout, format: json, level: warn }
`
	must(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600))
	socket := filepath.Join(dir, "socket")
	var said bytes.Buffer
	cmd := exec.Command("node", filepath.Join(modules, "verdaccio", "bin", "verdaccio"), "--config", filepath.Join(dir, "config.yaml"), "--listen", "unix:"+socket)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("verdaccio said:\n%s", &said)
		}
	})
	to := &url.URL{Scheme: "http", Host: "registry"}
	over := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(over.CloseIdleConnections)
	s.value = register(t, to, &http.Client{Transport: over})
	front := httptest.NewServer(&httputil.ReverseProxy{Transport: over, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(front.Close)
	at, err := url.Parse(front.URL)
	must(t, err)
	publish(t, at, s.value, dir)
	origin(s.host).SetHandler(&httputil.ReverseProxy{Transport: over, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = s.host // it names its tarballs after it
		r.Out.Header.Set("X-Forwarded-Proto", "https")
	}})
}

// register makes a user, once the registry answers, and returns its token.
func register(t *testing.T, to *url.URL, client *http.Client) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"name": "build", "password": "of-the-lab-alone"})
	must(t, err)
	var last error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequest(http.MethodPut, to.String()+"/-/user/org.couchdb.user:build", bytes.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			last = err
			continue
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		must(t, err)
		var answer struct {
			Token string `json:"token"`
		}
		if err := json.Unmarshal(b, &answer); err != nil || answer.Token == "" {
			t.Fatalf("verdaccio answers %s %s (%v)", resp.Status, b, err)
		}
		return answer.Token
	}
	t.Fatalf("verdaccio does not answer: %v", last)
	return ""
}

// publish puts the package ws into the registry, with npm itself.
func publish(t *testing.T, to *url.URL, token, dir string) {
	t.Helper()
	rc := filepath.Join(dir, "npmrc")
	must(t, os.WriteFile(rc, fmt.Appendf(nil, "registry=%s/\n//%s/:_authToken=%s\nupdate-notifier=false\n", to, to.Host, token), 0o600))
	cmd := exec.Command("npm", "publish", "--userconfig", rc, "--ignore-scripts", "--cache", filepath.Join(dir, "cache"))
	cmd.Dir = filepath.Join(modules, "ws")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("publish ws: %v\n%s", err, out)
	}
}

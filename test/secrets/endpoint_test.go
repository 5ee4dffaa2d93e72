//go:build linux

package secrets_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport/test/lab"
)

// endpointClient asks a token endpoint as any program does that has no
// gateway, uses what it was given, and reads whatever there is to read in the
// folder of the refresh token meanwhile.
const endpointClient = `
import os, sys, threading, time
from oauthlib.oauth2 import BackendApplicationClient
from requests_oauthlib import OAuth2Session
grant, folder = sys.argv[1], sys.argv[2]
seen, done = set(), threading.Event()
def look():
    while not done.is_set():
        for name in os.listdir(folder):
            try:
                with open(os.path.join(folder, name)) as f: seen.add(f.read())
            except OSError: pass
looker = threading.Thread(target=look, daemon=True); looker.start()
url, api, tokens = "https://login.token.test/token", "https://api.token.test/", []
if grant == "client_credentials":
    s = OAuth2Session(client=BackendApplicationClient(client_id="inside"))
    tokens.append(s.fetch_token(url, client_id="inside", client_secret="none", scope=["read"]))
else:
    old = {"access_token": "old", "refresh_token": "$TOKEN", "token_type": "Bearer", "expires_in": -30}
    s = OAuth2Session("inside", token=old, auto_refresh_url=url, auto_refresh_kwargs={"client_id": "inside"}, token_updater=tokens.append)
until = time.time() + 5
while time.time() < until:
    r = s.get(api)
    assert r.status_code == 200, r.text
    time.sleep(0.05)
done.set(); looker.join()
print("tokens", tokens); print("read", sorted(seen)); print("answer", r.text)
`

// runWithHosts is `sallyport run` of a client where the gateway's host knows
// names of its own, as the services that issue tokens have.
func runWithHosts(t *testing.T, policy, names, share string, argv ...string) lab.Result {
	t.Helper()
	dir := filepath.Join(world.lab.Dir, world.lab.Unique("endpoint"))
	file, hosts := filepath.Join(dir, "p.hcl"), filepath.Join(dir, "hosts")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{file: policy, hosts: "127.0.0.1 localhost " + names + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"-m", "sh", "-ec", `mount --bind "$0" /etc/hosts; exec "$@"`, hosts, world.lab.Binary, "run", "--policy", file, "--state", filepath.Join(dir, "state"),
		"--resolver", lab.Resolver + ":53", "--ca-file", world.lab.CAFile, "--sandbox", "s1", "--timeout", "2m", "--share", share, "--"}, argv...)
	cmd := exec.Command("unshare", args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := world.lab.GW.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	return lab.Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// endpointPolicy lets a client ask the token endpoint of a secret, of which what
// says how its token is had.
func endpointPolicy(i *tokenIssuer, what string) string {
	return strings.ReplaceAll(fmt.Sprintf(`
secret "TOKEN" {
  hosts = ["api.token.test", "login.token.test"]
  source "oauth2" {
    token_url = %q
    client_id = "gateway"
    ca_file   = %q
    %s
  }
}
sandbox "s1" {
  allow "api.token.test" {
    addresses = DOCS
    inject    = ["TOKEN"]
  }
  allow "login.token.test" {
    methods   = ["POST"]
    paths     = ["/token"]
    addresses = DOCS
    inject    = ["TOKEN"]
  }
}
`, strings.Replace(i.url, "127.0.0.1", "login.token.test", 1)+"/token", i.ca, what), "DOCS", lab.Documentation)
}

// TestTokenEndpoint: a client that does OAuth 2 itself works as it is, for
// both grants. It is given the placeholder; what it sends reaches no endpoint;
// the gateway refreshes the real token, and the refresh token with it, of
// which the client can read nothing at any time, though it reads the folder in
// which it lies.
func TestTokenEndpoint(t *testing.T) {
	for _, grant := range []string{"client_credentials", "refresh_token"} {
		t.Run(grant, func(t *testing.T) {
			var n atomic.Int64
			i := newIssuer(t, func(r *http.Request) (int, string) {
				k := n.Add(1)
				return 200, fmt.Sprintf(`{"access_token":"REAL-access-%d-9c3f","expires_in":2,"refresh_token":"REAL-refresh-%d-41aa"}`, k, k)
			})
			folder := filepath.Join(world.lab.Dir, world.lab.Unique("folder"))
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			refresh := filepath.Join(folder, "refresh")
			for path, text := range map[string]string{filepath.Join(folder, "notes"): "may be read", filepath.Join(folder, "script.py"): endpointClient} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(refresh, []byte("REAL-refresh-0-41aa\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf(`grant = "refresh_token"
    refresh_token_file = %q`, refresh)
			if grant == "client_credentials" {
				what = fmt.Sprintf(`client_secret_file = %q`, file(t, "REAL-client-55a0\n"))
				if err := os.Remove(refresh); err != nil {
					t.Fatal(err)
				}
			}
			policy := endpointPolicy(i, what)
			before := len(origin("api.token.test").Requests())
			got := runWithHosts(t, policy, "login.token.test", folder, "/usr/bin/python3", filepath.Join(folder, "script.py"), grant, folder)
			if got.Code != 0 || !strings.Contains(got.Stdout, "'$TOKEN'") || !strings.Contains(got.Stdout, "may be read") {
				t.Errorf("exit %d\n%s\n%s", got.Code, got.Stdout, got.Stderr)
			}
			if strings.Contains(got.Stdout+got.Stderr, "REAL-") {
				t.Errorf("the sandbox has seen\n%s\n%s", got.Stdout, got.Stderr)
			}
			if !origin("login.token.test").Silent() {
				t.Error("the client's own request went out")
			}
			used := map[string]bool{}
			for _, r := range origin("api.token.test").Requests()[before:] {
				used[header("Authorization")(r)] = true
			}
			if len(used) < 2 || used["Bearer $TOKEN"] {
				t.Errorf("the origin saw %v", used)
			}
			for k := range n.Load() {
				r := <-i.asked
				if want := fmt.Sprintf("REAL-refresh-%d-41aa", k); r.Form.Get("grant_type") != grant || grant == "refresh_token" && r.Form.Get("refresh_token") != want {
					t.Errorf("request %d of the gateway: %v", k, r.Form)
				}
			}
			if b, err := os.ReadFile(refresh); grant == "refresh_token" && (err != nil || string(b) != fmt.Sprintf("REAL-refresh-%d-41aa\n", n.Load())) {
				t.Errorf("the file holds %q, %v", b, err)
			}
		})
	}
}

//go:build linux

package secrets_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport/test/lab"
)

const examples = "../../examples/registries"

// registry is one example, tried with its client.
type registry struct {
	folder  string
	host    string            // where it is
	auth    string            // what the origin takes
	files   map[string]string // of the example → where it goes in the home
	extra   map[string]string // further files in the home
	env     []string
	command string // of sh, in the home
	prints  string
	handler func(t *testing.T) http.Handler
}

const registryToken = "REAL-registry-9c417e20aa"

func registries(t *testing.T) []registry {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return []registry{
		{folder: "npm", host: "npm.acme.test", auth: "Bearer " + registryToken, files: map[string]string{"npmrc": ".npmrc"},
			extra: map[string]string{"package.json": `{"name":"app","version":"1.0.0"}`}, handler: npmRegistry,
			command: "npm install --no-audit --no-fund --no-update-notifier --ignore-scripts @acme/pkg && cat node_modules/@acme/pkg/index.js", prints: "module.exports = 'npm works'"},
		{folder: "pip", host: "pypi.acme.test", auth: basicAuth("build:" + registryToken), files: map[string]string{"netrc": ".netrc"}, handler: pipIndex,
			command: "pip install --no-cache-dir --disable-pip-version-check --no-deps --target out --index-url https://pypi.acme.test/simple/ acme-pkg && cat out/acme_pkg.py", prints: "print('pip works')"},
		{folder: "pip", host: "pypi.acme.test", auth: basicAuth("build:" + registryToken), files: map[string]string{"netrc": ".netrc"}, handler: pipIndex,
			command: `python3 -c 'import requests; print(requests.get("https://pypi.acme.test/simple/acme-pkg/").status_code)'`, prints: "200"},
		{folder: "cargo", host: "cargo.acme.test", auth: registryToken, files: map[string]string{"config.toml": ".cargo/config.toml"}, handler: cargoRegistry,
			extra:   map[string]string{"Cargo.toml": "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nacme-lib = { version = \"1\", registry = \"acme\" }\n", "src/lib.rs": ""},
			env:     []string{"RUSTUP_HOME=" + filepath.Join(home, ".rustup")},
			command: `CARGO_HOME="$HOME/.cargo" cargo fetch && cat "$HOME"/.cargo/registry/src/*/acme-lib-1.0.0/src/lib.rs`, prints: "pub fn cargo_works() {}"},
		{folder: "go", host: "go.acme.test", auth: basicAuth("build:" + registryToken), files: map[string]string{"netrc": ".netrc"}, handler: goProxy,
			env:     []string{"GOPROXY=https://go.acme.test", "GONOSUMDB=acme.test", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local"},
			command: `GOMODCACHE="$HOME/mod" GOENV=off go mod download acme.test/lib@v1.0.0 && cat mod/acme.test/lib@v1.0.0/lib.go`, prints: "package lib // go works"},
		{folder: "git", host: "git.acme.test", auth: basicAuth("x-access-token:" + registryToken), files: map[string]string{"gitconfig": "example.gitconfig"}, handler: gitServer,
			command: `GIT_CONFIG_GLOBAL="$HOME/example.gitconfig" GIT_TERMINAL_PROMPT=0 git clone -q https://git.acme.test/acme/app && cat app/file`, prints: "git works"},
	}
}

// examplePolicy is an example's policy for the hosts of the lab.
func examplePolicy(t *testing.T, folder string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(examples, folder, "policy.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	text := localised(string(b))
	text = regexp.MustCompile(`path = "/etc/[^"]*"`).ReplaceAllString(text, `path = "SECRETFILE"`)
	text = regexp.MustCompile(`(?m)^(\s+)(access\s+= "read".*)$`).ReplaceAllString(text, "$1$2\n${1}addresses = DOCS")
	text = regexp.MustCompile(`(?m)\{ (access = "read") \}$`).ReplaceAllString(text, "{\n    $1\n    addresses = DOCS\n  }")
	return strings.Replace(text, `sandbox "build"`, `sandbox "s1"`, 1)
}

// localised has the lab's names in the place of those for documentation.
func localised(text string) string { return strings.ReplaceAll(text, "acme.example", "acme.test") }

// TestRegistries: each example works with its client, which never sees the
// token.
func TestRegistries(t *testing.T) {
	for _, r := range registries(t) {
		t.Run(r.folder, func(t *testing.T) { r.try(t) })
	}
}

func (r registry) try(t *testing.T) {
	handler := r.handler(t)
	var wrong atomic.Int64
	origin(r.host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != r.auth {
			wrong.Add(1)
			w.Header().Set("Www-Authenticate", `Basic realm="private"`)
			http.Error(w, "a credential is needed", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	var script strings.Builder
	script.WriteString("set -e\nunset PIP_INDEX_URL GIT_CONFIG_COUNT GOINSECURE GOPRIVATE GONOPROXY; mkdir -p .cargo src\n")
	files := map[string]string{}
	for from, to := range r.files {
		b, err := os.ReadFile(filepath.Join(examples, r.folder, from))
		if err != nil {
			t.Fatal(err)
		}
		files[to] = localised(string(b))
	}
	for to, text := range r.extra {
		files[to] = text
	}
	for to, text := range files {
		// netrc takes no variables: what stands there is the placeholder itself.
		fmt.Fprintf(&script, "printf %%s %s | base64 -d > %s; chmod 600 %s\n", base64.StdEncoding.EncodeToString([]byte(text)), to, to)
	}
	script.WriteString(r.command + "\n")
	got := world.lab.Run(t, lab.RunOptions{Policy: world.lab.MustPolicy(t, examplePolicy(t, r.folder), registryToken), Sandbox: "s1",
		Argv: []string{"/bin/sh", "-c", script.String()}, Env: r.env})
	if got.Code != 0 || !strings.Contains(got.Stdout, r.prints) {
		t.Errorf("exit %d, %d requests without the credential\n%s\n%s\n%s", got.Code, wrong.Load(), got.Stdout, got.Stderr, strings.Join(got.Decisions(t), "\n"))
	}
	if strings.Contains(got.Stdout+got.Stderr, registryToken) {
		t.Error("the sandbox has the token")
	}
}

// gitServer serves a repository over smart HTTP.
func gitServer(t *testing.T) http.Handler {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "work"}, {"-C", "work", "add", "file"},
		{"-C", "work", "-c", "user.name=a", "-c", "user.email=a@acme.test", "commit", "-q", "-m", "first"},
		{"clone", "-q", "--bare", "work", "acme/app"},
	} {
		if args[len(args)-1] == "file" {
			if err := os.WriteFile(filepath.Join(dir, "work", "file"), []byte("git works\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return gitBackend(dir)
}

//go:build linux

package corpus_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/test/lab"
)

func clientsPolicy() map[string]string {
	return map[string]string{"clients.hcl": `
sandbox "cli03" {
  allow "deb.cli03.test" {
    schemes   = ["http"]
    access    = "read"
    addresses = DOCS
  }
}
sandbox "cli05" {
  mode = "report"
  allow "cli05.good.test" {
    inject    = ["API_KEY"]
    addresses = DOCS
  }
}
`}
}

// registryAuth lets requests with the real credential pass to h.
func registryAuth(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pass, _ := r.BasicAuth()
		if pass != real && r.Header.Get("Authorization") != "Bearer "+real {
			w.Header().Set("Www-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func TestCLI01Git(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "cli01.good.test"
	root := t.TempDir()
	git := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	git(root, "init", "-q", "--bare", "-b", "main", "r.git")
	git(root+"/r.git", "config", "http.receivepack", "true")
	core := strings.TrimSpace(git(root, "--exec-path"))
	origin(host).SetHandler(registryAuth(&cgi.Handler{Path: filepath.Join(core, "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=ci"}, InheritEnv: []string{"PATH"}}))
	work := t.TempDir()
	url := "https://x-access-token:$API_KEY@" + host + "/r.git"
	inside := func(args ...string) {
		t.Helper()
		argv := append([]string{"git", "-c", "credential.helper=", "-c", "http.postBuffer=65536", "-c", "user.name=a", "-c", "user.email=a@a.test"}, args...)
		if r := s.Command(t, argv...); r.Code != 0 {
			t.Fatalf("git %q exits %d: %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	inside("clone", "-q", url, work+"/a")
	blob := make([]byte, 12<<20) // random enough not to be packed
	state := uint64(88172645463325252)
	for i := range blob {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		blob[i] = byte(state)
	}
	if err := os.WriteFile(work+"/a/blob", blob, 0o644); err != nil {
		t.Fatal(err)
	}
	inside("-C", work+"/a", "checkout", "-q", "-b", "main")
	inside("-C", work+"/a", "add", "blob")
	inside("-C", work+"/a", "commit", "-q", "-m", "a large pack")
	inside("-C", work+"/a", "push", "-q", "origin", "main")
	inside("clone", "-q", url, work+"/b")
	if got, err := os.ReadFile(work + "/b/blob"); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("what came back is not what was pushed: %d bytes, %v", len(got), err)
	}
	if config, err := os.ReadFile(work + "/b/.git/config"); err != nil || bytes.Contains(config, []byte(real)) {
		t.Errorf("the clone's configuration: %v", err)
	}
}

// wheel is a Python package without code.
func wheel(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	for file, text := range map[string]string{
		name + ".py":      "x = 1\n",
		info + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n",
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "RECORD":   "",
	} {
		w, err := z.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tarball is an npm package without code.
func tarball(t *testing.T, manifest string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"package/package.json": manifest, "package/index.js": "module.exports = 1\n"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCLI02Pip(t *testing.T) {
	begin(t)
	s := s1(t)
	const host, files = "pip.cli02.good.test", "files.cli02.other.test"
	body := wheel(t, "labpkg")
	origin(host).SetHandler(registryAuth(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/simple/labpkg/" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="https://%s/labpkg-1.0-py3-none-any.whl">labpkg-1.0-py3-none-any.whl</a>`, files)
	})))
	origin(files).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	dir := t.TempDir()
	r := s.Command(t, "python3", "-m", "pip", "--disable-pip-version-check", "download", "-q", "--no-cache-dir", "--no-deps", "-d", dir,
		"--index-url", "https://u:$API_KEY@"+host+"/simple", "--cert", s.TrustFile(t), "labpkg")
	if got, err := os.ReadFile(filepath.Join(dir, "labpkg-1.0-py3-none-any.whl")); r.Code != 0 || err != nil || !bytes.Equal(got, body) {
		t.Errorf("pip exits %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, q := range origin(files).Requests() {
		if v := q.Header["Authorization"]; len(v) > 0 {
			t.Errorf("the file host saw %q", v)
		}
	}
}

func TestCLI02Npm(t *testing.T) {
	begin(t)
	s := s1(t)
	const host, files = "npm.cli02.good.test", "tarballs.cli02.other.test"
	manifest := map[string]any{"name": "@scope/labpkg", "version": "1.0.0", "main": "index.js"}
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	body := tarball(t, string(text))
	short, long := sha1.Sum(body), sha512.Sum512(body)
	manifest["dist"] = map[string]string{"tarball": "https://" + files + "/labpkg-1.0.0.tgz", "shasum": hex.EncodeToString(short[:]),
		"integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:])}
	origin(host).SetHandler(registryAuth(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.RequestURI, "/@scope%2flabpkg") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "@scope/labpkg", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": manifest}})
	})))
	origin(files).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	dir := t.TempDir()
	rc := fmt.Sprintf("registry=https://%s/\n//%s/:_authToken=$API_KEY\ncafile=%s\nfund=false\naudit=false\nupdate-notifier=false\ncache=%s/cache\n", host, host, s.TrustFile(t), dir)
	for name, text := range map[string]string{".npmrc": rc, "package.json": `{"name":"app","version":"1.0.0"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := s.Command(t, "npm", "--prefix", dir, "--userconfig", filepath.Join(dir, ".npmrc"), "install", "@scope/labpkg")
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@scope/labpkg/index.js")); r.Code != 0 || err != nil {
		t.Errorf("npm exits %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, q := range origin(files).Requests() {
		if v := q.Header["Authorization"]; len(v) > 0 {
			t.Errorf("the tarball host saw %q", v)
		}
	}
	t.Run("a denied helper host fails fast", func(t *testing.T) {
		r := s.Command(t, "npm", "--prefix", dir, "--registry", "https://npm.cli02.evil.test/", "--fetch-retries=0", "--cafile", s.TrustFile(t), "view", "left")
		if r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "host_not_allowed") || r.Took > 20*time.Second {
			t.Errorf("npm exits %d after %v: %s%s", r.Code, r.Took, r.Stdout, r.Stderr)
		}
	})
}

func TestCLI02Go(t *testing.T) {
	begin(t)
	s := s1(t)
	const host = "go.cli02.good.test"
	var z bytes.Buffer
	w := zip.NewWriter(&z)
	mod := "module labmod.test/m\n\ngo 1.21\n"
	for name, text := range map[string]string{"go.mod": mod, "m.go": "package m\n"} {
		f, err := w.Create("labmod.test/m@v1.0.0/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	origin(host).SetHandler(registryAuth(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/labmod.test/m/@v/v1.0.0.info":
			_, _ = w.Write([]byte(`{"Version":"v1.0.0"}`))
		case "/labmod.test/m/@v/v1.0.0.mod":
			_, _ = w.Write([]byte(mod))
		case "/labmod.test/m/@v/v1.0.0.zip":
			_, _ = w.Write(z.Bytes())
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})))
	cache := t.TempDir()
	r := s.Command(t, "env", "GOPROXY=https://u:$API_KEY@"+host, "GONOSUMDB=*", "GOFLAGS=-modcacherw", "GOMODCACHE="+cache, "GOWORK=off", "GOTOOLCHAIN=local",
		"sh", "-c", "cd "+cache+" && go mod download -json labmod.test/m@v1.0.0")
	if r.Code != 0 || !strings.Contains(r.Stdout, `"Version": "v1.0.0"`) {
		t.Errorf("go exits %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

func TestCLI03PlainMirrors(t *testing.T) {
	begin(t)
	s := attached(t, "cli03")
	const host = "deb.cli03.test"
	packages := strings.Repeat("Package: lab\nVersion: 1.0\nArchitecture: all\nFilename: ./lab.deb\nSize: 1\nSHA256: 0\n\n", 2000)
	modified := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Clean(r.URL.Path) {
		case "/Packages":
			http.ServeContent(w, r, "Packages", modified, strings.NewReader(packages))
		case "/moved":
			http.Redirect(w, r, "http://mirror2.cli03.test/Packages", http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	dir := t.TempDir()
	part := filepath.Join(dir, "Packages")
	if err := os.WriteFile(part, []byte(packages[:1000]), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := s.Command(t, "curl", "-sS", "-C", "-", "-o", part, "-w", "%{http_code}", "http://"+host+"/Packages"); r.Stdout != "206" {
		t.Errorf("to resume: %q %s", r.Stdout, r.Stderr)
	}
	if b, err := os.ReadFile(part); err != nil || string(b) != packages {
		t.Errorf("the whole is %d bytes, %v", len(b), err)
	}
	if r := s.Command(t, "curl", "-sS", "-z", "Sat, 03 Jan 2026 00:00:00 GMT", "-w", "%{http_code}", "http://"+host+"/Packages"); r.Stdout != "304" {
		t.Errorf("not modified: %q %s", r.Stdout, r.Stderr)
	}
	want := append(named(host), allowed(host)...) // curl asks for A and AAAA
	want = append(append(want, "dns deny host_not_allowed mirror2.cli03.test"), unnamed("mirror2.cli03.test", "host_not_allowed")...)
	s.Expect(t, want, func() {
		r := s.Command(t, "curl", "-sS", "-L", "-w", "%{http_code}", "http://"+host+"/moved")
		if !strings.HasSuffix(r.Stdout, "403") || !strings.Contains(r.Stdout, "host_not_allowed") {
			t.Errorf("to another mirror: %q %s", r.Stdout, r.Stderr)
		}
	})
	silent(t, "mirror2.cli03.test")
	t.Run("apt-get", func(t *testing.T) {
		for _, d := range []string{"lists/partial", "cache/archives/partial", "etc/preferences.d"} {
			if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		list := filepath.Join(dir, "sources.list")
		if err := os.WriteFile(list, []byte("deb [trusted=yes] http://"+host+"/ ./\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		r := s.Command(t, "apt-get", "-o", "Dir::Etc::SourceList="+list, "-o", "Dir::Etc::SourceParts=-", "-o", "Dir::State::Lists="+dir+"/lists",
			"-o", "Dir::Cache="+dir+"/cache", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none", "update")
		if r.Code != 0 || !strings.Contains(r.Stdout, host) {
			t.Errorf("apt-get exits %d: %s%s", r.Code, r.Stdout, r.Stderr)
		}
	})
}

func TestCLI05ReportMode(t *testing.T) {
	l := begin(t)
	s := attached(t, "cli05")
	for _, name := range []string{"login", "telemetry"} {
		l.DNS.Set(name+".cli05.test", "60 A 8.8.8.8")
	}
	l.DNS.Set("inner.cli05.test", "60 A 10.0.0.5")
	check(t, s.Get(t, "https://cli05.good.test/", "Authorization: Bearer $API_KEY"), 200, "")
	for _, name := range []string{"login", "telemetry"} {
		host := name + ".cli05.test"
		before := s.Mark()
		check(t, s.Get(t, "https://"+host+"/"), 200, "")
		got := s.Decided(t, before, []string{"dns allow report_mode " + host, "conn allow report_mode " + host, "http allow report_mode " + host})
		if w := got[2].Would; w == nil || w.Reason != "host_not_allowed" {
			t.Errorf("would: %+v", w)
		}
	}
	if a := s.Get(t, "https://login.cli05.test/", "Authorization: Bearer $API_KEY"); a.Status != 403 || a.Reason() != "placeholder_leak" {
		t.Errorf("a placeholder to an unlisted host: %d %s", a.Status, a.Body)
	}
	if a := s.Get(t, "https://inner.cli05.test/"); a.Status != 403 || a.Reason() != "resolves_private" {
		t.Errorf("a private address: %d %s", a.Status, a.Body)
	}
	if bytes.Contains(origin("login.cli05.test").Raw(), []byte(real)) {
		t.Error("the secret went to an unlisted host")
	}
}

func TestTLS15Java(t *testing.T) {
	l := begin(t)
	dir := t.TempDir()
	const host = "tls15.good.test"
	source := `import java.net.*; import java.net.http.*;
public class Single { public static void main(String[] a) throws Exception {
  HttpURLConnection c = (HttpURLConnection) new URI("https://` + host + `/old").toURL().openConnection();
  System.out.println(c.getResponseCode());
  HttpResponse<String> r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(new URI("https://` + host + `/new")).build(), HttpResponse.BodyHandlers.ofString());
  System.out.println(r.statusCode() + " " + r.version());
} }`
	if err := os.WriteFile(filepath.Join(dir, "Single.java"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	r := l.Run(t, lab.RunOptions{Policy: l.MustPolicy(t, p0, real), Flags: []string{"--share", dir}, Argv: []string{"java", filepath.Join(dir, "Single.java")}})
	if r.Code != 0 || !strings.Contains(r.Stdout, "200\n200 HTTP_2\n") {
		t.Errorf("java exits %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

func TestTLS16Runtimes(t *testing.T) {
	l := begin(t)
	const host = "tls16.good.test"
	for name, argv := range map[string][]string{
		"curl":            {"curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://" + host + "/"},
		"wget":            {"wget", "-q", "-O", "/dev/null", "--server-response", "https://" + host + "/"},
		"Python urllib":   {"python3", "-c", "import urllib.request as u; print(u.urlopen('https://" + host + "/').status)"},
		"Python requests": {"python3", "-c", "import requests; print(requests.get('https://" + host + "/').status_code)"},
		"Node fetch":      {"node", "-e", "fetch('https://" + host + "/').then(r => console.log(r.status))"},
		"OpenSSL":         {"sh", "-c", "printf 'GET / HTTP/1.1\\r\\nHost: " + host + "\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -connect " + host + ":443 -servername " + host},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.Run(t, lab.RunOptions{Policy: l.MustPolicy(t, p0, real), Argv: argv})
			if r.Code != 0 || !strings.Contains(r.Stdout+r.Stderr, "200") {
				t.Errorf("%q exits %d: %s%s", argv, r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestTLS14LostVariables: children that were given no environment trust the
// gateway's CA through the system's bundle.
func TestTLS14LostVariables(t *testing.T) {
	l := begin(t)
	const host = "tls14.good.test"
	for name, argv := range map[string][]string{
		"curl": {"env", "-i", "/usr/bin/curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "https://" + host + "/"},
		"wget": {"env", "-i", "/usr/bin/wget", "-q", "-O", "/dev/null", "--server-response", "https://" + host + "/"},
		"Python": {"env", "-i", "/usr/bin/python3", "-c", "import ssl, urllib.request as u; print(u.urlopen('https://" + host +
			"/', context=ssl.create_default_context(cafile='/etc/ssl/certs/ca-certificates.crt')).status)"},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.Run(t, lab.RunOptions{Policy: l.MustPolicy(t, p0, real), Argv: argv})
			if r.Code != 0 || !strings.Contains(r.Stdout+r.Stderr, "200") {
				t.Errorf("%q exits %d: %s%s", argv, r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

//go:build linux

package secrets_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// entry is a file of an archive.
type entry struct{ name, text string }

// tarball is a gzip of a tar.
func tarball(t *testing.T, files ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
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

// zipped is a zip.
func zipped(t *testing.T, files ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// static serves bodies by path.
func static(bodies map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := bodies[r.URL.EscapedPath()]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/simple/") {
			w.Header().Set("Content-Type", "text/html")
		}
		_, _ = w.Write(b)
	})
}

func npmRegistry(t *testing.T) http.Handler {
	tgz := tarball(t, entry{"package/package.json", `{"name":"@acme/pkg","version":"1.0.0","main":"index.js"}`}, entry{"package/index.js", "module.exports = 'npm works'\n"})
	sum := sha512.Sum512(tgz)
	doc, err := json.Marshal(map[string]any{"name": "@acme/pkg", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": map[string]any{
		"name": "@acme/pkg", "version": "1.0.0", "dist": map[string]string{"tarball": "https://npm.acme.test/@acme/pkg/-/pkg-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}}})
	if err != nil {
		t.Fatal(err)
	}
	return static(map[string][]byte{"/@acme%2fpkg": doc, "/@acme/pkg/-/pkg-1.0.0.tgz": tgz})
}

func pipIndex(t *testing.T) http.Handler {
	const info = "acme_pkg-1.0.dist-info/"
	wheel := zipped(t, entry{"acme_pkg.py", "print('pip works')\n"}, entry{info + "METADATA", "Metadata-Version: 2.1\nName: acme-pkg\nVersion: 1.0\n"},
		entry{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, entry{info + "RECORD", "acme_pkg.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"})
	return static(map[string][]byte{
		"/simple/acme-pkg/":                    []byte(`<a href="/files/acme_pkg-1.0-py3-none-any.whl">acme_pkg-1.0-py3-none-any.whl</a>`),
		"/files/acme_pkg-1.0-py3-none-any.whl": wheel,
	})
}

func cargoRegistry(t *testing.T) http.Handler {
	crate := tarball(t, entry{"acme-lib-1.0.0/Cargo.toml", "[package]\nname = \"acme-lib\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"}, entry{"acme-lib-1.0.0/src/lib.rs", "pub fn cargo_works() {}\n"})
	sum := sha256.Sum256(crate)
	return static(map[string][]byte{
		"/index/config.json":                     []byte(`{"dl":"https://cargo.acme.test/api/v1/crates","api":"https://cargo.acme.test","auth-required":true}`),
		"/index/ac/me/acme-lib":                  fmt.Appendf(nil, `{"name":"acme-lib","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}`+"\n", hex.EncodeToString(sum[:])),
		"/api/v1/crates/acme-lib/1.0.0/download": crate,
	})
}

func goProxy(t *testing.T) http.Handler {
	const at = "acme.test/lib@v1.0.0/"
	mod := "module acme.test/lib\n\ngo 1.21\n"
	return static(map[string][]byte{
		"/acme.test/lib/@v/list":        []byte("v1.0.0\n"),
		"/acme.test/lib/@v/v1.0.0.info": []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`),
		"/acme.test/lib/@v/v1.0.0.mod":  []byte(mod),
		"/acme.test/lib/@v/v1.0.0.zip":  zipped(t, entry{at + "go.mod", mod}, entry{at + "lib.go", "package lib // go works\n"}),
	})
}

// gitBackend is git's own server for a folder of repositories.
func gitBackend(dir string) http.Handler {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return http.NotFoundHandler() // the client then says so
	}
	return &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
}

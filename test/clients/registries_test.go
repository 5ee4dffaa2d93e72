//go:build linux

package clients_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/goproxytest"
)

// registries are the package managers, against registries of this machine.
// What they are told is which registry, as on any network.
func registries() []client {
	home, _ := os.UserHomeDir() // "" finds no toolchain, which the client says
	return []client{
		{name: "pip", serve: pipIndex, auth: basic, prints: []string{"pip works"}, refusal: "No matching distribution found for acme-lib", script: `
pip="/usr/bin/python3 -m pip --disable-pip-version-check --no-cache-dir"
$pip install -q --no-deps --target out --index-url "https://build:$API_KEY@HOST/simple/" acme-lib
PYTHONPATH=out /usr/bin/python3 -c 'import acme_lib'
fails $pip download -q --no-deps --index-url https://BLOCKED/simple/ acme-lib`},
		{name: "npm", serve: verdaccio, prints: []string{"+ @acme/lib@1.0.0", "installed npm works with ws 8.23.0"}, refusal: "host_not_allowed", files: map[string]string{
			".npmrc":           "registry=https://HOST/\n//HOST/:_authToken=${API_KEY}\naudit=false\nfund=false\nupdate-notifier=false\n",
			"lib/package.json": `{"name":"@acme/lib","version":"1.0.0","dependencies":{"ws":"8.23.0"}}`,
			"lib/index.js":     "module.exports = 'npm works with ws ' + require('ws/package.json').version\n",
			"app/package.json": `{"name":"app","version":"1.0.0"}`,
		}, script: `
(cd lib && npm publish)
cd app && cp ../.npmrc . && npm install --no-progress @acme/lib && node -e 'console.log("installed", require("@acme/lib"))'
fails npm view --registry https://BLOCKED/ --fetch-retries 0 ws`},
		{name: "go", serve: goProxy, auth: basic, prints: []string{"acme.test/lib\n", "go works"}, refusal: "server response: sallyport: host_not_allowed", env: []string{"GONOSUMDB=*", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local", "GOENV=off"},
			files: map[string]string{"app/go.mod": "module app\n\ngo 1.21\n", "app/main.go": "package main\n\nimport \"acme.test/lib\"\n\nfunc main() { println(lib.Text) }\n"}, script: `
cd app
export GOPROXY="https://build:$API_KEY@HOST"
go get acme.test/lib@v1.0.0
go list -deps . | grep acme
cat "$(go list -m -f '{{.Dir}}' acme.test/lib)/lib.go"
fails env GOPROXY=https://BLOCKED go get acme.test/other@v1.0.0`},
		{name: "cargo", root: true, serve: crates, auth: func(value string) string { return value }, prints: []string{"cargo works"}, refusal: "host_not_allowed",
			env: []string{"RUSTUP_HOME=" + filepath.Join(home, ".rustup")},
			files: map[string]string{
				"Cargo.toml":         "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nacme-lib = { version = \"1\", registry = \"acme\" }\n",
				"src/main.rs":        "fn main() { println!(\"{}\", acme_lib::text()) }\n",
				".cargo/config.toml": "[registry]\nglobal-credential-providers = [\"cargo:token\"]\n[registries.acme]\nindex = \"sparse+https://HOST/index/\"\n[registries.other]\nindex = \"sparse+https://BLOCKED/index/\"\n",
			}, script: `
export CARGO_HOME="$HOME/.cargo" CARGO_REGISTRIES_ACME_TOKEN="$API_KEY"
cargo run -q
sed -i 's/registry = "acme"/registry = "other"/' Cargo.toml
fails cargo fetch`},
		{name: "apt", serve: debs, auth: basic, prints: []string{"apt works"}, refusal: "403  Forbidden", script: `
mkdir -p apt/lists/partial apt/cache/archives/partial apt/etc
umask 077
echo "machine https://HOST login build password $API_KEY" >apt/auth.conf
umask 022
get() {
	echo "deb [trusted=yes] https://$1/ ./" >apt/sources.list; shift
	apt-get -qq -o Dir::Etc="$HOME/apt/etc" -o Dir::Etc::SourceList="$HOME/apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::Etc::netrc="$HOME/apt/auth.conf" \
		-o Dir::State::Lists="$HOME/apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$HOME/apt/cache" -o Acquire::Languages=none -o Acquire::Retries=0 "$@"
}
get HOST update
get HOST download acme-lib
dpkg-deb -x acme-lib_*.deb out && out/usr/bin/acme
fails get BLOCKED update`},
	}
}

// entry is a file of an archive.
type entry struct{ name, text string }

// tarball is a gzip of a tar.
func tarball(t *testing.T, files ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		must(t, w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}))
		_, err := w.Write([]byte(f.text))
		must(t, err)
	}
	must(t, w.Close())
	must(t, z.Close())
	return b.Bytes()
}

// static serves bodies by path to those who have the key, however they show it.
func static(s *site, bodies map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		if got != basic(s.value) && got != s.value {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, "a credential is needed", http.StatusUnauthorized)
			return
		}
		b, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/") {
			w.Header().Set("Content-Type", "text/html")
		}
		_, _ = w.Write(b)
	})
}

// pipIndex is a simple index with a wheel.
func pipIndex(t *testing.T, s *site) {
	const info, file = "acme_lib-1.0.dist-info/", "acme_lib-1.0-py3-none-any.whl"
	wheel := zipped(t, entry{"acme_lib.py", "print('pip works')\n"}, entry{info + "METADATA", "Metadata-Version: 2.1\nName: acme-lib\nVersion: 1.0\n"},
		entry{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		entry{info + "RECORD", "acme_lib.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"})
	sum := sha256.Sum256(wheel)
	origin(s.host).SetHandler(static(s, map[string][]byte{
		"/simple/acme-lib/": fmt.Appendf(nil, `<a href="/files/%[1]s#sha256=%[2]s">%[1]s</a>`, file, hex.EncodeToString(sum[:])),
		"/files/" + file:    wheel,
	}))
}

// crates is a sparse registry with a crate.
func crates(t *testing.T, s *site) {
	crate := tarball(t, entry{"acme-lib-1.0.0/Cargo.toml", "[package]\nname = \"acme-lib\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"},
		entry{"acme-lib-1.0.0/src/lib.rs", "pub fn text() -> &'static str { \"cargo works\" }\n"})
	sum := sha256.Sum256(crate)
	origin(s.host).SetHandler(static(s, map[string][]byte{
		"/index/config.json":              fmt.Appendf(nil, `{"dl":"https://%[1]s/crates","api":"https://%[1]s","auth-required":true}`, s.host),
		"/index/ac/me/acme-lib":           fmt.Appendf(nil, `{"name":"acme-lib","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}`+"\n", hex.EncodeToString(sum[:])),
		"/crates/acme-lib/1.0.0/download": crate,
	}))
}

// goProxy is the module proxy with which Go's own commands are tested.
func goProxy(t *testing.T, s *site) {
	dir := filepath.Join(s.dir, "modules")
	must(t, os.Mkdir(dir, 0o755))
	const module = "module acme.test/lib@v1.0.0\n\n-- .mod --\nmodule acme.test/lib\n\ngo 1.21\n-- .info --\n{\"Version\":\"v1.0.0\"}\n-- go.mod --\nmodule acme.test/lib\n\ngo 1.21\n-- lib.go --\npackage lib\n\nconst Text = \"go works\"\n"
	must(t, os.WriteFile(filepath.Join(dir, "acme.test_lib_v1.0.0.txt"), []byte(module), 0o644))
	p := goproxytest.NewTestServer(t, dir, "")
	to, err := url.Parse(p.URL)
	must(t, err)
	origin(s.host).SetHandler(withKey(s, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}))
}

// debs is a repository of Debian packages, made with Debian's own tools.
func debs(t *testing.T, s *site) {
	const make = `set -e
mkdir -p pkg/DEBIAN pkg/usr/bin repo
printf '#!/bin/sh\necho apt works\n' >pkg/usr/bin/acme; chmod 755 pkg/usr/bin/acme
printf 'Package: acme-lib\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@clients.test>\nDescription: lab\n' >pkg/DEBIAN/control
dpkg-deb --root-owner-group -b pkg repo/acme-lib_1.0_all.deb >/dev/null
cd repo && dpkg-scanpackages -m . 2>/dev/null >Packages`
	cmd := exec.Command("sh", "-c", make)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	origin(s.host).SetHandler(withKey(s, http.FileServer(http.Dir(filepath.Join(s.dir, "repo")))))
}

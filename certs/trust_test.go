package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"software.sslmate.com/src/go-pkcs12"
)

// testSystem is a system bundle of two roots with comments and a block that
// is no certificate.
func testSystem(t *testing.T) (pem []byte, roots []*x509.Certificate) {
	t.Helper()
	one, two := testCA(t), testCA(t)
	pem = slices.Concat([]byte("# one\n"), one.PEM(), []byte("\n# two\n-----BEGIN X-----\nAAAA\n-----END X-----\n"), two.PEM())
	return pem, []*x509.Certificate{one.Certificate(), two.Certificate()}
}

func TestTLS13BundleExtendsTheSystems(t *testing.T) {
	system, roots := testSystem(t)
	ca := testCA(t)
	trust, err := WriteTrust(filepath.Join(t.TempDir(), "trust"), ca, system)
	if err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(roots), ca.Certificate())
	got := parseBundle(readTest(t, trust.Bundle))
	if !slices.EqualFunc(got, want, (*x509.Certificate).Equal) {
		t.Errorf("%d certificates in the bundle, want %d", len(got), len(want))
	}
	if alone := readTest(t, trust.CA); !bytes.Equal(alone, ca.PEM()) {
		t.Errorf("the CA's file holds\n%s", alone)
	}
	for _, path := range []string{trust.CA, trust.Bundle, trust.Java} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o644 {
			t.Errorf("%s has mode %04o", path, info.Mode().Perm())
		}
		if bytes.Contains(readTest(t, path), []byte("PRIVATE KEY")) {
			t.Errorf("%s holds a key", path)
		}
	}
}

func readTest(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTLS15JavaTrustStore(t *testing.T) {
	system, roots := testSystem(t)
	ca := testCA(t)
	trust, err := WriteTrust(t.TempDir(), ca, system)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pkcs12.DecodeTrustStore(readTest(t, trust.Java), trustStorePassword)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(roots, ca.Certificate()); !slices.EqualFunc(got, want, (*x509.Certificate).Equal) {
		t.Errorf("%d certificates in the store, want %d", len(got), len(want))
	}
}

// TestTLS15KeytoolReadsTheStore reads the store with Java's own tool.
func TestTLS15KeytoolReadsTheStore(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Logf("%v: read by go-pkcs12 alone", err)
		return
	}
	system, _ := testSystem(t)
	trust, err := WriteTrust(t.TempDir(), testCA(t), system)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(keytool, "-list", "-keystore", trust.Java, "-storetype", "PKCS12", "-storepass", trustStorePassword).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := bytes.Count(out, []byte("trustedCertEntry")); n != 3 {
		t.Errorf("%d trusted certificates\n%s", n, out)
	}
}

func TestTLS16Environment(t *testing.T) {
	trust := TrustAt("/run/sallyport")
	bundle, alone := "/run/sallyport/bundle.pem", "/run/sallyport/ca.pem"
	want := map[string]string{
		"SSL_CERT_FILE": bundle, "NIX_SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": bundle, "CURL_CA_BUNDLE": bundle,
		"GIT_SSL_CAINFO": bundle, "PIP_CERT": bundle, "CARGO_HTTP_CAINFO": bundle, "AWS_CA_BUNDLE": bundle,
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": bundle, "HTTPLIB2_CA_CERTS": bundle, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": bundle,
		"npm_config_cafile": bundle, "YARN_HTTPS_CA_FILE_PATH": bundle, "BUNDLE_SSL_CA_CERT": bundle, "COMPOSER_CAFILE": bundle,
		"HEX_CACERTS_PATH": bundle, "PERL_LWP_SSL_CA_FILE": bundle, "JULIA_SSL_CA_ROOTS_PATH": bundle,
		"NODE_EXTRA_CA_CERTS": alone, "DENO_CERT": alone,
		"JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStore=/run/sallyport/truststore.p12 -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit",
	}
	if diff := cmp.Diff(want, trust.Environment()); diff != "" {
		t.Error(diff)
	}
}

func TestTLS15JavaPathWithSpaces(t *testing.T) {
	got := TrustAt("/home/a b").Environment()["JAVA_TOOL_OPTIONS"]
	if !strings.HasPrefix(got, `-Djavax.net.ssl.trustStore="/home/a b/truststore.p12" `) {
		t.Error(got)
	}
}

func TestTLS16EnvironmentScript(t *testing.T) {
	env := map[string]string{
		"PLAIN": "/a/b", "SPACES": "a b", "QUOTE": "it's", "SHELL": "$(id) `id` $HOME \\ \"", "LINES": "a\nb", "EMPTY": "",
		"ÜMLAUT": "x", "1ST": "x", "A=B": "x", "": "x", "A;id": "x", "NUL": "a\x00b",
	}
	script := EnvScript(env)
	out, err := exec.Command("sh", "-c", string(script)+`exec env -0`).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, script)
	}
	got := map[string]string{}
	for line := range strings.SplitSeq(string(out), "\x00") {
		if name, value, ok := strings.Cut(line, "="); ok {
			if _, mine := env[name]; mine {
				got[name] = value
			}
		}
	}
	want := maps.Clone(env)
	maps.DeleteFunc(want, func(name, value string) bool { return !shellName(name) || strings.Contains(value, "\x00") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !slices.IsSorted(strings.Split(strings.ReplaceAll(strings.TrimSpace(string(EnvScript(map[string]string{"B": "1", "A": "2", "C": "3"}))), "'", ""), "\n")) {
		t.Error("not sorted")
	}
}

func FuzzShellQuote(f *testing.F) {
	for _, s := range []string{"", "'", "''", "a'b", `\'`, "$(id)", "\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := shellQuote(s)
		// Read it back as POSIX says: between single quotes nothing is
		// special, outside of them only \' may stand.
		var out strings.Builder
		for rest := q; rest != ""; {
			if after, ok := strings.CutPrefix(rest, `\'`); ok {
				out.WriteByte('\'')
				rest = after
				continue
			}
			body, ok := strings.CutPrefix(rest, "'")
			end := strings.IndexByte(body, '\'')
			if !ok || end < 0 {
				t.Fatalf("%q is quoted as %s", s, q)
			}
			out.WriteString(body[:end])
			rest = body[end+1:]
		}
		if out.String() != s {
			t.Errorf("%q is quoted as %s", s, q)
		}
	})
}

func TestTLS13SystemBundle(t *testing.T) {
	pem, roots := testSystem(t)
	for _, path := range systemBundles() {
		got, err := systemBundle(fstest.MapFS{path: {Data: pem}})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if !bytes.Equal(got, encodeBundle(roots)) {
			t.Errorf("%s: another bundle", path)
		}
	}
	for name, system := range map[string]fstest.MapFS{
		"nothing":        {},
		"no certificate": {systemBundles()[0]: {Data: []byte("hello")}},
	} {
		if _, err := systemBundle(system); err == nil || !strings.Contains(err.Error(), "ca-certificates") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkWriteTrust(b *testing.B) {
	system, err := SystemBundle()
	if err != nil {
		b.Fatal(err)
	}
	ca, dir := testCA(b), b.TempDir()
	for b.Loop() {
		if _, err := WriteTrust(dir, ca, system); err != nil {
			b.Fatal(err)
		}
	}
}

//go:build linux

package corpus_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"sallyport/audit"
)

func imagesPolicy() map[string]string {
	return map[string]string{"images.hcl": `
sandbox "tls17" {
  allow "registry.tls17.test" { addresses = DOCS }
  allow "blobs.tls17.test" { addresses = DOCS }
}
`}
}

// digest names a blob.
func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// imageRegistry serves one image under two tags. Its blobs are at another
// host, by redirection: of tag "near" at one that is allowed, of "far" not.
func imageRegistry(t *testing.T) (registry, blobs http.Handler) {
	t.Helper()
	var plain, layer bytes.Buffer
	w := tar.NewWriter(&plain)
	err := w.WriteHeader(&tar.Header{Name: "hello", Mode: 0o644, Size: 5})
	if err == nil {
		_, err = w.Write([]byte("hello"))
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(&layer)
	if _, err := z.Write(plain.Bytes()); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	config := fmt.Appendf(nil, `{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[%q]}}`, digest(plain.Bytes()))
	const media = "application/vnd.docker.distribution.manifest.v2+json"
	manifest := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.docker.container.image.v1+json","size":%d,"digest":%q},`+
		`"layers":[{"mediaType":"application/vnd.docker.image.rootfs.diff.tar.gzip","size":%d,"digest":%q}]}`,
		media, len(config), digest(config), layer.Len(), digest(layer.Bytes()))
	registry = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")
		switch {
		case r.URL.Path == "/v2/":
		case len(name) == 3 && name[1] == "manifests":
			w.Header().Set("Content-Type", media)
			w.Header().Set("Docker-Content-Digest", digest(manifest))
			_, _ = w.Write(manifest)
		case len(name) == 3 && name[1] == "blobs":
			host := map[string]string{"near": "blobs.tls17.test", "far": "cdn.tls17.test"}[name[0]]
			http.Redirect(w, r, "https://"+host+"/"+name[2], http.StatusTemporaryRedirect)
		default:
			http.NotFound(w, r)
		}
	})
	blobs = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, b := range [][]byte{config, layer.Bytes()} {
			if path.Base(r.URL.Path) == digest(b) {
				_, _ = w.Write(b)
			}
		}
	})
	return registry, blobs
}

// pullScript starts Docker's daemon, pulls the images and says how each ended.
const pullScript = `
dockerd --data-root $D/data --exec-root $D/exec --pidfile $D/pid --host unix://$D/sock --storage-driver vfs --bridge none --iptables=false --ip6tables=false >$D/log 2>&1 &
export DOCKER_HOST=unix://$D/sock DOCKER_CONFIG=$D/client
for i in $(seq 900); do docker version >/dev/null 2>&1 && break; sleep 0.1; done
for image in $IMAGES; do
	docker pull -q registry.tls17.test/$image >$D/out 2>&1; echo "$image $? $(cat $D/out)"
done
docker images --format 'has {{.Repository}}'
kill $(cat $D/pid)
wait
`

func TestTLS17ImagePull(t *testing.T) {
	begin(t)
	s := attached(t, "tls17")
	registry, blobs := imageRegistry(t)
	origin("registry.tls17.test").SetHandler(registry)
	origin("blobs.tls17.test").SetHandler(blobs)
	pull := func(images string, env ...string) string {
		t.Helper()
		dir, err := os.MkdirTemp("", "tls17") // short: it holds a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		argv := append(append([]string{"env"}, env...), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "D="+dir, "IMAGES="+images)
		r := s.Command(t, append(argv, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", pullScript)...)
		if r.Code != 0 {
			log, _ := os.ReadFile(dir + "/log")
			t.Fatalf("exit %d: %s%s\n%s", r.Code, r.Stdout, r.Stderr, log[max(0, len(log)-2000):])
		}
		return r.Stdout
	}
	denied := func(what string, f func(*audit.Event) bool) {
		t.Helper()
		eventually(t, func() error {
			if !slices.ContainsFunc(s.Decisions(), func(e *audit.Event) bool { return e.Verdict == "deny" && f(e) }) {
				return errors.New(what + " is not on record")
			}
			return nil
		})
	}

	// A daemon reads the trust of its own environment, not its client's.
	if out := pull("near", "-u", "SSL_CERT_FILE", "-u", "SSL_CERT_DIR"); !strings.Contains(out, "x509") || strings.Contains(out, "has ") {
		t.Errorf("without the CA: %s", out)
	}
	denied("the daemon's distrust", func(e *audit.Event) bool {
		return e.Host == "registry.tls17.test" && e.Error != nil && e.Error.Class == "client_rejected_ca"
	})
	// With it the pull goes as far as the policy lets the blobs' host be reached,
	// and the record names that.
	out := pull("far near")
	if !strings.Contains(out, "far 1 ") || !strings.Contains(out, "near 0 ") || !strings.Contains(out, "has registry.tls17.test/near") || strings.Contains(out, "/far\n") {
		t.Errorf("with the CA: %s", out)
	}
	denied("the host of the blobs", func(e *audit.Event) bool {
		return e.Kind == audit.KindHTTP && e.Host == "cdn.tls17.test" && e.Reason == "host_not_allowed"
	})
}

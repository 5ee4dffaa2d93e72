//go:build linux

package clients_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gits clone, push, and keep large files beside the repository.
func gits() []client {
	const begin = `
export GIT_TERMINAL_PROMPT=0 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@clients.test GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@clients.test
git clone -q "https://build:$API_KEY@HOST/app.git" one && cd one
`
	const end = `
git push -q origin main && cd ..
git clone -q "https://build:$API_KEY@HOST/app.git" two
`
	return []client{
		{name: "git", serve: gitServer, after: pushed("app.git"), auth: basic, prints: []string{"first\nsecond\n"}, refusal: "sallyport: host_not_allowed",
			script: begin + `echo second >>file; git commit -qam second` + end + `
cat two/file
fails git clone -q https://BLOCKED/app.git three`},
		{name: "git-lfs", serve: gitServer, after: pushed("app.git"), auth: basic, prints: []string{"3000000 large\n", "the same\n"}, refusal: "batch response: Authorization error: https://BLOCKED/lfs/objects/batch",
			script: begin + `
git lfs install --local >/dev/null
git lfs track large >/dev/null
head -c 3000000 /dev/urandom >large
git add large .gitattributes; git commit -qm second` + end + `
cd two; git lfs pull; wc -c large; cmp large ../one/large && echo the same
git config lfs.url https://BLOCKED/lfs
fails git lfs push --all origin main`},
	}
}

// gitServer is git's own server for one repository, with a store for large
// files, to those who have the key.
func gitServer(t *testing.T, s *site) {
	bare := filepath.Join(s.dir, "served", "app.git")
	const make = `set -e
git init -q --bare -b main "$1"
git -C "$1" config http.receivepack true
git init -q -b main "$2" && cd "$2" && echo first >file && git add file
git -c user.name=a -c user.email=a@clients.test commit -qm first && git push -q "$1" main`
	if out, err := exec.Command("sh", "-c", make, "sh", bare, filepath.Join(s.dir, "work")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path, err := exec.Command("git", "--exec-path").Output()
	must(t, err)
	backend := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Stderr: os.Stderr,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(bare), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=build"}}
	large := &largeFiles{host: s.host, held: map[string][]byte{}}
	origin(s.host).SetHandler(withKey(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/info/lfs/") {
			large.ServeHTTP(w, r)
			return
		}
		backend.ServeHTTP(w, r)
	})))
}

// withKey lets those pass who are the user build and have the key.
func withKey(s *site, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "build" || password != s.value {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, "a credential is needed", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// pushed holds that a repository has what was pushed.
func pushed(name string) func(*testing.T, *site) {
	return func(t *testing.T, s *site) {
		out, err := exec.Command("git", "-C", filepath.Join(s.dir, "served", name), "log", "--format=%s", "main").CombinedOutput()
		if err != nil || string(out) != "second\nfirst\n" {
			t.Errorf("the repository has %q (%v)", out, err)
		}
	}
}

// largeFiles is a server of Git LFS: the batch API with its basic transfer.
type largeFiles struct {
	host string
	mu   sync.Mutex
	held map[string][]byte
}

// lfsObject is an object in a request, and in its answer.
type lfsObject struct {
	OID     string         `json:"oid"`
	Size    int64          `json:"size"`
	Actions map[string]any `json:"actions,omitempty"`
}

// ServeHTTP answers below /app.git/info/lfs/.
func (l *largeFiles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, path, _ := strings.Cut(r.URL.Path, "/info/lfs/")
	oid, isObject := strings.CutPrefix(path, "content/")
	switch {
	case path == "objects/batch" && r.Method == http.MethodPost:
		l.batch(w, r)
	case isObject && r.Method == http.MethodPut:
		b, err := io.ReadAll(r.Body)
		if sum := sha256.Sum256(b); err != nil || hex.EncodeToString(sum[:]) != oid {
			http.Error(w, "not what its name says", http.StatusUnprocessableEntity)
			return
		}
		l.held[oid] = b
	case isObject && l.held[oid] != nil:
		_, _ = w.Write(l.held[oid])
	default:
		http.NotFound(w, r) // locks, for one, which a client can do without
	}
}

func (l *largeFiles) batch(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Operation string      `json:"operation"`
		Objects   []lfsObject `json:"objects"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	for i, o := range asked.Objects {
		if asked.Operation == "download" || l.held[o.OID] == nil {
			asked.Objects[i].Actions = map[string]any{asked.Operation: map[string]string{"href": "https://" + l.host + "/app.git/info/lfs/content/" + o.OID}}
		}
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": asked.Objects}) // the client says if it broke off
}

//go:build linux

package secrets_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sallyport/test/lab"
)

// runOfAFile runs a sandbox with a secret of a file that it reads and cannot
// change, and returns the path of that.
func runOfAFile(t *testing.T, value string) (s *inside, path string) {
	t.Helper()
	policy := world.lab.MustPolicy(t, maskPolicy, value)
	path = regexp.MustCompile(`path = "([^"]*)"`).FindStringSubmatch(policy)[1]
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	return &inside{Sandbox: world.lab.RunSandbox(t, lab.RunOptions{UID: lab.Nobody, Policy: policy, Sandbox: "s1"})}, path
}

// TestRotation: a value that is replaced is used from then on, without a
// restart; a request under way keeps the one that it began with; and the old
// one is still masked and looked for.
func TestRotation(t *testing.T) {
	const old, fresh = "REAL-old-6f0c1b7d22", "REAL-new-a9145e03cc"
	const host = "rotate.mask.test"
	s, path := runOfAFile(t, old)
	t.Cleanup(func() { s.search(t, old); s.search(t, fresh) })
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "it was "+old+" and is "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	slow := make(chan lab.Answer, 1)
	go func() {
		a, err := lab.Try(s.Client(t, false), lab.NewRequest(t, "GET", "https://"+host+"/slow", "", "Authorization: Bearer $API_KEY"))
		if err != nil {
			a.Body = err.Error()
		}
		slow <- a
	}()
	select {
	case <-entered:
	case a := <-slow:
		t.Fatalf("the slow request got %d %q", a.Status, a.Body)
	}
	next := filepath.Join(filepath.Dir(path), world.lab.Unique("next"))
	if err := os.WriteFile(next, []byte(fresh+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil { // as secret stores do it
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		a := s.get(t, "https://"+host+"/", "Authorization: Bearer $API_KEY")
		passed(t, a)
		if got := header("Authorization")(last(t, host)); got == "Bearer "+fresh {
			if want := "it was " + strings.Repeat("*", len(old)) + " and is " + strings.Repeat("*", len(fresh)); a.Body != want {
				t.Errorf("the sandbox got %q", a.Body)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new value is not used")
		}
		time.Sleep(10 * time.Millisecond)
	}
	close(release)
	a := <-slow
	s.keep(a.Body)
	if a.Status != 200 || strings.Contains(a.Body, old) {
		t.Errorf("the request under way got %d %q", a.Status, a.Body)
	}
	for _, value := range []string{old, fresh} {
		refused(t, s.get(t, "https://"+host+"/?x="+value), "secret_exfiltration")
	}
}

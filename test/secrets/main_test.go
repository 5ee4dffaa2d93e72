//go:build linux

// Package secrets_test holds the promises about secrets (P3 and P4) through
// `sallyport run`: what an origin receives in each place and protocol, and
// that nothing of a real value comes back.
package secrets_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"sallyport/test/lab"
)

// real is the value of the secret API_KEY. It holds characters that each
// escaping writes in its own way.
const real = `REAL-Zq+9/c51&e2<d84b>06"x0f71-value`

// world is the lab that the tests share. TestMain sets it.
var world struct{ lab *lab.Lab }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	l, err := lab.Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, "secrets:", err)
		return 1
	}
	world.lab = l
	code := m.Run()
	if err := l.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "secrets:", err)
		code = 1
	}
	return code
}

// inside is a sandbox of `sallyport run`, and all that it has received.
type inside struct {
	*lab.Sandbox
	mu       sync.Mutex
	received []string
}

// start runs a sandbox called "s1" under a policy, whose SECRETFILE holds
// value. At the end of the test nothing that the sandbox received may hold
// value in any form.
func start(t *testing.T, policy, value string) *inside {
	t.Helper()
	s := &inside{Sandbox: world.lab.RunSandbox(t, lab.RunOptions{Policy: world.lab.MustPolicy(t, policy, value), Sandbox: "s1"})}
	t.Cleanup(func() { s.search(t, value) })
	return s
}

// keep notes what the sandbox received.
func (s *inside) keep(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received = append(s.received, texts...)
}

func (s *inside) search(t *testing.T, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, got := range s.received {
		for _, f := range formsOf(value) {
			if strings.Contains(got, f.core) {
				t.Errorf("the sandbox received the value as %s in %.300q", f.name, got)
			}
		}
	}
}

// do sends a request and keeps what came back.
func (s *inside) do(t *testing.T, c *http.Client, req *http.Request) lab.Answer {
	t.Helper()
	a := lab.Do(t, c, req)
	s.keep(fmt.Sprint(a.Status, a.Header, a.Trailer), a.Body)
	return a
}

// get sends a GET over HTTP/1.1.
func (s *inside) get(t *testing.T, url string, lines ...string) lab.Answer {
	t.Helper()
	return s.do(t, s.Client(t, false), lab.NewRequest(t, http.MethodGet, url, "", lines...))
}

// post sends a body.
func (s *inside) post(t *testing.T, url, media, body string, lines ...string) lab.Answer {
	t.Helper()
	return s.do(t, s.Client(t, false), lab.NewRequest(t, http.MethodPost, url, body, append(lines, "Content-Type: "+media)...))
}

// form is a text with a value in it.
type form struct {
	name string
	text string // as an upstream would send it
	core string // what of it gives the value away
}

// formsOf returns the forms in which a value may be reflected.
func formsOf(value string) []form {
	out := []form{{"raw", value, value}, {"hex", hex.EncodeToString([]byte(value)), hex.EncodeToString([]byte(value))},
		{"URL", url.QueryEscape(value), url.QueryEscape(value)}, {"path", url.PathEscape(value), url.PathEscape(value)}}
	for phase := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte("abc"[:phase] + value + "tail"))
		out = append(out, form{fmt.Sprintf("base64 at %d", phase), text, text[4 : len(text)-8]})
	}
	quoted := strings.NewReplacer(`"`, `\"`).Replace(value)
	escaped := strings.NewReplacer(`"`, `\"`, "<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(value)
	page := strings.NewReplacer(`"`, "&#34;", "<", "&lt;", ">", "&gt;", "&", "&amp;").Replace(value)
	return append(out, form{"JSON", quoted, quoted}, form{"JSON for HTML", escaped, escaped}, form{"HTML", page, page})
}

// origin is the log of a name.
func origin(name string) *lab.Vhost { return world.lab.Origins.Host(name) }

// last is what an origin received last.
func last(t *testing.T, host string) *lab.Request {
	t.Helper()
	q := origin(host).Requests()
	if len(q) == 0 {
		t.Fatalf("%s received nothing", host)
	}
	return q[len(q)-1]
}

// refused holds that an answer is a refusal for a reason.
func refused(t *testing.T, a lab.Answer, reason string) {
	t.Helper()
	if a.Status < 400 || a.Reason() != reason {
		t.Errorf("got %d %q, want a refusal for %s\n%s", a.Status, a.Reason(), reason, a.Body)
	}
}

// passed holds that an answer is an origin's.
func passed(t *testing.T, a lab.Answer) {
	t.Helper()
	if a.Status != http.StatusOK || a.Reason() != "" {
		t.Fatalf("got %d %q\n%s", a.Status, a.Reason(), a.Body)
	}
}

func basicAuth(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

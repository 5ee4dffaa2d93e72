package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"sallyport/policy"
)

// TestConditionsOnWhatLeaves: a rule is decided by the fields that reach the
// host, not by those that the client has taken out on the way.
func TestConditionsOnWhatLeaves(t *testing.T) {
	l := newLab(t)
	port, heads := recordHeads(t)
	l.allow("plain.test", port, func(r *policy.Rule) {
		r.Paths, r.Headers = []string{"/run"}, map[string][]string{"X-Dry-Run": {"true"}}
	})
	l.allow("plain.test", port, func(r *policy.Rule) {
		r.Paths, r.Headers = []string{"/te"}, map[string][]string{"Te": {"trailers, deflate"}}
	})
	l.allow("plain.test", port, func(r *policy.Rule) {
		r.Paths, r.JSONRPC = []string{"/rpc"}, &policy.JSONRPC{Methods: []string{"ping"}}
	})
	l.load()
	const ping = `{"method":"ping"}`
	for name, tt := range map[string]struct {
		path, fields, body string
		status             int
	}{
		"plain":                {"/run", "X-Dry-Run: true\r\n", "", 200},
		"kept alive":           {"/run", "X-Dry-Run: true\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\n", "", 200},
		"trailers":             {"/run", "X-Dry-Run: true\r\nConnection: TE\r\nTE: trailers\r\n", "", 200},
		"an offer of TLS":      {"/run", "X-Dry-Run: true\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n", "", 200},
		"another field":        {"/run", "X-Dry-Run: true\r\nConnection: X-Hop\r\nX-Hop: x\r\n", "", 200},
		"taken out":            {"/run", "X-Dry-Run: true\r\nConnection: X-Dry-Run\r\n", "", 403},
		"in another case":      {"/run", "X-Dry-Run: true\r\nConnection: keep-alive, x-dry-run\r\n", "", 403},
		"by another field":     {"/run", "X-Dry-Run: true\r\nConnection: keep-alive\r\nConnection:\tX-DRY-RUN \r\n", "", 403},
		"a field for the hop":  {"/te", "TE: trailers, deflate\r\n", "", 403},
		"a body":               {"/rpc", "Content-Type: application/json\r\n", ping, 200},
		"without its type":     {"/rpc", "Content-Type: application/json\r\nConnection: Content-Type\r\n", ping, 400},
		"without its length":   {"/rpc", "Content-Type: application/json\r\nConnection: content-length\r\n", ping, 400},
		"without being packed": {"/rpc", "Content-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: Content-Encoding\r\n", "\x1f\x8b", 400},
	} {
		t.Run(name, func(t *testing.T) {
			resp := readResponse(t, say(t, l.raw(t, "plain.test", port), "POST "+tt.path+" HTTP/1.1\r\nHost: plain.test\r\n"+tt.fields+
				"Content-Length: "+strconv.Itoa(len(tt.body))+"\r\n\r\n"+tt.body))
			if resp.StatusCode != tt.status {
				t.Errorf("%d %s, want %d", resp.StatusCode, resp.Header.Get("X-Sallyport-Reason"), tt.status)
			}
			if resp.StatusCode == http.StatusOK {
				<-heads
			}
		})
	}
}

// TestConditionsOnARangeThatIsTakenOut: where answers have to come whole, no
// rule is decided by the range that a client asked for and that does not leave.
func TestConditionsOnARangeThatIsTakenOut(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	inject := func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} }
	l.allow("api.test", o.port, inject, func(r *policy.Rule) { r.Paths = []string{"/any"} })
	for path, name := range map[string]string{"/part": "Range", "/same": "If-Range"} {
		l.allow("api.test", o.port, inject, func(r *policy.Rule) {
			r.Paths, r.Headers = []string{path}, map[string][]string{name: {"*"}}
		})
		l.allow("plain.test", o.port, func(r *policy.Rule) {
			r.Paths, r.Headers = []string{path}, map[string][]string{name: {"*"}}
		})
	}
	l.load()
	ask := func(host, path string, want int, ranged bool) {
		t.Helper()
		q, err := http.NewRequest("GET", fmt.Sprintf("https://%s:%d%s", host, o.port, path), nil)
		must(t, err)
		q.Header.Set("Range", "bytes=0-1000")
		q.Header.Set("If-Range", `"x"`)
		resp, text, err := body(l.client(t, false).Do(q))
		must(t, err)
		if (resp.StatusCode == 403) != (want == 403) {
			t.Errorf("%s%s: %d %s, want %d", host, path, resp.StatusCode, text, want)
		}
		if want == 403 {
			return
		}
		saw := o.saw()
		if got := saw[len(saw)-1].Header; (got.Get("Range") != "") != ranged || (got.Get("If-Range") != "") != ranged {
			t.Errorf("%s%s: the host was asked for %q, %q", host, path, got.Get("Range"), got.Get("If-Range"))
		}
	}
	ask("api.test", "/part", 200, true)
	ask("api.test", "/same", 200, true)
	l.g.state(l.sandbox.ID).edges.Store(edgesMost)
	ask("api.test", "/part", 403, false)
	ask("api.test", "/same", 403, false)
	ask("api.test", "/any", 200, false)
	ask("plain.test", "/part", 200, true) // no secret is given to it
}

// TestConditionsOnACredentialThatIsTakenOut: the same of a credential that is
// not the gateway's.
func TestConditionsOnACredentialThatIsTakenOut(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	for path, foreign := range map[string]policy.Foreign{"/strip": policy.ForeignStrip, "/pass": policy.ForeignPass} {
		l.allow("api.test", o.port, func(r *policy.Rule) {
			r.Paths, r.Foreign, r.Inject = []string{path}, foreign, []policy.Ref{{Name: secretName}}
			r.Headers = map[string][]string{"x-api-key": {"of-another"}}
		})
	}
	l.load()
	for path, want := range map[string]int{"/strip": 403, "/pass": 200} {
		q, err := http.NewRequest("GET", fmt.Sprintf("https://api.test:%d%s", o.port, path), nil)
		must(t, err)
		q.Header.Set("X-Api-Key", "of-another")
		resp, text, err := body(l.client(t, false).Do(q))
		must(t, err)
		if (resp.StatusCode == 403) != (want == 403) {
			t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, text, want)
		}
	}
}

package gateway

import (
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

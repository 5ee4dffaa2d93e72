package gateway

import (
	"net/http"
	"strings"
	"testing"

	"sallyport/policy"
)

// TestRequestLimitBeforeBody: a request whose body is looked at is taken from
// what the sandbox may use, once, whatever the body turns out to ask for.
func TestRequestLimitBeforeBody(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.JSONRPC = &policy.JSONRPC{Methods: []string{"ping"}} })
	l.limits.RequestsPerMinute = 4
	l.load()
	client := l.client(t, false)
	for n, tt := range []struct {
		method string
		status int
	}{{"pong", http.StatusForbidden}, {"ping", http.StatusOK}, {"pong", http.StatusForbidden}, {"ping", http.StatusOK},
		{"pong", http.StatusTooManyRequests}, {"ping", http.StatusTooManyRequests}} {
		resp, got, err := body(client.Post(o.address("api.test/echo"), "application/json", strings.NewReader(`{"method":"`+tt.method+`"}`)))
		must(t, err)
		if resp.StatusCode != tt.status {
			t.Errorf("request %d, %s: %d %s, want %d", n, tt.method, resp.StatusCode, got, tt.status)
		}
	}
}

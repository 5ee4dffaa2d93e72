package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// TestOptionsAsteriskIsARequest: it reaches the gateway as any other, and
// those behind it are judged by their own heads.
func TestOptionsAsteriskIsARequest(t *testing.T) {
	l := newLab(t)
	o := l.origin(t)
	l.allow("plain.test", o.port, func(r *policy.Rule) { r.Methods = []string{"GET", "OPTIONS"} })
	l.load()
	c := l.raw(t, "plain.test", o.port)
	for _, line := range []string{"OPTIONS *", "GET /hello", "DELETE /hello", "GET /hello"} {
		_, err := fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: plain.test:%d\r\n\r\n", line, o.port)
		must(t, err)
	}
	must(t, c.(*net.TCPConn).CloseWrite())
	_, err := io.ReadAll(c)
	must(t, err)
	var decided []string
	for _, e := range l.events(func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseDecision }) {
		decided = append(decided, e.HTTP.Method+" "+e.HTTP.Path+" "+e.Reason)
	}
	if want := []string{"OPTIONS * rule_allow", "GET /hello rule_allow", "DELETE /hello method_not_allowed", "GET /hello rule_allow"}; !slices.Equal(decided, want) {
		t.Errorf("decided\n%q, not\n%q", decided, want)
	}
	for _, r := range o.saw() {
		if r.Method == "DELETE" {
			t.Errorf("the origin saw %s %s", r.Method, r.RequestURI)
		}
	}
}

// TestHalfClosedClientWaitsForTheName: a client that has closed its side gets
// its answer, also when its name has yet to be resolved.
func TestHalfClosedClientWaitsForTheName(t *testing.T) {
	l := newLab(t, func(_ *Deps, o *upstream.Options) {
		delete(o.Hosts, "api.test")
		o.Lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
			select {
			case <-time.After(300 * time.Millisecond):
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	o := l.origin(t)
	l.allow("api.test", o.port)
	l.load()
	c := l.raw(t, "api.test", o.port)
	_, err := fmt.Fprintf(c, "GET /hello HTTP/1.1\r\nHost: api.test:%d\r\n\r\n", o.port)
	must(t, err)
	must(t, c.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(c)
	must(t, err)
	if !strings.HasPrefix(string(got), "HTTP/1.1 200 OK\r\n") {
		t.Errorf("answer %q", got)
	}
}

// TestMethodsWithHyphens: methods of WebDAV versioning (RFC 3253) begin HTTP.
func TestMethodsWithHyphens(t *testing.T) {
	for first, want := range map[string]bool{"VERSION-CONTROL /": true, "M-SEARCH *": true, "GET /": true, "get": true, "-": true, "SSH-2.0-x": false, "\x16\x03": false, "G ": false, "": false} {
		if got := looksLikeHTTP([]byte(first)); got != want {
			t.Errorf("%q: %v", first, got)
		}
	}
}

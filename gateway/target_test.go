package gateway

import (
	"bufio"
	"fmt"
	"net/http"
	"testing"

	"sallyport/policy"
)

// TestPathOfAPlaceholderLeavesAsItCame: a path with bytes that net/url would
// escape is refused for its placeholder by what is wrong with that, and not for
// its bytes.
func TestPathOfAPlaceholderLeavesAsItCame(t *testing.T) {
	for _, opened := range []bool{true, false} {
		l := newLab(t)
		l.path = opened
		o := l.origin(t, "http/1.1")
		l.allow("api.test", o.port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
		l.load()
		for _, path := range []string{"/bot${API_KEY}/x", "/$API_KEY/a|b", "/$API_KEY/^\"{}"} {
			c := l.rawTLS(t, "api.test", o.port, "http/1.1")
			_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: api.test:%d\r\n\r\n", path, o.port)
			must(t, err)
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			must(t, err)
			if want := map[bool]string{true: "", false: string(policy.PlaceholderPlace)}[opened]; r.Header.Get("X-Sallyport-Reason") != want {
				t.Errorf("%s: %d, %q, want %q", path, r.StatusCode, r.Header.Get("X-Sallyport-Reason"), want)
			}
			_ = c.Close()
		}
		if opened {
			for i, want := range []string{"/bot" + secretValue + "/x", "/" + secretValue + "/a|b", "/" + secretValue + "/^\"{}"} {
				if got := o.saw(); len(got) <= i || got[i].RequestURI != want {
					t.Errorf("%d: %d requests, want %q", i, len(got), want)
				}
			}
		}
	}
}

//go:build linux

package secrets_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// TestRangesTellNoGuesses: a sandbox that chooses the text of partial answers
// cannot try pieces of a value by what is covered of them: short ones are
// refused, others are on record, and after three ranges are at an end.
func TestRangesTellNoGuesses(t *testing.T) {
	s := start(t, maskPolicy, real)
	const host = "guess.mask.test"
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := r.Header.Get("X-Filler")
		guess := real[:len(text)%10+4] // as if the request had said it
		if r.Header.Get("X-Short") != "" {
			text = ""
		}
		if r.Header.Get("Range") != "" || r.Header.Get("X-Anyway") != "" {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/100000", len(text+guess)-1))
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = io.WriteString(w, text+guess)
	}))
	ask := func(n int, more ...string) lab.Answer {
		return s.get(t, "https://"+host+"/", append(more, "Authorization: Bearer $API_KEY", "X-Filler: "+strings.Repeat("x", n))...)
	}
	const ranged = "Range: bytes=0-"
	refused(t, ask(40, ranged, "X-Short: 1"), "uninspectable_body")
	for n := range 3 {
		a := ask(40+n, ranged)
		if want := strings.Repeat("x", 40+n) + strings.Repeat("*", n+4); a.Status != http.StatusPartialContent || a.Body != want {
			t.Errorf("answer %d: %d %q, want %q", n, a.Status, a.Body, want)
		}
	}
	a := ask(43, ranged, `If-Range: "x"`)
	passed(t, a)
	if got := http.Header(last(t, host).Header); got.Get("Range") != "" || got.Get("If-Range") != "" {
		t.Errorf("the origin was asked for %q, %q", got.Get("Range"), got.Get("If-Range"))
	}
	refused(t, ask(43, "X-Anyway: 1"), "uninspectable_body")
	edges := func() (n int) {
		for _, e := range s.Events(audit.Filter{}) {
			for _, u := range e.Secrets {
				if u.Place == "edge of a range" && u.Name == "API_KEY" && u.Action == "masked" {
					n++
				}
			}
		}
		return n
	}
	// It is said at the end of a request, whose record comes behind the answer.
	for end := time.Now().Add(10 * time.Second); edges() < 3 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	s.Mark()
	if n := edges(); n != 3 {
		t.Errorf("%d answers are on record, not 3", n)
	}
}

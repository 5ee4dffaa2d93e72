package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestProfiles: what go tool pprof asks for is there, as it reads it (gzip),
// and what is no length or no profile is refused.
func TestProfiles(t *testing.T) {
	mux := http.NewServeMux()
	(&control{}).profiles(mux)
	for path, want := range map[string]struct {
		code  int
		start string
	}{
		"/debug/pprof/profile?seconds=1":   {200, "\x1f\x8b"},
		"/debug/pprof/heap":                {200, "\x1f\x8b"},
		"/debug/pprof/goroutine?debug=1":   {200, "goroutine profile: total "},
		"/debug/pprof/goroutine?debug=2":   {200, "goroutine profile: total "}, // no values of arguments
		"/debug/pprof/profile?seconds=0":   {400, "{"},
		"/debug/pprof/profile?seconds=301": {400, "{"},
		"/debug/pprof/profile?seconds=x":   {400, "{"},
		"/debug/pprof/nothing":             {404, "{"},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want.code || !bytes.HasPrefix(w.Body.Bytes(), []byte(want.start)) {
			t.Errorf("%s: %d, %.60q", path, w.Code, w.Body.Bytes())
		}
	}
}

package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sallyport/audit"
	"sallyport/policy"
)

// TestP3EarlyHints: an informational answer holds the value as little as the
// final one does.
func TestP3EarlyHints(t *testing.T) {
	l := newLab(t)
	ln := listen(t)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "<"+r.Header.Get("Authorization")+">")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusOK)
		})}
	go func() { _ = s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	l.allow("api.test", portOf(ln), func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	l.load()
	for _, h2 := range []bool{false, true} {
		var mu sync.Mutex
		var hints []string
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			mu.Lock()
			defer mu.Unlock()
			hints = append(hints, h.Get("Link"))
			return nil
		}})
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test:"+strconv.Itoa(int(portOf(ln)))+"/", nil)
		must(t, err)
		q.Header.Set("Authorization", "Bearer $"+secretName)
		r, _, err := body(l.client(t, h2).Do(q))
		must(t, err)
		want := "<Bearer " + strings.Repeat("*", len(secretValue)) + ">"
		if r.StatusCode != http.StatusOK || r.Header.Get("Link") != want {
			t.Fatalf("h2 %v: %d %q", h2, r.StatusCode, r.Header.Get("Link"))
		}
		mu.Lock()
		if len(hints) != 1 || hints[0] != want {
			t.Errorf("h2 %v: hints %q, want %q", h2, hints, want)
		}
		mu.Unlock()
	}
}

// TestHintsAreBounded: an upstream may send so many informational answers to one
// request, of whatever kind; one more and it is told to have sent no valid answer.
func TestHintsAreBounded(t *testing.T) {
	l := newLab(t)
	ln := listen(t)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.URL.Query().Get("n"))
			code, _ := strconv.Atoi(r.URL.Query().Get("code"))
			for range n {
				w.WriteHeader(code)
			}
			w.WriteHeader(http.StatusOK)
		})}
	go func() { _ = s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	l.allow("api.test", portOf(ln))
	l.load()
	for _, tt := range []struct{ code, n, passed, status int }{
		{http.StatusProcessing, maxHints, maxHints, http.StatusOK},
		{http.StatusEarlyHints, maxHints + 1, maxHints, http.StatusBadGateway},
		{http.StatusContinue, maxHints + 1, 0, http.StatusOK},
		{http.StatusContinue, maxHints + 2, 0, http.StatusBadGateway},
	} {
		for _, h2 := range []bool{false, true} {
			var passed atomic.Int64
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
				passed.Add(1)
				return nil
			}})
			q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://api.test:%d/?n=%d&code=%d", portOf(ln), tt.n, tt.code), nil)
			must(t, err)
			r, _, err := body(l.client(t, h2).Do(q))
			must(t, err)
			if r.StatusCode != tt.status || passed.Load() != int64(tt.passed) {
				t.Errorf("h2 %v, %d times %d: %d, %d passed", h2, tt.n, tt.code, r.StatusCode, passed.Load())
			}
			if tt.status == http.StatusOK {
				continue
			}
			e := l.await(t, "end", func(e *audit.Event) bool {
				return e.Phase == audit.PhaseEnd && e.Req == r.Header.Get("X-Sallyport-Request")
			})
			if e.Error == nil || e.Error.Class != "protocol" || e.Error.Detail != errTooManyHints.Error() || r.Header.Get("X-Sallyport-Reason") != "upstream_protocol" {
				t.Errorf("h2 %v, %d times %d: recorded %+v, told %s", h2, tt.n, tt.code, e.Error, r.Header.Get("X-Sallyport-Reason"))
			}
		}
	}
}

// TestP3TrailersOfNoBody: trailers are covered behind a body without a byte too.
func TestP3TrailersOfNoBody(t *testing.T) {
	l := newLab(t)
	ln := listen(t)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols),
		TLSConfig: &tls.Config{NextProtos: []string{"h2"}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "0")
			w.Header().Set("Trailer", "X-After")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			w.Header().Set("X-After", r.Header.Get("Authorization"))
		})}
	s.Protocols.SetHTTP2(true)
	go func() { _ = s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	l.allow("api.test", portOf(ln), func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	l.load()
	for _, h2 := range []bool{false, true} {
		q, err := http.NewRequest(http.MethodGet, "https://api.test:"+strconv.Itoa(int(portOf(ln)))+"/", nil)
		must(t, err)
		q.Header.Set("Authorization", "Bearer $"+secretName)
		r, _, err := body(l.client(t, h2).Do(q))
		must(t, err)
		if got := r.Trailer.Get("X-After"); r.StatusCode != http.StatusOK || got != "Bearer "+strings.Repeat("*", len(secretValue)) {
			t.Errorf("h2 %v: %d, trailer %q", h2, r.StatusCode, got)
		}
	}
}

// TestBrokenCoding: an answer that is not in the coding that it says is not
// taken for a whole one, and its trailers hold no value.
func TestBrokenCoding(t *testing.T) {
	l := newLab(t)
	ln := listen(t)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{NextProtos: []string{"h2"}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Trailer", "X-After")
			_, _ = io.WriteString(w, "no such thing")
			w.Header().Set("X-After", r.Header.Get("Authorization"))
		})}
	go func() { _ = s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	l.allow("api.test", portOf(ln), func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	l.load()
	for _, h2 := range []bool{false, true} {
		q, err := http.NewRequest(http.MethodGet, "https://api.test:"+strconv.Itoa(int(portOf(ln)))+"/", nil)
		must(t, err)
		q.Header.Set("Authorization", "Bearer $"+secretName)
		r, err := l.client(t, h2).Do(q)
		if err != nil {
			continue // broken off before its head
		}
		b, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err == nil {
			t.Errorf("h2 %v: %d, %q and no error", h2, r.StatusCode, b)
		}
		if strings.Contains(r.Trailer.Get("X-After"), secretValue) {
			t.Errorf("h2 %v: the trailer holds the value", h2)
		}
	}
	l.await(t, "end as not looked into", func(e *audit.Event) bool {
		return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd && e.Reason == string(policy.UninspectableBody)
	})
}

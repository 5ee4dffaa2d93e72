package gateway

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"sallyport/audit"
	"sallyport/policy"
)

// bodyOrigin starts a server that reads bodies, over TLS, and tells of each how
// its reading ended and which trailers it had.
func (l *lab) bodyOrigin(t *testing.T, h2 bool) (uint16, <-chan readBody) {
	t.Helper()
	ln := listen(t)
	read := make(chan readBody, 16)
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols),
		TLSConfig: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }},
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			read <- readBody{err, r.Header.Clone(), r.Trailer.Clone()}
		})}
	s.Protocols.SetHTTP1(!h2)
	s.Protocols.SetHTTP2(h2)
	s.TLSConfig.NextProtos = []string{map[bool]string{false: "http/1.1", true: "h2"}[h2]}
	go func() { _ = s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	return portOf(ln), read
}

// readBody is what an origin saw of a request.
type readBody struct {
	err             error
	header, trailer http.Header
}

// TestSEC31RealValueInTrailers: a real value in a trailer, as its value or its
// name, stops the request before its end, and the record says why.
func TestSEC31RealValueInTrailers(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for name, trailer := range map[string]http.Header{
			"value":       {"X-Sum": {"a " + secretValue}},
			"second line": {"X-Sum": {"a", secretValue}},
			"name":        {http.CanonicalHeaderKey(secretValue): {"1"}},
			"none":        {"X-Sum": {"a"}},
		} {
			t.Run(name+" h2="+strconv.FormatBool(h2), func(t *testing.T) {
				l := newLab(t)
				if _, err := l.store.Get(t.Context(), secretName); err != nil {
					t.Fatal(err)
				}
				port, read := l.bodyOrigin(t, h2)
				l.allow("other.test", port)
				l.load()
				q, err := http.NewRequest(http.MethodPost, "https://other.test:"+strconv.Itoa(int(port))+"/", io.NopCloser(strings.NewReader("body")))
				must(t, err)
				q.ContentLength, q.Trailer = -1, trailer
				resp, _, err := body(l.client(t, h2).Do(q))
				if name == "none" {
					must(t, err)
					if got := <-read; got.err != nil || got.trailer.Get("X-Sum") != "a" || resp.StatusCode != http.StatusOK {
						t.Fatalf("%d, the origin saw %+v", resp.StatusCode, got)
					}
					return
				}
				if err == nil && resp.StatusCode == http.StatusOK {
					t.Error("the request was answered")
				}
				l.await(t, "why", func(e *audit.Event) bool { return e.Reason == string(policy.SecretExfiltration) })
				l.stop() // nothing is under way
				select {
				case got := <-read:
					if got.err == nil || len(got.trailer.Values("X-Sum")) > 0 {
						t.Errorf("the origin saw %+v", got)
					}
				default: // refused before it was sent
				}
			})
		}
	}
}

// TestSEC31RealValueAsAHeaderName: so does one that is the name of a header.
func TestSEC31RealValueAsAHeaderName(t *testing.T) {
	l := newLab(t)
	if _, err := l.store.Get(t.Context(), secretName); err != nil {
		t.Fatal(err)
	}
	o := l.origin(t, "h2", "http/1.1")
	l.allow("other.test", o.port)
	l.load()
	for _, h2 := range []bool{false, true} {
		q, err := http.NewRequest(http.MethodGet, "https://other.test:"+strconv.Itoa(int(o.port))+"/hello", nil)
		must(t, err)
		q.Header.Set(secretValue, secretValue)
		resp, _, err := body(l.client(t, h2).Do(q))
		must(t, err)
		if resp.StatusCode != http.StatusForbidden || len(o.saw()) > 0 {
			t.Errorf("h2 %v: %d, the origin saw %d requests", h2, resp.StatusCode, len(o.saw()))
		}
		e := l.denied(t, audit.KindHTTP, policy.SecretExfiltration)
		if strings.Contains(strings.ToLower(e.Message), secretValue) {
			t.Errorf("the record repeats it: %q", e.Message)
		}
	}
}

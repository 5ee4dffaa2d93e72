package inject

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sallyport/policy"
	"sallyport/secrets"
)

// origin records what it received and reflects the credential.
type origin struct {
	mu   sync.Mutex
	seen []string // method, credential and body of each whole request
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	o.mu.Lock()
	o.seen = append(o.seen, fmt.Sprintf("%s %s %s %s %s", r.Proto, r.Method, r.Header.Get("Authorization"), body, r.Trailer.Get("X-Sum")))
	o.mu.Unlock()
	text := "you sent " + r.Header.Get("Authorization") + " and " + string(body)
	if r.URL.Path == "/gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, text)
		_ = z.Close()
		return
	}
	_, _ = io.WriteString(w, text)
}

func (o *origin) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

// front is a gateway reduced to what concerns credentials.
type front struct {
	table    *Table
	guard    *Guard
	values   map[string]secrets.Value
	origin   *httptest.Server
	failures chan error
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, refusal := f.table.Plan(Input{
		Sandbox: "s1", Request: r, Host: goodHost, Scheme: policy.HTTPS, Intercepted: true,
		Decision: policy.Decision{Verdict: policy.Allow, Inject: []string{"API_KEY", "BODY_KEY"}},
	})
	if refusal != nil {
		http.Error(w, refusal.Message, http.StatusForbidden)
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "https", strings.TrimPrefix(f.origin.URL, "https://")
	out.Trailer = r.Trailer
	out.Header.Set("Accept-Encoding", "gzip")
	resp, err := func() (*http.Response, error) {
		if err := p.Apply(out, f.values); err != nil {
			return nil, err
		}
		return f.origin.Client().Transport.RoundTrip(out)
	}()
	if err == nil {
		err = f.guard.Masker(p.Covered(), f.values).Response(resp, func(string, string) {})
	}
	if err != nil {
		f.failures <- err
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, lines := range resp.Header {
		w.Header()[name] = lines
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

func newFront(t *testing.T) (*front, *origin, *httptest.Server) {
	t.Helper()
	o := &origin{}
	up := httptest.NewUnstartedServer(o)
	up.EnableHTTP2 = true
	up.StartTLS()
	t.Cleanup(up.Close)
	values := map[string]secrets.Value{"API_KEY": mustValue(t, realAPI), "BODY_KEY": mustValue(t, `REAL"body"value`)}
	held := []secrets.Held{{Name: "API_KEY", Value: values["API_KEY"]}, {Name: "BODY_KEY", Value: values["BODY_KEY"]}}
	f := &front{table: bodyTable(), guard: NewGuard(held), values: values, origin: up, failures: make(chan error, 100)}
	down := httptest.NewUnstartedServer(f)
	down.EnableHTTP2 = true
	down.StartTLS()
	t.Cleanup(down.Close)
	return f, o, down
}

// clients speak HTTP/1.1 and HTTP/2.
func clients(s *httptest.Server) map[string]*http.Client {
	one := s.Client().Transport.(*http.Transport).Clone()
	one.ForceAttemptHTTP2, one.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	one.TLSClientConfig.NextProtos = nil
	return map[string]*http.Client{"HTTP/1.1": {Transport: one}, "HTTP/2.0": s.Client()}
}

func TestSEC16OverTheWire(t *testing.T) {
	_, o, down := newFront(t)
	for proto, client := range clients(down) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
			for _, path := range []string{"/", "/gzip"} {
				t.Run(proto+" "+method+path, func(t *testing.T) {
					var body io.Reader
					if method != "GET" && method != "HEAD" {
						body = io.MultiReader(strings.NewReader("some "), strings.NewReader("body")) // chunked
					}
					req, _ := http.NewRequest(method, down.URL+path, body)
					req.Header.Set("Authorization", "Bearer $API_KEY")
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					got, err := io.ReadAll(resp.Body)
					if err != nil || resp.Proto != proto || resp.StatusCode != 200 {
						t.Fatalf("%s %d, %v", resp.Proto, resp.StatusCode, err)
					}
					want := fmt.Sprintf("HTTP/2.0 %s Bearer %s ", method, realAPI)
					if seen := o.take(); len(seen) != 1 || !strings.HasPrefix(seen[0], want) {
						t.Errorf("origin saw %q", seen)
					}
					if bytes.Contains(got, []byte("REAL")) || method != "HEAD" && !bytes.Contains(got, []byte("Bearer ****")) {
						t.Errorf("sandbox received %q", got)
					}
				})
			}
		}
	}
}

func TestBodiesAndTrailersOverTheWire(t *testing.T) {
	f, o, down := newFront(t)
	for proto, client := range clients(down) {
		for name, tt := range map[string]struct {
			body    string
			trailer string
			length  bool
			want    string // of what the origin saw; "": nothing whole
			reason  policy.Reason
		}{
			"streamed":            {body: `{"client_secret":"$BODY_KEY"}`, want: `{"client_secret":"REAL\"body\"value"}`},
			"announced":           {body: `{"client_secret":"$BODY_KEY"}`, length: true, want: `{"client_secret":"REAL\"body\"value"}`},
			"elsewhere":           {body: `{"pad":"` + strings.Repeat("x", 50000) + `","comment":"$BODY_KEY"}`, reason: policy.PlaceholderPlace},
			"elsewhere announced": {body: `{"comment":"$BODY_KEY"}`, length: true, reason: policy.PlaceholderPlace},
			"trailer":             {body: `{}`, trailer: "$API_KEY", reason: policy.PlaceholderPlace},
			"plain trailer":       {body: `{}`, trailer: "abc", want: "{} abc"},
		} {
			t.Run(proto+" "+name, func(t *testing.T) {
				var body io.Reader = strings.NewReader(tt.body)
				if !tt.length {
					body = io.MultiReader(body)
				}
				req, _ := http.NewRequest("POST", down.URL, body)
				req.Header.Set("Content-Type", "application/json")
				if tt.trailer != "" {
					req.Trailer = http.Header{"X-Sum": {tt.trailer}}
				}
				resp, err := client.Do(req)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				seen := o.take()
				if tt.want != "" {
					if err != nil || len(seen) != 1 || !strings.Contains(seen[0], tt.want) {
						t.Errorf("%v, origin saw %q", err, seen)
					}
					return
				}
				if len(seen) != 0 {
					t.Errorf("origin saw %q", seen)
				}
				var refusal *Refusal
				if failure := <-f.failures; !errors.As(failure, &refusal) || refusal.Reason != tt.reason {
					t.Errorf("failure %v, want %q", failure, tt.reason)
				}
			})
		}
	}
}

// TestSandboxesNeverCross swaps for two sandboxes at once, each with shaped
// placeholders of its own.
func TestSandboxesNeverCross(t *testing.T) {
	table := testTable()
	values := testValues(t)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			own, other := "s1", "s2"
			if worker%2 == 1 {
				own, other = other, own
			}
			for range 2500 {
				for _, from := range []string{own, other} {
					in := input(request("GET", "https://good.test/", "Authorization: Bearer "+table.Placeholder(from, "GH_TOKEN")), allNames...)
					in.Sandbox = own
					p, refusal := table.Plan(in)
					if from == other {
						if refusal == nil || refusal.Reason != policy.PlaceholderLeak {
							t.Errorf("%s used the placeholder of %s", own, other)
							return
						}
						continue
					}
					if refusal != nil || p.Apply(in.Request, values) != nil || in.Request.Header.Get("Authorization") != "Bearer "+realGH {
						t.Errorf("%s: %v", own, refusal)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

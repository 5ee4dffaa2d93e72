package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// column is one way through the gateway: what the client speaks, and what
// the origin does.
type column struct {
	*lab
	*origin
	scheme string
	h2     bool // the client's side
	h2up   bool // the origin's side
}

func (c *column) url(path string) string {
	return c.scheme + "://api.test:" + strconv.Itoa(int(c.port)) + path
}

func (c *column) get(t *testing.T, path string) (*http.Response, string, error) {
	return body(c.client(t, c.h2).Get(c.url(path)))
}

// TestP8Protocols runs every check of an honest client on every way through.
func TestP8Protocols(t *testing.T) {
	for _, col := range []struct {
		name, scheme string
		h2           bool
		origin       []string
	}{
		{"h1 to h1", "https", false, []string{"http/1.1"}},
		{"h1 to h2", "https", false, []string{"h2", "http/1.1"}},
		{"h2 to h1", "https", true, []string{"http/1.1"}},
		{"h2 to h2", "https", true, []string{"h2", "http/1.1"}},
		{"plain", "http", false, nil},
	} {
		t.Run(col.name, func(t *testing.T) {
			l := newLab(t)
			c := &column{lab: l, origin: l.origin(t, col.origin...), scheme: col.scheme, h2: col.h2, h2up: slices.Contains(col.origin, "h2")}
			l.allow("api.test", c.port)
			l.load()
			for _, check := range []struct {
				name string
				run  func(*column, *testing.T)
			}{
				{"versions", (*column).versions},
				{"H1-27 absent stays absent", (*column).fidelity},
				{"H1-27 cookies and challenges stay separate", (*column).cookieLines},
				{"connections are reused", (*column).reuse},
				{"HTTP/1.0", (*column).http10},
				{"pipelining", (*column).pipelined},
				{"chunked both ways", (*column).chunked},
				{"many at once", (*column).multiplexed},
				{"one that is not read stops no other", (*column).stalled},
				{"GOAWAY of the origin", (*column).goAway},
				{"reset by the origin", (*column).originResets},
				{"slow bodies", (*column).slowBodies},
				{"WebSocket", (*column).webSocket},
				{"H1-13 SSE", func(c *column, t *testing.T) { c.pieces(t, "text/event-stream", "data: %d\n\n") }},
				{"H1-13 ndjson", func(c *column, t *testing.T) { c.pieces(t, "application/x-ndjson", "{\"i\":%d}\n") }},
				{"H1-13 chunked JSON", func(c *column, t *testing.T) { c.pieces(t, "application/json", "{\"i\":%d}\n") }},
				{"H1-13 gRPC", func(c *column, t *testing.T) { c.pieces(t, "application/grpc", "%d\n") }},
				{"pieces of a request", (*column).requestPieces},
				{"H1-10 HEAD", (*column).headOnly},
				{"H1-10 204 and 304", (*column).bodiless},
				{"H1-10 ranges", (*column).ranges},
				{"H1-11 length unknown", (*column).unknownLength},
				{"empty POST stays empty", (*column).emptyPost},
				{"trailers of answers", (*column).answerTrailers},
				{"trailers of requests", (*column).requestTrailers},
				{"H1-07 expectation met", (*column).expectMet},
				{"H1-07 expectation refused", (*column).expectRefused},
				{"H1-08 early answer", (*column).earlyAnswer},
				{"H1-09 early hints", (*column).earlyHints},
				{"H1-28 truncation is an error", (*column).truncation},
				{"full duplex", (*column).fullDuplex},
				{"cancel reaches the origin", (*column).cancelled},
				{"upload of 64 MiB", (*column).upload},
				{"download of 64 MiB", (*column).download},
			} {
				t.Run(check.name, func(t *testing.T) { check.run(c, t) })
			}
		})
	}
}

func (c *column) versions(t *testing.T) {
	r, b, err := c.get(t, "/hello")
	must(t, err)
	client, up := 1, "HTTP/1.1"
	if c.h2 {
		client = 2
	}
	if c.h2up {
		up = "HTTP/2.0"
	}
	if b != "hello" || r.ProtoMajor != client || r.Header.Get("X-Proto") != up {
		t.Fatalf("%d %q over %s, upstream %s", r.StatusCode, b, r.Proto, r.Header.Get("X-Proto"))
	}
}

func (c *column) fidelity(t *testing.T) {
	q, err := http.NewRequest(http.MethodGet, c.url("/hello"), nil)
	must(t, err)
	q.Header["User-Agent"] = []string{""} // none
	q.Header["X-Twice"] = []string{"b", "a"}
	q.Header.Set("Accept-Encoding", "br, zstd")
	r, _, err := body(c.client(t, c.h2).Do(q))
	must(t, err)
	want := `map["Accept-Encoding":["br, zstd"] "X-Twice":["b" "a"]]`
	if got := r.Header.Get("X-Dump"); got != want {
		t.Fatalf("origin saw %s, want %s", got, want)
	}
}

func (c *column) cookieLines(t *testing.T) {
	r, _, err := c.get(t, "/cookies")
	must(t, err)
	for name, n := range map[string]int{"Set-Cookie": 2, "Www-Authenticate": 2} {
		if len(r.Header[name]) != n {
			t.Errorf("%s: %q", name, r.Header[name])
		}
	}
}

func (c *column) reuse(t *testing.T) {
	client, fresh := c.client(t, c.h2), 0
	for range 20 {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if !i.Reused {
				fresh++
			}
		}})
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url("/hello"), nil)
		must(t, err)
		_, _, err = body(client.Do(q))
		must(t, err)
	}
	if fresh != 1 {
		t.Fatalf("%d connections for 20 requests", fresh)
	}
}

func (c *column) headOnly(t *testing.T) {
	r, err := c.client(t, c.h2).Head(c.url("/head"))
	must(t, err)
	defer r.Body.Close()
	if r.ContentLength != 12345 {
		t.Fatalf("length %d", r.ContentLength)
	}
}

func (c *column) bodiless(t *testing.T) {
	for _, code := range []int{http.StatusNoContent, http.StatusNotModified} {
		r, b, err := c.get(t, "/"+strconv.Itoa(code))
		must(t, err)
		if r.StatusCode != code || b != "" || len(r.TransferEncoding) > 0 {
			t.Errorf("%d: %d %q %v", code, r.StatusCode, b, r.TransferEncoding)
		}
	}
}

func (c *column) ranges(t *testing.T) {
	q, err := http.NewRequest(http.MethodGet, c.url("/range"), nil)
	must(t, err)
	q.Header.Set("Range", "bytes=1000-1099")
	r, b, err := body(c.client(t, c.h2).Do(q))
	must(t, err)
	if r.StatusCode != http.StatusPartialContent || len(b) != 100 || b[0] != byte(1000%251) || r.Header.Get("Content-Range") != "bytes 1000-1099/1048576" {
		t.Fatalf("%d, %d bytes, %s", r.StatusCode, len(b), r.Header.Get("Content-Range"))
	}
}

func (c *column) unknownLength(t *testing.T) {
	_, b, err := c.get(t, "/down?n=100000")
	if err != nil || len(b) != 100000 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
}

func (c *column) emptyPost(t *testing.T) {
	_, b, err := body(c.client(t, c.h2).Post(c.url("/up"), "text/plain", nil))
	must(t, err)
	if b != "0 <nil> cl=0 te=[]" {
		t.Fatal(b)
	}
}

func (c *column) answerTrailers(t *testing.T) {
	r, b, err := c.get(t, "/trailers")
	must(t, err)
	if b != "body" || r.Trailer.Get("X-T") != "tv" || r.Trailer.Get("X-Un") != "un" {
		t.Fatalf("%q, trailers %v", b, r.Trailer)
	}
}

func (c *column) requestTrailers(t *testing.T) {
	q, err := http.NewRequest(http.MethodPost, c.url("/trailers"), io.NopCloser(strings.NewReader("x")))
	must(t, err)
	q.ContentLength = -1
	q.Trailer = http.Header{"X-Req-T": {"rt"}}
	_, _, err = body(c.client(t, c.h2).Do(q))
	must(t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trailer != "rt" {
		t.Fatalf("origin saw trailer %q", c.trailer)
	}
}

func (c *column) expectMet(t *testing.T) {
	var got100 atomic.Bool
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { got100.Store(true) }})
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url("/up"), io.LimitReader(&pattern{}, 1000))
	must(t, err)
	q.ContentLength = 1000
	q.Header.Set("Expect", "100-continue")
	_, b, err := body(c.client(t, c.h2).Do(q))
	must(t, err)
	if !strings.HasPrefix(b, "1000 <nil> cl=1000") || !got100.Load() {
		t.Fatalf("%s, 100 seen: %v", b, got100.Load())
	}
}

// expectRefused: the final answer comes without the body having been asked
// for. Of an HTTP/2 client net/http's server hides the expectation, so there
// the body may be sent.
func (c *column) expectRefused(t *testing.T) {
	var read atomic.Bool
	q, err := http.NewRequest(http.MethodPost, c.url("/refuse"), readerFunc(func([]byte) (int, error) {
		read.Store(true)
		return 0, errors.New("not to be read")
	}))
	must(t, err)
	q.ContentLength = 1000
	q.Header.Set("Expect", "100-continue")
	r, _, err := body(c.client(t, c.h2).Do(q))
	if c.h2 && err != nil {
		return
	}
	must(t, err)
	if r.StatusCode != http.StatusExpectationFailed {
		t.Fatalf("status %d", r.StatusCode)
	}
	if !c.h2 && read.Load() {
		t.Fatal("the gateway asked for the body before the origin did")
	}
}

func (c *column) earlyHints(t *testing.T) {
	var hints atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code == http.StatusEarlyHints && h.Get("Link") != "" {
			hints.Add(1)
		}
		return nil
	}})
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url("/early"), nil)
	must(t, err)
	r, _, err := body(c.client(t, c.h2).Do(q))
	must(t, err)
	if r.StatusCode != http.StatusOK || hints.Load() != 1 || r.Header.Get("Link") != "" {
		t.Fatalf("%d, %d hints, Link %q", r.StatusCode, hints.Load(), r.Header.Get("Link"))
	}
}

//go:build linux

package secrets_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/coder/websocket"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"sallyport/test/lab"
)

const maskPolicy = `
secret "API_KEY" {
  hosts = ["*.mask.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  allow "*.mask.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`

// coding is a content coding.
type coding struct {
	name   string
	encode func(io.Writer) io.WriteCloser
	decode func(io.Reader) (io.Reader, error)
}

func codings() []coding {
	return []coding{
		{"gzip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
		{"deflate", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }, func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }},
		{"br", func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) }, func(r io.Reader) (io.Reader, error) { return brotli.NewReader(r), nil }},
		{"zstd", func(w io.Writer) io.WriteCloser {
			z, _ := zstd.NewWriter(w) // fails on options alone
			return z
		}, func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) }},
	}
}

// reflector sends a form of the value back in the way that the request's
// target asks for: /form/way.
func reflector(t *testing.T) http.Handler {
	forms := formsOf(real)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, way, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		n, err := strconv.Atoi(i)
		if err != nil || n >= len(forms) {
			http.Error(w, "no such form", http.StatusNotFound)
			return
		}
		text := page(forms[n])
		w.Header().Set("Content-Type", "text/plain")
		switch way {
		case "whole":
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			_, _ = io.WriteString(w, text)
		case "chunked", "events":
			if way == "events" {
				w.Header().Set("Content-Type", "text/event-stream")
				text = "data: " + text + "\n\n"
			}
			for len(text) > 0 { // the value is split over many chunks or frames
				k := min(7, len(text))
				_, _ = io.WriteString(w, text[:k])
				if http.NewResponseController(w).Flush() != nil {
					return
				}
				text = text[k:]
			}
		case "range":
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
		case "header":
			w.Header().Set("X-Echo", forms[n].text)
			w.Header().Set("Location", "https://elsewhere.test/?t="+forms[n].text)
			w.WriteHeader(http.StatusFound)
		case "trailer":
			w.Header().Set("Trailer", "X-After")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-After", forms[n].text)
		default:
			for _, c := range codings() {
				if c.name == way {
					var b bytes.Buffer
					z := c.encode(&b)
					_, _ = io.WriteString(z, text)
					_ = z.Close()
					w.Header().Set("Content-Encoding", way)
					w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
					_, _ = w.Write(b.Bytes())
					return
				}
			}
			t.Errorf("no way %q", way)
		}
	})
}

// page is a text with a form of the value in the middle.
func page(f form) string {
	return strings.Repeat("before ", 40) + f.text + strings.Repeat(" behind", 40)
}

// TestMaskReflections: what an approved host sends back holds the value in no
// form, and is as long as it was. SEC-21, SEC-22.
func TestMaskReflections(t *testing.T) {
	s := start(t, maskPolicy, real)
	for _, up := range []string{"http/1.1", "h2"} {
		host := "m" + up[len(up)-1:] + ".mask.test"
		origin(host).SetProtocols(up)
		origin(host).SetHandler(reflector(t))
		for _, h2 := range []bool{false, true} {
			c := s.Client(t, h2)
			for i, f := range formsOf(real) {
				for _, way := range []string{"whole", "chunked", "events", "header", "trailer", "gzip", "deflate", "br", "zstd"} {
					req := lab.NewRequest(t, "GET", fmt.Sprintf("https://%s/%d/%s", host, i, way), "", "Authorization: Bearer $API_KEY", "Te: trailers")
					a := s.do(t, c, req)
					masked(t, fmt.Sprintf("%s, %s, h2=%v to %s", f.name, way, h2, up), s, f, way, a)
				}
			}
		}
	}
}

// masked holds that an answer is whole and gives nothing away.
func masked(t *testing.T, name string, s *inside, f form, way string, a lab.Answer) {
	t.Helper()
	if a.Reason() != "" || a.Status >= 400 {
		t.Errorf("%s: %d %s", name, a.Status, a.Body)
		return
	}
	body, want := a.Body, len(page(f))
	switch way {
	case "events":
		want += len("data: \n\n")
	case "header", "trailer":
		field, text := a.Header.Get("X-Echo"), a.Header.Get("Location")
		if way == "trailer" {
			field, text = a.Trailer.Get("X-After"), ""
		}
		if strings.Contains(field+text, f.core) || !strings.Contains(field, "********") || len(field) != len(f.text) {
			t.Errorf("%s: the sandbox got %q and %q", name, field, text)
		}
		return
	}
	for _, c := range codings() {
		if c.name != way {
			continue
		}
		if got := a.Header.Get("Content-Encoding"); got != way {
			t.Errorf("%s: the coding became %q", name, got)
		}
		r, err := c.decode(strings.NewReader(a.Body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		body = string(b)
		s.keep(body)
	}
	if len(body) != want || strings.Contains(body, f.core) || !strings.Contains(body, "********") || !strings.Contains(body, "before ") || !strings.HasSuffix(strings.TrimSpace(body), "behind") {
		t.Errorf("%s: %d bytes, not %d: %.400q", name, len(body), want, body)
	}
}

// TestMaskRanges: a range that begins or ends inside a value gives no piece
// of it away.
func TestMaskRanges(t *testing.T) {
	s := start(t, maskPolicy, real)
	const host = "range.mask.test"
	origin(host).SetHandler(reflector(t))
	f := formsOf(real)[0]
	begin := strings.Index(page(f), real)
	for _, r := range [][2]int{{0, begin + 9}, {begin + 3, len(page(f)) - 1}, {begin + 8, begin + len(real) - 5}, {begin, begin + len(real) - 1}, {begin - 4, begin + len(real) + 4}} {
		a := s.get(t, "https://"+host+"/0/range", "Authorization: Bearer $API_KEY", fmt.Sprintf("Range: bytes=%d-%d", r[0], r[1]))
		want := page(f)[r[0] : r[1]+1]
		if len(want) < 32 {
			refused(t, a, "uninspectable_body")
		} else if a.Status != http.StatusPartialContent || len(a.Body) != len(want) {
			t.Errorf("%v: %d with %d bytes, not %d", r, a.Status, len(a.Body), len(want))
		}
		for i := range len(real) - 6 {
			if piece := real[i : i+6]; strings.Contains(a.Body, piece) {
				t.Errorf("%v: %q of the value came back in %q", r, piece, a.Body)
				break
			}
		}
	}
}

// TestMaskStreams: events reach the sandbox as they are sent, although they
// are looked into.
func TestMaskStreams(t *testing.T) {
	s := start(t, maskPolicy, real)
	const host = "stream.mask.test"
	next := make(chan struct{})
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = io.WriteString(w, "data: "+real+"\n\n")
			if http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	}))
	for _, h2 := range []bool{false, true} {
		resp, err := s.Client(t, h2).Do(lab.NewRequest(t, "GET", "https://"+host+"/", "", "Authorization: Bearer $API_KEY"))
		if err != nil {
			t.Fatal(err)
		}
		want := "data: " + strings.Repeat("*", len(real)) + "\n\n"
		got := make([]byte, len(want))
		for range 3 { // the origin sends no more until this one has come
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Fatalf("h2=%v: %q %v", h2, got, err)
			}
			next <- struct{}{}
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMaskWebSocket: messages from the upstream are covered, in every form.
func TestMaskWebSocket(t *testing.T) {
	s := start(t, maskPolicy, real)
	const host = "ws.mask.test"
	forms := formsOf(real)
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer c.CloseNow()
		for _, f := range forms {
			if c.Write(r.Context(), websocket.MessageText, []byte(page(f))) != nil {
				return
			}
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://"+host+"/", &websocket.DialOptions{HTTPClient: s.Client(t, false),
		HTTPHeader: http.Header{"Authorization": {"Bearer $API_KEY"}}, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, f := range forms {
		_, b, err := c.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s.keep(string(b))
		masked(t, f.name, s, f, "message", lab.Answer{Status: 200, Body: string(b)})
	}
}

// TestMaskOff: a rule can turn it off, and then the answer is left alone.
func TestMaskOff(t *testing.T) {
	s := world.lab.RunSandbox(t, lab.RunOptions{Sandbox: "s1", Policy: world.lab.MustPolicy(t, strings.Replace(maskPolicy, "inject ", "scrub = false\n    inject ", 1), real)})
	const host = "off.mask.test"
	origin(host).SetHandler(reflector(t))
	a := s.Get(t, "https://"+host+"/0/whole", "Authorization: Bearer $API_KEY")
	if a.Body != page(formsOf(real)[0]) {
		t.Errorf("got %.300q", a.Body)
	}
}

// TestMaskWhatWasStored: an origin that keeps what it is sent and shows it
// under a rule that injects nothing, or in clear text, gives nothing away
// either.
func TestMaskWhatWasStored(t *testing.T) {
	s := start(t, `
secret "API_KEY" {
  hosts = ["store.mask.test"]
  source "file" { path = "SECRETFILE" }
}
sandbox "s1" {
  allow "store.mask.test" {
    methods   = ["PUT"]
    addresses = DOCS
    inject    = ["API_KEY"]
  }
  allow "store.mask.test" {
    schemes   = ["http", "https"]
    methods   = ["GET"]
    addresses = DOCS
  }
}
`, real)
	const host = "store.mask.test"
	var stored atomic.Value
	stored.Store("")
	origin(host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			stored.Store(r.Header.Get("Authorization"))
		}
		_, _ = io.WriteString(w, "last: "+stored.Load().(string))
	}))
	passed(t, s.do(t, s.Client(t, false), lab.NewRequest(t, "PUT", "https://"+host+"/", "x", "Authorization: Bearer $API_KEY")))
	for _, scheme := range []string{"https", "http"} {
		a := s.get(t, scheme+"://"+host+"/")
		passed(t, a)
		if want := "last: Bearer " + strings.Repeat("*", len(real)); a.Body != want {
			t.Errorf("over %s the sandbox got %q", scheme, a.Body)
		}
	}
}

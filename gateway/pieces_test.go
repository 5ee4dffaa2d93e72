package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	rpc "google.golang.org/grpc/interop/grpc_testing"
)

// pieceWait bounds how long one side waits for the other.
const pieceWait = 20 * time.Second

// gate opens when as many are before it as are to come.
type gate struct {
	mu   sync.Mutex
	in   int
	open chan struct{}
}

func (g *gate) pass(n int) bool {
	g.mu.Lock()
	if g.open == nil {
		g.open = make(chan struct{})
	}
	if g.in++; g.in == n {
		close(g.open)
	}
	g.mu.Unlock()
	select {
	case <-g.open:
		return true
	case <-time.After(pieceWait):
		return false
	}
}

func (o *origin) together(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("n"))
	if !o.gate.pass(n) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// pieces sends each piece when the client has the one before.
func (o *origin) pieces(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n, _ := strconv.Atoi(q.Get("n"))
	w.Header().Set("Content-Type", q.Get("media"))
	for i := range n {
		o.sent <- time.Now()
		_, _ = fmt.Fprintf(w, q.Get("format"), i)
		w.(http.Flusher).Flush()
		select {
		case <-o.took:
		case <-time.After(pieceWait):
			panic(http.ErrAbortHandler)
		}
	}
}

// take tells of each piece of a request as it comes.
func (o *origin) take(_ http.ResponseWriter, r *http.Request) {
	b := make([]byte, 4096)
	for {
		n, err := r.Body.Read(b)
		if n > 0 {
			o.got <- n
		}
		if err != nil {
			return
		}
	}
}

// slowly answers with a body that drips, when it has the request's.
func slowly(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(&patternCheck{}, r.Body)
	w.Header().Set("X-Took", fmt.Sprint(n, err))
	p := &pattern{}
	for range 20 {
		_, _ = io.CopyN(w, p, 100)
		w.(http.Flusher).Flush()
		time.Sleep(5 * time.Millisecond)
	}
}

// median of delays.
func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// held is far more than a piece takes on a machine that is busy, and less
// than one that is held until something else comes.
const held = 500 * time.Millisecond

// piecewise reads n pieces and returns how long each took from the origin.
func (c *column) piecewise(t testing.TB, media, format string, n int) (delays []time.Duration) {
	t.Helper()
	r, err := c.client(t, c.h2).Get(c.url("/pieces?" + url.Values{"n": {strconv.Itoa(n)}, "media": {media}, "format": {format}}.Encode()))
	must(t, err)
	defer r.Body.Close()
	if got := r.Header.Get("Content-Type"); got != media {
		t.Fatalf("content type %q", got)
	}
	lines := bufio.NewReader(r.Body)
	for i := range n {
		want := fmt.Sprintf(format, i)
		for got := ""; got != want; {
			line, err := lines.ReadString('\n')
			must(t, err)
			if got += line; !strings.HasPrefix(want, got) {
				t.Fatalf("piece %d is %q", i, got)
			}
		}
		delays = append(delays, time.Since(<-c.sent))
		c.took <- struct{}{}
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Fatalf("%q, %v", rest, err)
	}
	return delays
}

// pieces: each piece comes although the next is sent only then.
func (c *column) pieces(t *testing.T, media, format string) {
	if m := median(c.piecewise(t, media, format, 30)); m > held {
		t.Errorf("a piece takes %v", m)
	} else {
		t.Logf("a piece takes %v", m)
	}
}

// requestPieces: the same of a request's body.
func (c *column) requestPieces(t *testing.T) {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, _, err := body(c.client(t, c.h2).Post(c.url("/take"), "text/plain", pr))
		done <- err
	}()
	for i := range 10 {
		_, err := io.WriteString(pw, "piece")
		must(t, err)
		for left := len("piece"); left > 0; {
			select {
			case n := <-c.got:
				left -= n
			case <-time.After(pieceWait):
				t.Fatalf("piece %d does not come", i)
			}
		}
	}
	must(t, pw.Close())
	must(t, <-done)
}

// BenchmarkPieceDelay measures what a piece of a stream takes from the origin
// to the client, both in this process.
func BenchmarkPieceDelay(b *testing.B) {
	report := func(b *testing.B, delays []time.Duration) {
		slices.Sort(delays)
		b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "µs-p50")
		b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "µs-p99")
	}
	for _, h2 := range []bool{false, true} {
		protocol := map[bool]string{false: "h1", true: "h2"}[h2]
		for name, piece := range map[string][2]string{"SSE": {"text/event-stream", "data: %d\n\n"}, "ndjson": {"application/x-ndjson", "{\"i\":%d}\n"}} {
			b.Run(name+"/"+protocol, func(b *testing.B) {
				l := newLab(b)
				c := &column{lab: l, origin: l.origin(b, "h2", "http/1.1"), scheme: "https", h2: h2, h2up: true}
				l.allow("api.test", c.port)
				l.load()
				report(b, c.piecewise(b, piece[0], piece[1], max(b.N, 10)))
			})
		}
	}
	b.Run("gRPC", func(b *testing.B) {
		s, err := newLab(b).grpcOrigin(b).FullDuplexCall(b.Context())
		must(b, err)
		report(b, both(b, func() error {
			if err := s.Send(&rpc.StreamingOutputCallRequest{ResponseParameters: []*rpc.ResponseParameters{{Size: 100}}}); err != nil {
				return err
			}
			_, err := s.Recv()
			return err
		}))
	})
	b.Run("WebSocket", func(b *testing.B) {
		l := newLab(b)
		o := l.origin(b, "http/1.1")
		l.allow("api.test", o.port)
		l.load()
		c := l.dialWebSocket(b, o, "/ws")
		report(b, both(b, func() error {
			ctx, cancel := context.WithTimeout(b.Context(), pieceWait)
			defer cancel()
			if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
				return err
			}
			_, _, err := c.Read(ctx)
			return err
		}))
	})
}

// both measures a message there and its answer back, and counts half.
func both(b *testing.B, trip func() error) (delays []time.Duration) {
	for range max(b.N, 10) {
		began := time.Now()
		must(b, trip())
		delays = append(delays, time.Since(began)/2)
	}
	return delays
}

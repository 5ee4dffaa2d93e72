package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"sallyport/audit"
	"sallyport/gateway/inject"
	"sallyport/policy"
)

// wideBrotli begins a stream in br with a window of 16 MiB, and a piece as long
// that is not compressed (RFC 7932, sections 9.1 and 9.2).
const wideBrotli = "\xcf\xff\xff\xff"

// answering starts an origin of api.test.
func (l *lab) answering(t testing.TB, f http.HandlerFunc) uint16 {
	t.Helper()
	ln := listen(t)
	cert, err := l.origins.Leaf("api.test")
	must(t, err)
	s := &http.Server{Handler: f, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}}}
	go func() { _ = s.ServeTLS(ln, "", "") }() // until it is closed
	t.Cleanup(func() { _ = s.Close() })
	return portOf(ln)
}

// heap is what is reachable, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// until waits for what is to happen.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("there is not: " + what)
		}
	}
}

// unread opens streams of one connection that asks for answers, and grants none
// of them a byte.
func (l *lab) unread(t *testing.T, port uint16, streams int) *stream2 {
	t.Helper()
	c := l.rawTLS(t, "api.test", port, "h2")
	_, err := io.WriteString(c, http2.ClientPreface)
	must(t, err)
	s := newStream2(c)
	must(t, s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	must(t, s.WriteSettingsAck())
	go func() { _, _ = io.Copy(io.Discard, c) }() // until it is closed
	for i := range streams {
		s.head(t, uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":path", "/", ":authority", "api.test")
	}
	return s
}

// endedFor counts the requests that were ended, or never begun, for a reason.
func (l *lab) endedFor(reason policy.Reason) int {
	return len(l.events(func(e *audit.Event) bool {
		return e.Kind == audit.KindHTTP && e.Reason == string(reason) && (e.Phase == audit.PhaseEnd || e.Verdict == "deny")
	}))
}

// TestAnswersThatAreNotRead: what the windows of compressed ones take is bounded,
// and those over the bound are ended.
func TestAnswersThatAreNotRead(t *testing.T) {
	l := newLab(t)
	port := l.answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, wideBrotli+"a text") // the gateway ends some
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	l.allow("api.test", port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	_, err := l.store.Get(t.Context(), secretName)
	must(t, err)
	l.load()
	const window = 16 << 20
	const streams = sandboxUnpacks/window + 4
	before := heap()
	s := l.unread(t, port, streams)
	until(t, "an end of those over the bound", func() bool { return l.endedFor(policy.RateLimited) >= streams-sandboxUnpacks/window })
	time.Sleep(100 * time.Millisecond)
	used := l.g.unpacks.used.Load()
	if used > sandboxUnpacks || used < window || used != l.g.state(l.sandbox.ID).unpacks.used.Load() {
		t.Errorf("%d bytes are taken", used)
	}
	if got := heap() - before; got > sandboxUnpacks+32<<20 {
		t.Errorf("%d bytes are held, %d taken", got, used)
	}
	must(t, s.Conn.Close())
	until(t, "nothing taken", func() bool { return l.g.unpacks.used.Load() == 0 && l.g.state(l.sandbox.ID).unpacks.used.Load() == 0 })
}

// TestAnswersWithoutRoom: while there is none at all, a compressed answer is
// another one that says so, and one that is not compressed comes.
func TestAnswersWithoutRoom(t *testing.T) {
	l := newLab(t)
	port := l.answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plain" {
			_, _ = io.WriteString(w, "plain") // as the client reads it
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "packed") // likewise
		_ = z.Close()
	})
	l.allow("api.test", port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	_, err := l.store.Get(t.Context(), secretName)
	must(t, err)
	l.load()
	own := &l.g.state(l.sandbox.ID).unpacks.used
	ask := func(path string) (*http.Response, string) {
		r, text, err := body(l.client(t, false).Get("https://" + net.JoinHostPort("api.test", strconv.Itoa(int(port))) + path))
		must(t, err)
		return r, text
	}
	own.Add(sandboxUnpacks)
	if r, text := ask("/"); r.StatusCode != http.StatusTooManyRequests || !strings.Contains(text, "rate_limited") {
		t.Errorf("%s: %s", r.Status, text)
	}
	l.await(t, "the end", func(e *audit.Event) bool { return e.Phase == audit.PhaseEnd && e.Reason == string(policy.RateLimited) })
	if r, text := ask("/plain"); r.StatusCode != http.StatusOK || text != "plain" {
		t.Errorf("%s: %s", r.Status, text)
	}
	own.Add(-sandboxUnpacks)
	if r, text := ask("/"); r.StatusCode != http.StatusOK || !strings.Contains(text, "packed") {
		t.Errorf("%s: %s", r.Status, text)
	}
	until(t, "nothing taken", func() bool { return own.Load() == 0 && l.g.unpacks.used.Load() == 0 })
}

// TestMessagesThatAreNotRead: a message of gRPC takes what it came as, whatever
// it stands for.
func TestMessagesThatAreNotRead(t *testing.T) {
	l := newLab(t)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, secretValue) // to memory
	_, _ = w.Write(make([]byte, 4<<20))
	must(t, w.Close())
	sent := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(packed.Len())), packed.Bytes()...)
	port := l.answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Encoding", "gzip")
		_, _ = w.Write(sent) // likewise
	})
	l.allow("api.test", port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	_, err := l.store.Get(t.Context(), secretName)
	must(t, err)
	l.load()
	const streams = 8
	before := heap()
	s := l.unread(t, port, streams)
	until(t, "what all messages take", func() bool { return l.g.unpacks.used.Load() >= int64(streams*packed.Len()) })
	time.Sleep(500 * time.Millisecond)
	if got := heap() - before; got > 16<<20 {
		t.Errorf("%d bytes are held, %d taken", got, l.g.unpacks.used.Load())
	}
	if n := l.endedFor(policy.RateLimited); n != 0 {
		t.Errorf("%d were ended", n)
	}
	must(t, s.Conn.Close())
	until(t, "nothing taken", func() bool { return l.g.unpacks.used.Load() == 0 })
}

// TestBodiesThatAreNotFinished: what the windows of compressed ones take is
// bounded, and requests over the bound are refused.
func TestBodiesThatAreNotFinished(t *testing.T) {
	l := newLab(t)
	port := l.answering(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	l.allow("api.test", port, func(r *policy.Rule) { r.Inject = []policy.Ref{{Name: secretName}} })
	snap := l.snapshot()
	spec := *snap.Policy.Secret(secretName)
	spec.Body = &policy.BodyPlace{Fields: []string{"key"}}
	snap.Inject = inject.NewTable([]inject.Secret{{Name: secretName, Spec: &spec, Covers: func(h string) bool { return h == "api.test" }}},
		snap.Policy.Sandboxes(), []byte("key"))
	l.g.Swap(snap)
	client := l.client(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const window = 16 << 20
	const streams = sandboxUnpacks/window + 4
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			q, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.test/", io.MultiReader(strings.NewReader(wideBrotli+`{"a":"a text`), waits{ctx}))
			if err != nil {
				t.Error(err)
				return
			}
			q.URL.Host = net.JoinHostPort("api.test", strconv.Itoa(int(port)))
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Content-Encoding", "br")
			if r, _, err := body(client.Do(q)); err == nil && r.StatusCode != http.StatusTooManyRequests {
				t.Errorf("answered %s", r.Status)
			}
		})
	}
	until(t, "an end of those over the bound", func() bool { return l.endedFor(policy.RateLimited) >= streams-sandboxUnpacks/window })
	if used := l.g.unpacks.used.Load(); used > sandboxUnpacks || used < window {
		t.Errorf("%d bytes are taken", used)
	}
	cancel()
	wg.Wait()
	until(t, "nothing taken", func() bool { return l.g.unpacks.used.Load() == 0 })
}

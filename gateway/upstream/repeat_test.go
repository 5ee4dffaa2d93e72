package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// framedOrigin is an origin of HTTP/2 alone that answers a request, told by
// its number among all, with frames of its own.
func framedOrigin(t *testing.T, answer func(f *framed, request int, stream uint32)) (o *origin, requests *atomic.Int64) {
	t.Helper()
	ca := newAuthority(t)
	o = newOrigin(t, true, nil)
	o.roots.AddCert(ca.cert)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	o.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	requests = new(atomic.Int64)
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serveFrames(c, requests, answer)
			})
		}
	})
	return o, requests
}

// framed is a connection of a framedOrigin.
type framed struct{ *http2.Framer }

// headers answers a stream with fields and nothing else, or with more to come.
func (f *framed) headers(stream uint32, end bool, fields ...string) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: end})
}

func serveFrames(c net.Conn, requests *atomic.Int64, answer func(*framed, int, uint32)) {
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := &framed{http2.NewFramer(c, bufio.NewReader(c))}
	f.WriteSettings()
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch fr := fr.(type) {
		case *http2.SettingsFrame:
			if !fr.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			n := int(requests.Add(1))
			if fr.StreamEnded() {
				answer(f, n, fr.StreamID)
			}
		case *http2.DataFrame:
			if fr.StreamEnded() {
				answer(f, int(requests.Load()), fr.StreamID)
			}
		}
	}
}

func reset(code http2.ErrCode, most int) func(*framed, int, uint32) {
	return func(f *framed, request int, stream uint32) {
		if request <= most {
			f.WriteRSTStream(stream, code)
			return
		}
		f.headers(stream, true, ":status", "200")
	}
}

// TestRepeatsOverHTTP2: a request is sent once more where the peer has said
// that it did not look at it, and never otherwise.
func TestRepeatsOverHTTP2(t *testing.T) {
	const always = 1 << 20
	for _, tc := range []struct {
		name   string
		answer func(*framed, int, uint32)
		want   int64  // requests that arrive
		class  string // of the error
	}{
		{"PROTOCOL_ERROR", reset(http2.ErrCodeProtocol, always), 1, "protocol"},
		{"PROTOCOL_ERROR at first", reset(http2.ErrCodeProtocol, 1), 1, "protocol"},
		{"INTERNAL_ERROR", reset(http2.ErrCodeInternal, always), 1, "reset"},
		{"CANCEL", reset(http2.ErrCodeCancel, always), 1, "reset"},
		{"REFUSED_STREAM", reset(http2.ErrCodeRefusedStream, always), 2, "reset"},
		{"REFUSED_STREAM at first", reset(http2.ErrCodeRefusedStream, 1), 2, ""},
		{"GOAWAY before it", func(f *framed, request int, stream uint32) {
			f.WriteGoAway(0, http2.ErrCodeNo, nil)
		}, 2, "reset"},
		{"GOAWAY before it at first", func(f *framed, request int, stream uint32) {
			if request == 1 {
				f.WriteGoAway(0, http2.ErrCodeNo, nil)
				return
			}
			f.headers(stream, true, ":status", "200")
		}, 2, ""},
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(tc.name+" "+method, func(t *testing.T) {
				o, requests := framedOrigin(t, tc.answer)
				u := newUpstream(t, Options{Roots: o.roots})
				var b io.Reader
				if method == "POST" {
					b = strings.NewReader("data")
				}
				resp, _, err := send(t, u, o.target(), "https", method, b, speaksHTTP2)
				if class, _ := ErrorClass(err); class != tc.class {
					t.Errorf("%s: %v", class, err)
				}
				if err == nil {
					resp.Body.Close()
				}
				if n := requests.Load(); n != tc.want {
					t.Errorf("the origin received %d requests, want %d", n, tc.want)
				}
			})
		}
	}
}

// TestServerThatTakesNoStream: a connection that never takes a request is not
// followed by another one.
func TestServerThatTakesNoStream(t *testing.T) {
	var conns atomic.Int64
	ca := newAuthority(t)
	o := newOrigin(t, true, nil)
	o.roots.AddCert(ca.cert)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.issue(t, nil)}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	o.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() }) // after the Upstream has closed what it has
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			wg.Go(func() {
				defer c.Close()
				f := http2.NewFramer(c, c)
				f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0})
				f.WriteGoAway(0, http2.ErrCodeNo, nil)
				io.Copy(io.Discard, c)
			})
		}
	})
	u := newUpstream(t, Options{Roots: o.roots})
	if _, _, err := send(t, u, o.target(), "https", "GET", nil, speaksHTTP2); err == nil {
		t.Error("answered")
	}
	if n := conns.Load(); n < 1 || n > 2 {
		t.Errorf("%d connections", n)
	}
}

// TestAnswerWithoutBodyOverHTTP2: what a status has no body for is whole with
// its fields, whatever length they name.
func TestAnswerWithoutBodyOverHTTP2(t *testing.T) {
	for _, tc := range []struct {
		method, status string
		end            bool // with the fields
	}{
		{"GET", "304", true}, {"GET", "304", false}, {"GET", "204", true}, {"GET", "204", false}, {"HEAD", "200", true}, {"HEAD", "304", true},
	} {
		t.Run(fmt.Sprint(tc.method, tc.status, tc.end), func(t *testing.T) {
			o, _ := framedOrigin(t, func(f *framed, _ int, stream uint32) {
				f.headers(stream, tc.end, ":status", tc.status, "content-length", "10")
				if !tc.end {
					f.WriteData(stream, true, nil)
				}
			})
			u := newUpstream(t, Options{Roots: o.roots})
			for range 2 {
				resp, _, body := mustSend(t, u, o.target(), "https", tc.method, nil, speaksHTTP2)
				if body != "" || resp.Header.Get("Content-Length") != "10" {
					t.Errorf("%q, %v", body, resp.Header)
				}
			}
		})
	}
}

// keptOrigin answers the first request on each connection once as many have
// come, and hangs up on the second; later tells what is done with a request on
// a connection that comes after those.
type keptOrigin struct {
	*origin
	arrived atomic.Int64 // requests but the first of each kept connection
}

func newKeptOrigin(t *testing.T, kept int, answersLater bool) *keptOrigin {
	t.Helper()
	o := &keptOrigin{origin: newOrigin(t, false, nil)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.port = uint16(ln.Addr().(*net.TCPAddr).Port)
	var together, wg sync.WaitGroup
	together.Add(kept)
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				o.serve(c, n < kept, answersLater, &together)
			})
		}
	})
	return o
}

func (o *keptOrigin) serve(c net.Conn, kept, answersLater bool, together *sync.WaitGroup) {
	r := bufio.NewReader(c)
	for first := true; ; first = false {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		switch {
		case kept && first:
			together.Done()
			together.Wait()
		case o.arrived.Add(1) > 0 && (kept || !answersLater):
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// TestRepeatsOverKeptConnections: of many kept connections that hang up on
// what they are sent, one is believed to have been dead before, and only for
// a request that is safe.
func TestRepeatsOverKeptConnections(t *testing.T) {
	const kept = 4
	for _, tc := range []struct {
		method, header string
		answersLater   bool
		want           int64 // requests that arrive
		answered       bool
	}{
		{"GET", "", true, 2, true},
		{"HEAD", "", true, 2, true},
		{"OPTIONS", "", true, 2, true},
		{"GET", "", false, 2, false},
		{"GET", "Idempotency-Key", false, 2, false},
		{"TRACE", "", true, 1, false},
		{"POST", "", true, 1, false},
		{"DELETE", "", true, 1, false},
		{"POST", "Idempotency-Key", true, 1, false},
		{"POST", "X-Idempotency-Key", true, 1, false},
	} {
		t.Run(fmt.Sprint(tc.method, tc.header, tc.answersLater), func(t *testing.T) {
			o := newKeptOrigin(t, kept, tc.answersLater)
			u := newUpstream(t, Options{})
			var wg sync.WaitGroup
			for range kept {
				wg.Go(func() { mustSend(t, u, o.target(), "http", "GET", nil, nil) })
			}
			wg.Wait()
			resp, info, err := send(t, u, o.target(), "http", tc.method, nil, func(r *http.Request) {
				if tc.header != "" {
					r.Header.Set(tc.header, "1")
				}
			})
			if (err == nil) != tc.answered {
				t.Errorf("%v", err)
			}
			if class, _ := ErrorClass(err); err != nil && class != "reset" {
				t.Errorf("%s: %v", class, err)
			}
			if err == nil {
				resp.Body.Close()
				if info.Reused {
					t.Error("sent again over a kept connection")
				}
			}
			if n := o.arrived.Load(); n != tc.want {
				t.Errorf("the origin received %d requests, want %d", n, tc.want)
			}
		})
	}
}

// TestConnectionsOfABurstAreClosed: of what is dialled for many requests at
// once over HTTP/2, what is not needed does not stay.
func TestConnectionsOfABurstAreClosed(t *testing.T) {
	const burst = 40
	var inHandler, release sync.WaitGroup
	inHandler.Add(burst)
	release.Add(1)
	o := newOrigin(t, true, func(http.ResponseWriter, *http.Request) {
		inHandler.Done()
		release.Wait()
	})
	u := newUpstream(t, Options{Roots: o.roots})
	var wg sync.WaitGroup
	for range burst {
		wg.Go(func() { mustSend(t, u, o.target(), "https", "GET", nil, speaksHTTP2) })
	}
	inHandler.Wait()
	release.Done()
	wg.Wait()
	pool := u.Transport("s1")
	open := func() int {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return len(pool.conns)
	}
	for end := time.Now().Add(20 * time.Second); open() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are kept", open())
		}
	}
}

// TestCloseIdleOverHTTP2: what a request uses is left alone.
func TestCloseIdleOverHTTP2(t *testing.T) {
	o := newOrigin(t, true, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(flushing{w}, r.Body)
	})
	u := newUpstream(t, Options{Roots: o.roots})
	pr, pw := io.Pipe()
	resp, _, err := send(t, u, o.target(), "https", "POST", pr, speaksHTTP2)
	if err != nil {
		t.Fatal(err)
	}
	u.CloseIdle()
	go func() {
		_, _ = io.WriteString(pw, "on")
		_ = pw.Close()
	}()
	b, err := io.ReadAll(resp.Body)
	if string(b) != "on" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	_ = resp.Body.Close()
	u.CloseIdle()
	_, info, err := send(t, u, o.target(), "https", "GET", nil, speaksHTTP2)
	if info.Reused || err != nil {
		t.Errorf("an idle connection was kept: %+v, %v", info, err)
	}
}

// keepsBack is a Watcher that lets nothing go, and ends the request.
type keepsBack struct{ end func() }

func (k keepsBack) Reached(*netip.AddrPort) bool {
	k.end()
	return false
}

// TestWhatIsKeptBackIsNotWritten: over HTTP/1.1 net/http writes a request that
// has ended since it took a connection for it.
func TestWhatIsKeptBackIsNotWritten(t *testing.T) {
	var asked atomic.Int32
	o := newOrigin(t, true, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	u := newUpstream(t, Options{Roots: o.roots})
	const rounds = 200
	for range rounds {
		mustSend(t, u, o.target(), "https", "GET", nil, nil) // whose connection is kept
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := send(t, u, o.target(), "https", "GET", nil, func(r *http.Request) {
			route, err := u.Route(ctx, o.target(), nil)
			if err != nil {
				t.Fatal(err)
			}
			*r = *r.WithContext(WithAttempt(ctx, &Attempt{Route: route, Watch: keepsBack{cancel}}))
		})
		if err == nil {
			t.Fatal("it was answered")
		}
	}
	time.Sleep(50 * time.Millisecond) // what was written would have come
	if n := asked.Load(); n != rounds {
		t.Errorf("%d requests came, want %d", n, rounds)
	}
}

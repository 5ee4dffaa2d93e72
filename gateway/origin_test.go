package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// origin is a server behind the gateway. It keeps what it saw.
type origin struct {
	port uint16

	mu        sync.Mutex
	requests  []*http.Request // without their bodies
	trailer   string          // X-Req-T of the last /trailers
	cancelled chan struct{}   // closed when /hang was given up
	gate      gate            // of /together
	sent      chan time.Time  // by /pieces: when each piece was sent
	took      chan struct{}   // likewise: that it has come
	got       chan int        // by /take: bytes of a piece of a request
}

func (o *origin) saw() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*http.Request(nil), o.requests...)
}

func newOrigin(ln net.Listener) *origin {
	return &origin{port: portOf(ln), cancelled: make(chan struct{}), sent: make(chan time.Time, 1), took: make(chan struct{}), got: make(chan int)}
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// listen returns a listener of an origin.
func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// originWith starts a server with one certificate, whatever is asked for.
func (l *lab) originWith(t testing.TB, cert tls.Certificate) *origin {
	t.Helper()
	ln := listen(t)
	o := newOrigin(ln)
	s := &http.Server{Handler: o.keep(o.mux()), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
	return o
}

// origin starts a server, over TLS with these ALPN protocols or, without
// any, in plain text. With h2 first it speaks nothing else but WebSocket.
func (l *lab) origin(t testing.TB, protocols ...string) *origin {
	t.Helper()
	return l.serveOn(t, listen(t), protocols...)
}

// serveOn is origin on a listener.
func (l *lab) serveOn(t testing.TB, ln net.Listener, protocols ...string) *origin {
	o := newOrigin(ln)
	s := &http.Server{Handler: o.keep(o.mux()), Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	s.Protocols.SetHTTP1(true)
	if len(protocols) > 0 {
		s.Protocols.SetHTTP2(protocols[0] == "h2")
		leaf := func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }
		s.TLSConfig = &tls.Config{NextProtos: protocols, GetCertificate: leaf}
		if protocols[0] == "h2" {
			// Who offers HTTP/1.1 alone is refused; an upgrade offers nothing.
			refusal := &tls.Config{NextProtos: []string{"none"}, GetCertificate: leaf}
			s.TLSConfig.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				if len(h.SupportedProtos) > 0 && !slices.Contains(h.SupportedProtos, "h2") {
					return refusal, nil
				}
				return nil, nil
			}
		}
		go func() { _ = s.ServeTLS(ln, "", "") }()
	} else {
		go func() { _ = s.Serve(ln) }()
	}
	t.Cleanup(func() { _ = s.Close() })
	return o
}

func (o *origin) keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.requests = append(o.requests, r.Clone(r.Context()))
		o.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// pause is between two pieces of a stream. Pieces that come together took
// less than half of it; a wide bound, not a measurement.
const pause = time.Second

func (o *origin) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for path, h := range map[string]http.HandlerFunc{
		"/hello":    hello,
		"/pieces":   o.pieces,
		"/together": o.together,
		"/take":     o.take,
		"/events": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
			}
		},
		"/goaway": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close") // over HTTP/2 it is GOAWAY
			_, _ = io.WriteString(w, "last")
		},
		"/abort":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"/slow":    slowly,
		"/down":    down,
		"/up":      up,
		"/echo":    echo,
		"/head":    head,
		"/early":   early,
		"/trunc":   truncated,
		"/cookies": cookies,
		"/ws":      webSocket,
		"/refuse":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusExpectationFailed) },
		"/early413": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1.1 waits for more of the body without
			_, _ = io.CopyN(io.Discard, r.Body, 10<<10)
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, r.URL.Query().Get("say"))
		},
		"/304": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"a"`)
			w.WriteHeader(http.StatusNotModified)
		},
		"/204": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"/range": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.bin", time.Time{}, io.NewSectionReader(patternAt{}, 0, 1<<20))
		},
		"/trailers": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			o.mu.Lock()
			o.trailer = r.Trailer.Get("X-Req-T")
			o.mu.Unlock()
			w.Header().Set("Trailer", "X-T")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-T", "tv")
			w.Header().Set(http.TrailerPrefix+"X-Un", "un")
		},
		"/hang": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then is a client that goes seen
			<-r.Context().Done()
			close(o.cancelled)
		},
		"/forever": func(w http.ResponseWriter, r *http.Request) { // a stream without an end
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		},
		"/drip": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "data: x\n\n")
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		},
	} {
		mux.HandleFunc(path, h)
	}
	return mux
}

func hello(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Proto", r.Proto)
	h.Set("X-Auth", r.Header.Get("Authorization"))
	h.Set("X-Dump", fmt.Sprintf("%q", r.Header))
	_, _ = io.WriteString(w, "hello")
}

func down(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if r.URL.Query().Get("cl") == "1" {
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	_, _ = io.CopyN(w, &pattern{}, n)
}

func up(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(&patternCheck{}, r.Body)
	_, _ = fmt.Fprintf(w, "%d %v cl=%d te=%v", n, err, r.ContentLength, r.TransferEncoding)
}

func echo(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	b := make([]byte, 4096)
	for {
		n, err := r.Body.Read(b)
		_, _ = w.Write(b[:n])
		w.(http.Flusher).Flush()
		if err != nil {
			return
		}
	}
}

func head(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "12345")
	if r.Method != http.MethodHead {
		_, _ = io.CopyN(w, &pattern{}, 12345)
	}
}

func early(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Link", "</a.css>; rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Del("Link")
	w.WriteHeader(http.StatusOK)
}

func truncated(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.CopyN(w, &pattern{}, 50000)
	w.(http.Flusher).Flush()
	time.Sleep(50 * time.Millisecond)
	panic(http.ErrAbortHandler)
}

func cookies(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Set-Cookie", "a=1")
	w.Header().Add("Set-Cookie", "b=2")
	w.Header().Add("Www-Authenticate", "Basic realm=a")
	w.Header().Add("Www-Authenticate", "Bearer realm=b")
	_, _ = fmt.Fprintf(w, "%q", r.Header["Cookie"])
}

func webSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	if r.URL.Query().Get("close") == "1" {
		_ = c.Close(4001, "bye")
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 24)
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, b) != nil {
			return
		}
	}
}

// pattern is a stream in which each byte follows from its place.
type pattern struct{ n int }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte((p.n + i) % 251)
	}
	p.n += len(b)
	return len(b), nil
}

// patternCheck fails when what is written to it is not the pattern.
type patternCheck struct{ n int }

func (p *patternCheck) Write(b []byte) (int, error) {
	for i := range b {
		if b[i] != byte((p.n+i)%251) {
			return i, fmt.Errorf("byte %d is %d", p.n+i, b[i])
		}
	}
	p.n += len(b)
	return len(b), nil
}

type patternAt struct{}

func (patternAt) ReadAt(b []byte, off int64) (int, error) {
	return (&pattern{int(off)}).Read(b)
}

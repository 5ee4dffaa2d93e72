package http2guard

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
)

// headLimit is what the servers of these tests take of a head, in bytes.
const headLimit = 16 << 10

// served is one connection of net/http's server behind a Guard.
type served struct {
	net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder

	guard  *Guard
	mu     sync.Mutex
	called int
	faults []Fault
	hold   chan struct{} // nil, or what handlers wait for
}

// watched shows what is read to a Guard.
type watched struct {
	net.Conn
	seen  int
	guard *Guard
}

func (w *watched) Read(b []byte) (int, error) {
	if w.seen == len(http2.ClientPreface) {
		return w.guard.Read(w.Conn, b)
	}
	n, err := w.Conn.Read(b[:min(len(b), len(http2.ClientPreface)-w.seen)])
	w.seen += n
	return n, err
}

func (w *watched) Write(b []byte) (int, error) {
	if err := w.guard.Sent(b); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

func (w *watched) Close() error { return errors.Join(w.guard.End(), w.Conn.Close()) }

// one is a listener of one connection.
type one struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (o one) Accept() (net.Conn, error) {
	c, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return o.wrap(c), nil
}

// unread is a field of requests whose body their handler does not read.
const unread = "x-unread"

func serve(t testing.TB) *served { return serveHeld(t, nil, 0) }

// serveHeld is serve with handlers that wait, and a bound on streams.
func serveHeld(t testing.TB, hold chan struct{}, streams int) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{hold: hold}
	s.enc = hpack.NewEncoder(&s.block)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &protocols, MaxHeaderBytes: headLimit, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams}, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !s.guard.Taken(r.Context(), r.Method, r.Host, r.RequestURI) {
			panic(http.ErrAbortHandler)
		}
		if s.hold != nil {
			<-s.hold
		}
		if r.Header.Get(unread) != "" {
			return // the server resets the stream
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.called++
	})}
	go func() {
		_ = server.Serve(one{l, func(c net.Conn) net.Conn {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.guard = New(headLimit+320, func(f Fault) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.faults = append(s.faults, f)
				return nil
			})
			return &watched{Conn: c, guard: s.guard}
		}})
	}()
	if s.Conn, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	_ = s.SetDeadline(time.Now().Add(30 * time.Second))
	s.framer = http2.NewFramer(s.Conn, s.Conn)
	_, err = io.WriteString(s.Conn, http2.ClientPreface)
	if err = errors.Join(err, s.framer.WriteSettings()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = s.Conn.Close(), server.Close() })
	return s
}

// ask sends a head in pieces of at most size bytes, and ends the stream.
func (s *served) ask(id uint32, size int, pairs []string) { s.write(id, true, size, pairs) }

// write is ask, and ends the stream or leaves it open.
func (s *served) write(id uint32, end bool, size int, pairs []string) {
	s.block.Reset()
	for i := 0; i+1 < len(pairs); i += 2 {
		_ = s.enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) // to memory
	}
	b := s.block.Bytes()
	n := min(size, len(b))
	_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:n], EndStream: end, EndHeaders: n == len(b)})
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = min(size, len(b))
		_ = s.framer.WriteContinuation(id, n == len(b), b[:n]) // the server may have closed
	}
}

// answered waits for the answer of a stream, or the connection's end.
func (s *served) answered(id uint32) {
	for {
		f, err := s.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = s.framer.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if f.StreamID == id {
				return
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return
			}
		}
	}
}

func (s *served) counts() (called int, faults []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called, slices.Clone(s.faults)
}

func plain(more ...string) []string {
	return append([]string{":method", "POST", ":scheme", "https", ":authority", "a.test", ":path", "/"}, more...)
}

// TestH203EveryRequestIsSeenOnce: a request reaches its handler, or is a
// fault, and never both.
func TestH203EveryRequestIsSeenOnce(t *testing.T) {
	long := []string{"x-a", strings.Repeat("v", 12<<10), "x-b", strings.Repeat("v", 12<<10)}
	for name, tt := range map[string]struct {
		pairs []string
		fault bool
	}{
		"sound":                 {plain("x-a", "1", "te", "trailers"), false},
		"CRLF in a value":       {plain("x-a", "1\r\nauthorization: Bearer x"), true},
		"NUL in a value":        {plain("x-a", "1\x002"), true},
		"space in a name":       {plain("x y", "1"), true},
		"empty name":            {plain("", "1"), true},
		"upper case":            {plain("X-A", "1"), true},
		"transfer-encoding":     {plain("transfer-encoding", "chunked"), true},
		"connection":            {plain("connection", "close"), true},
		"te":                    {plain("te", "gzip"), true},
		"two paths":             {plain(":path", "/b"), true},
		"pseudo-header late":    {plain("x-a", "1", ":path", "/b"), true},
		"unknown pseudo-header": {append([]string{":host", "a.test"}, plain()...), true},
		"status":                {append([]string{":status", "200"}, plain()...), true},
		"no path":               {plain()[:6], true},
		"CRLF in the path":      {append(plain()[:6], ":path", "/\r\nX: y"), true},
		"no slash":              {append(plain()[:6], ":path", "a b"), true},
		"userinfo":              {[]string{":method", "GET", ":scheme", "https", ":authority", "b@a.test", ":path", "/"}, true},
		"userinfo in host":      {[]string{":method", "GET", ":scheme", "https", "host", "b@a.test", ":path", "/"}, true},
		"another scheme":        {[]string{":method", "GET", ":scheme", "ftp", ":authority", "a.test", ":path", "/"}, true},
		"scheme of clear text":  {append([]string{":method", "GET", ":scheme", "http"}, plain()[4:]...), true},
		"empty scheme, CONNECT": {[]string{":method", "CONNECT", ":authority", "a.test:443", ":scheme", ""}, false},
		"host twice":            {append(append([]string{}, plain()[:4]...), ":path", "/", "host", "", "host", "a.test"), false},
		"CONNECT":               {[]string{":method", "CONNECT", ":authority", "a.test:443"}, false},
		"CONNECT with a path":   {[]string{":method", "CONNECT", ":authority", "a.test:443", ":path", "/"}, true},
		"too large":             {plain(long...), true},
	} {
		for _, size := range []int{1 << 14, 7} {
			if size == 7 && name == "too large" {
				continue // see TestFloods
			}
			s := serve(t)
			s.ask(1, size, tt.pairs)
			s.answered(1)
			_ = s.CloseWrite()
			s.answered(99)
			called, faults := s.counts()
			if (len(faults) == 1) != tt.fault || called+len(faults) != 1 {
				t.Errorf("%s in pieces of %d: %d handled, faults %+v", name, size, called, faults)
			}
		}
	}
}

// CloseWrite half-closes.
func (s *served) CloseWrite() error { return s.Conn.(*net.TCPConn).CloseWrite() }

// TestH203AnyRequestIsSeenOnce draws requests. Whether the server knows
// :protocol is a setting of the program, so none has it.
func TestH203AnyRequestIsSeenOnce(t *testing.T) {
	names := []string{":method", ":path", ":scheme", ":authority", ":status", ":x", "", "host", "te", "connection", "upgrade", "x-a", "X-A", "x a", "content-length", "expect", "trailer", "cookie"}
	values := []string{"GET", "CONNECT", "/", "/a?b", "*", "https", "http", "a.test", "u@a.test", "trailers", "1\r\n2", "", "0", "websocket", "é"}
	rapid.Check(t, func(rt *rapid.T) {
		pairs := plain()
		for range rapid.IntRange(0, 4).Draw(rt, "changes") {
			name, value := rapid.SampledFrom(names).Draw(rt, "name"), rapid.SampledFrom(values).Draw(rt, "value")
			switch at := 2 * rapid.IntRange(0, len(pairs)/2-1).Draw(rt, "at"); rapid.IntRange(0, 3).Draw(rt, "how") {
			case 0:
				pairs = slices.Insert(pairs, at, name, value)
			case 1:
				pairs = append(pairs, name, value)
			case 2:
				pairs[at+1] = value
			default:
				if len(pairs) > 4 {
					pairs = slices.Delete(pairs, at, at+2)
				}
			}
		}
		s := serve(t)
		s.ask(1, 1<<14, pairs)
		s.answered(1)
		_ = s.CloseWrite()
		s.answered(99)
		if called, faults := s.counts(); called+len(faults) != 1 {
			rt.Fatalf("%q: %d handled, faults %+v", pairs, called, faults)
		}
		_ = s.Close()
	})
}

// TestFloods: a flood ends the connection, is one fault, and is not kept.
func TestFloods(t *testing.T) {
	for name, flood := range map[string]func(*served) error{
		"rapid reset": func(s *served) error {
			for id := uint32(1); ; id += 2 {
				s.ask(id, 1<<14, plain())
				if err := s.framer.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
					return err
				}
			}
		},
		"CONTINUATION": func(s *served) error {
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true})
			for {
				if err := s.framer.WriteContinuation(1, false, bytes.Repeat([]byte("\x00\x01a\x01b"), 800)); err != nil {
					return err
				}
			}
		},
		"empty CONTINUATION": func(s *served) error {
			_ = s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true})
			for {
				if err := s.framer.WriteContinuation(1, false, nil); err != nil {
					return err
				}
			}
		},
		"HPACK": func(s *served) error { // a field of 4000 bytes in the table, a thousand times
			s.block.Reset()
			_ = s.enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("v", 3900)})
			s.block.Write(bytes.Repeat([]byte{0x80 | 62}, 12000))
			return s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: s.block.Bytes(), EndHeaders: true, EndStream: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			go func() { _, _ = io.Copy(io.Discard, s.Conn) }()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			if err := flood(s); err != nil && errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if _, faults := s.counts(); len(faults) > 0 || time.Now().After(end) {
					break
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
				t.Errorf("%d bytes are held", grown)
			}
			_, faults := s.counts()
			if n := told(faults, func(f Fault) bool { return !f.Lost || strings.Contains(f.Detail, "inside") }); n != 1 {
				t.Errorf("faults %+v", faults)
			}
		})
	}
}

// FuzzGuard: no bytes make it fault or keep more than a head.
func FuzzGuard(f *testing.F) {
	f.Add([]byte("\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82"))
	f.Add([]byte("\x00\x00\x06\x01\x2d\x00\x00\x00\x03\x01\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x01\x01\x01\x00\x00\x00\x01\x82\x00\x00\x01\x09\x04\x00\x00\x00\x01\x84"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g := New(1<<10, func(Fault) error { return nil })
		for len(b) > 0 {
			n := min(len(b), 3)
			if _, err := g.Take(b[:n]); err != nil {
				break
			}
			if len(g.block)+len(g.payload) > 8<<10 {
				t.Fatalf("%d bytes are kept", len(g.block)+len(g.payload))
			}
			b = b[n:]
		}
		_ = g.End()
	})
}

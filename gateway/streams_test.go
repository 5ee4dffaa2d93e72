package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sallyport/audit"
	"sallyport/policy"
)

// toldOf counts the requests that denials of a reason are about.
func (l *lab) toldOf(reason policy.Reason) (n int) {
	for _, e := range l.events(func(e *audit.Event) bool {
		return e.Kind == audit.KindHTTP && e.Verdict == "deny" && e.Reason == string(reason)
	}) {
		n += int(max(e.Count, 1))
	}
	return n
}

// TestStreamsOverTheBound: each stream that is one too many is refused and
// recorded, and those within the bound go on.
func TestStreamsOverTheBound(t *testing.T) {
	const more = 30
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	ask := func(i int, path string) {
		s.head(t, uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":path", path, ":authority", "api.test")
	}
	for i := range maxStreams {
		ask(i, "/hang")
	}
	for end := time.Now().Add(20 * time.Second); l.g.live.count() != maxStreams+1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests are under way, of %d", l.g.live.count()-1, maxStreams)
		}
	}
	for i := range more {
		ask(maxStreams+i, "/over")
		if code := s.status(t, uint32(2*(maxStreams+i)+1)); code != "reset" {
			t.Fatalf("stream %d: %s", i, code)
		}
	}
	e := l.denied(t, audit.KindHTTP, policy.ConnectionLimit)
	if e.HTTP.Path != "/over" || e.HTTP.Method != "GET" || e.HTTP.Version != "2" || e.Host != "api.test" || e.Authority != "api.test:"+strconv.Itoa(int(o.port)) && e.Authority != "" {
		t.Errorf("%+v %+v", e, e.HTTP)
	}
	must(t, s.Conn.Close())
	for end := time.Now().Add(20 * time.Second); l.toldOf(policy.ConnectionLimit) < more && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := l.toldOf(policy.ConnectionLimit); n != more {
		t.Errorf("%d are recorded, of %d", n, more)
	}
}

// TestSchemeInsideTLS: a request for http inside TLS is no https request.
func TestSchemeInsideTLS(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	s.head(t, 1, true, ":method", "GET", ":scheme", "http", ":path", "/hello", ":authority", "api.test")
	ended(t, s.Conn, 5*time.Second)
	l.denied(t, audit.KindHTTP, policy.Smuggling)
	if n := len(o.saw()); n != 0 {
		t.Errorf("the origin saw %d requests", n)
	}
}

// TestHTTP2Floods: each ends its connection, and that is on record.
func TestHTTP2Floods(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	for _, tt := range []struct {
		name  string
		flood func(t *testing.T, s *stream2) error
		says  string
	}{
		{"rapid reset", func(_ *testing.T, s *stream2) (err error) {
			var block bytes.Buffer
			enc := hpack.NewEncoder(&block)
			for id := uint32(1); err == nil; id += 2 {
				block.Reset()
				for _, f := range []string{":method GET", ":scheme https", ":path /hang", ":authority api.test"} {
					name, value, _ := strings.Cut(f, " ")
					_ = enc.WriteField(hpack.HeaderField{Name: name, Value: value}) // to memory
				}
				err = s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
				err = errors.Join(err, s.WriteRSTStream(id, http2.ErrCodeCancel))
			}
			return err
		}, "too many streams are cancelled"},
		{"CONTINUATION", func(_ *testing.T, s *stream2) error {
			err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true})
			for err == nil {
				err = s.WriteContinuation(1, false, bytes.Repeat([]byte("\x00\x01a\x01b"), 800))
			}
			return err
		}, "head"},
		{"empty CONTINUATION", func(_ *testing.T, s *stream2) error {
			err := s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true})
			for err == nil {
				err = s.WriteContinuation(1, false, nil)
			}
			return err
		}, "head"},
		{"HPACK", func(_ *testing.T, s *stream2) error {
			var block bytes.Buffer
			enc := hpack.NewEncoder(&block)
			must(t, enc.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("v", 3900)}))
			block.Write(bytes.Repeat([]byte{0x80 | 62}, 12000))
			return s.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		}, "no method"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := l.framer(t, "api.test", o.port)
			port := uint16(s.LocalAddr().(*net.TCPAddr).Port)
			go func() { _, _ = io.Copy(io.Discard, s.Conn) }()
			must(t, s.SetWriteDeadline(time.Now().Add(15*time.Second)))
			if err := tt.flood(t, s); isTimeout(err) {
				t.Fatal("the flood goes on")
			}
			l.await(t, "the refusal of the flood", func(e *audit.Event) bool {
				return e.Kind == audit.KindHTTP && e.Verdict == "deny" && e.Src != nil && e.Src.Port == port && strings.Contains(e.Message, tt.says)
			})
		})
	}
}

// TestProtocolWithoutCONNECT: a request that names a protocol and is no CONNECT
// (RFC 8441, section 4) is refused before it is decided, and its stream alone.
func TestProtocolWithoutCONNECT(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	s.head(t, 1, true, ":method", "GET", ":protocol", "websocket", ":scheme", "https", ":path", "/hello", ":authority", "api.test")
	if code := s.status(t, 1); code != "400" {
		t.Errorf("status %s", code)
	}
	if e := l.denied(t, audit.KindHTTP, policy.Smuggling); e.HTTP.Method != "GET" || e.HTTP.Path != "/hello" {
		t.Errorf("recorded %+v", e.HTTP)
	}
	s.head(t, 3, true, ":method", "GET", ":scheme", "https", ":path", "/hello", ":authority", "api.test")
	if code := s.status(t, 3); code != "200" {
		t.Errorf("status %s of another request", code)
	}
	if n := len(o.saw()); n != 1 {
		t.Errorf("the origin saw %d requests", n)
	}
}

// TestStreamUsedAgain: a request on a stream that has ended is recorded, once,
// and the connection ends with it.
func TestStreamUsedAgain(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	ask := func(path string) {
		s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", path, ":authority", "api.test")
	}
	ask("/hello")
	if code := s.status(t, 1); code != "200" {
		t.Fatalf("status %s", code)
	}
	ask("/again")
	ended(t, s.Conn, 5*time.Second)
	if e := l.denied(t, audit.KindHTTP, policy.Smuggling); e.HTTP.Method != "GET" || e.HTTP.Path != "/again" {
		t.Errorf("recorded %+v", e.HTTP)
	}
	if n := l.toldOf(policy.Smuggling); n != 1 || len(o.saw()) != 1 {
		t.Errorf("%d are recorded, the origin saw %d requests", n, len(o.saw()))
	}
}

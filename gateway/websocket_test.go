package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sallyport/audit"
	"sallyport/policy"
)

// dialWebSocket opens a WebSocket of the sandbox over HTTP/1.1.
func (l *lab) dialWebSocket(t testing.TB, o *origin, path string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://api.test:"+strconv.Itoa(int(o.port))+path, &websocket.DialOptions{HTTPClient: l.client(t, false),
		CompressionMode: websocket.CompressionContextTakeover})
	must(t, err)
	t.Cleanup(func() { _ = c.CloseNow() })
	c.SetReadLimit(1 << 24)
	return c
}

// TestWS01 passes frames of a WebSocket and its close code, whatever the
// origin speaks besides.
func TestWS01(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			l := newLab(t)
			o := l.origin(t, protocol, "http/1.1")
			l.allow("api.test", o.port)
			l.load()
			c := l.dialWebSocket(t, o, "/ws")
			big := bytes.Repeat([]byte("x"), 1<<20)
			for range 5 {
				must(t, c.Write(t.Context(), websocket.MessageBinary, big))
				_, b, err := c.Read(t.Context())
				must(t, err)
				if !bytes.Equal(b, big) {
					t.Fatalf("%d bytes came back", len(b))
				}
			}
			must(t, c.Close(websocket.StatusNormalClosure, ""))
			c = l.dialWebSocket(t, o, "/ws?close=1")
			if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != 4001 {
				t.Fatalf("close status: %v", err)
			}
			l.await(t, "end of a WebSocket", func(e *audit.Event) bool {
				return e.Kind == audit.KindWS && e.Phase == audit.PhaseEnd && e.HTTP.Status == http.StatusSwitchingProtocols && e.Bytes.Received > 1000
			})
		})
	}
}

// TestWS01FrameWithHandshake: bytes that come with the handshake are not lost.
func TestWS01FrameWithHandshake(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	c := l.rawTLS(t, "api.test", o.port)
	_, err := c.Write(append([]byte(fmt.Sprintf(upgradeRequest, "/ws")), maskedFrame(1, "hello")...))
	must(t, err)
	got := make([]byte, 4096)
	var all []byte
	for !bytes.Contains(all, []byte("hello")) {
		n, err := c.Read(got)
		must(t, err)
		all = append(all, got[:n]...)
	}
	if !bytes.HasPrefix(all, []byte("HTTP/1.1 101 ")) {
		t.Fatalf("%q", all)
	}
}

const upgradeRequest = "GET %s HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// maskedFrame is a whole frame of a client (RFC 6455, section 5.2), shorter
// than 126 bytes, under a mask of zeros.
func maskedFrame(opcode byte, payload string) []byte {
	return append([]byte{0x80 | opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
}

// TestWSDeadClient: when the origin has closed, the sandbox's connection is
// closed too, even if the client never answers.
func TestWSDeadClient(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	c := l.rawTLS(t, "api.test", o.port)
	_, err := fmt.Fprintf(c, upgradeRequest, "/ws?close=1")
	must(t, err)
	ended(t, c, 15*time.Second)
}

// TestH109FakeUpgrade: an upgrade header on an answer that is no upgrade does
// not turn the connection into a tunnel, and a 101 that nobody asked for is an
// error.
func TestH109FakeUpgrade(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		status       int
		body         string
	}{
		{"200 with Upgrade", "HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nok", 200, "ok"},
		{"101 unasked", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 502, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			port := l.script(t, func(c net.Conn) { _, _ = io.WriteString(c, tt.answer) })
			l.allow("plain.test", port)
			l.load()
			r, b, err := body(l.client(t, false).Get("http://plain.test:" + strconv.Itoa(int(port)) + "/"))
			must(t, err)
			if r.StatusCode != tt.status || tt.body != "" && b != tt.body {
				t.Fatalf("%d %q", r.StatusCode, b)
			}
		})
	}
}

// script starts an origin in plain text that reads one head and then does f.
func (l *lab) script(t *testing.T, f func(net.Conn)) uint16 {
	t.Helper()
	return scripted(listen(t), f)
}

// begun is a connection of which something was read.
type begun struct {
	net.Conn
	all io.Reader
}

func (b *begun) Read(p []byte) (int, error) { return b.all.Read(p) }

// scripted does f with each connection of ln, behind the head of a request.
func scripted(ln net.Listener, f func(net.Conn)) uint16 {
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				head := make([]byte, 0, 4096)
				for !bytes.Contains(head, []byte("\r\n\r\n")) {
					n, err := c.Read(head[len(head):cap(head)])
					if err != nil {
						return
					}
					head = head[:len(head)+n]
				}
				if _, rest, _ := bytes.Cut(head, []byte("\r\n\r\n")); len(rest) > 0 {
					c = &begun{c, io.MultiReader(bytes.NewReader(rest), c)}
				}
				f(c)
			}()
		}
	}()
	return portOf(ln)
}

// stream2 is one HTTP/2 stream of a client that writes frames by hand.
type stream2 struct {
	*tls.Conn
	*http2.Framer
	enc bytes.Buffer
	hp  *hpack.Encoder
}

func newStream2(c *tls.Conn) *stream2 {
	s := &stream2{Conn: c, Framer: http2.NewFramer(c, c)}
	s.hp = hpack.NewEncoder(&s.enc)
	s.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return s
}

func http2Field(name, value string) hpack.HeaderField {
	return hpack.HeaderField{Name: name, Value: value}
}

// framer opens HTTP/2 by hand and returns the server's settings.
func (l *lab) framer(t *testing.T, host string, port uint16) (*stream2, map[http2.SettingID]uint32) {
	t.Helper()
	c := l.rawTLS(t, host, port, "h2")
	_, err := io.WriteString(c, http2.ClientPreface)
	must(t, err)
	s := newStream2(c)
	must(t, s.WriteSettings())
	settings := map[http2.SettingID]uint32{}
	f, err := s.ReadFrame()
	must(t, err)
	must(t, f.(*http2.SettingsFrame).ForeachSetting(func(v http2.Setting) error { settings[v.ID] = v.Val; return nil }))
	must(t, s.WriteSettingsAck())
	return s, settings
}

// head writes the header of a request.
func (s *stream2) head(t *testing.T, id uint32, end bool, fields ...string) {
	t.Helper()
	s.enc.Reset()
	for i := 0; i < len(fields); i += 2 {
		must(t, s.hp.WriteField(http2Field(fields[i], fields[i+1])))
	}
	must(t, s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.enc.Bytes(), EndHeaders: true, EndStream: end}))
}

// next returns the next frame of a kind for a stream, or the reset of it.
func (s *stream2) next(t *testing.T, id uint32, kind http2.FrameType) http2.Frame {
	t.Helper()
	for {
		f, err := s.ReadFrame()
		must(t, err)
		h := f.Header()
		if h.Type == http2.FrameSettings || h.StreamID != id || h.Type != kind && h.Type != http2.FrameRSTStream {
			continue
		}
		return f
	}
}

// status waits for the status of a stream's answer.
func (s *stream2) status(t *testing.T, id uint32) string {
	t.Helper()
	f, ok := s.next(t, id, http2.FrameHeaders).(*http2.MetaHeadersFrame)
	if !ok {
		return "reset"
	}
	return f.PseudoValue("status")
}

// openWebSocket2 opens a WebSocket on a stream (RFC 8441).
func (l *lab) openWebSocket2(t *testing.T, o *origin, path string) *stream2 {
	t.Helper()
	s, settings := l.framer(t, "api.test", o.port)
	if settings[http2.SettingEnableConnectProtocol] != 1 {
		t.Fatalf("settings %v do not offer WebSocket", settings)
	}
	s.head(t, 1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":path", path,
		":authority", "api.test", "sec-websocket-version", "13")
	if code := s.status(t, 1); code != "200" {
		t.Fatalf("status %s", code)
	}
	return s
}

// message reads one short message of stream 1.
func (s *stream2) message(t *testing.T) (string, error) {
	t.Helper()
	var got []byte
	for len(got) < 2 || len(got) < 2+int(got[1]) {
		d, ok := s.next(t, 1, http2.FrameData).(*http2.DataFrame)
		if !ok {
			return "", errors.New("stream was reset")
		}
		got = append(got, d.Data()...)
	}
	return string(got[2:]), nil
}

// TestWS01OverHTTP2 passes frames of a WebSocket on an HTTP/2 stream.
func TestWS01OverHTTP2(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	s := l.openWebSocket2(t, o, "/ws")
	for i := range 3 {
		want := "hello " + strconv.Itoa(i)
		must(t, s.WriteData(1, false, maskedFrame(1, want)))
		if got, err := s.message(t); err != nil || got != want {
			t.Fatalf("%q came back, %v", got, err)
		}
	}
	must(t, s.WriteData(1, true, maskedFrame(8, string(binary.BigEndian.AppendUint16(nil, 1000)))))
	e := l.await(t, "end of a WebSocket", func(e *audit.Event) bool { return e.Kind == audit.KindWS && e.Phase == audit.PhaseEnd })
	if e.HTTP.Version != "2" || e.HTTP.Method != http.MethodGet || e.HTTP.Status != http.StatusOK {
		t.Fatalf("%+v", e.HTTP)
	}
}

// TestWSOverHTTP2WriteAfterEnd: an origin that goes on writing while the
// client ends its stream meets a closed connection, not the stream of a
// handler that has returned.
func TestWSOverHTTP2WriteAfterEnd(t *testing.T) {
	l := newLab(t)
	port := l.script(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
		for {
			if _, err := c.Write(bytes.Repeat([]byte{0x82, 2, 'x', 'y'}, 64)); err != nil {
				return
			}
		}
	})
	tlsPort := l.overTLS(t, port)
	l.allow("api.test", tlsPort)
	l.load()
	for range 20 {
		s := l.openWebSocket2(t, &origin{port: tlsPort}, "/")
		must(t, s.WriteData(1, true, nil))
		_ = s.Conn.Close()
	}
}

// overTLS puts TLS before an origin in plain text.
func (l *lab) overTLS(t *testing.T, port uint16) uint16 {
	return l.secured(t, func(c net.Conn) {
		up, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(int(port)))
		if err != nil {
			_ = c.Close()
			return
		}
		go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
		_, _ = io.Copy(c, up)
		_ = c.Close()
	})
}

// secured starts an origin that does f with each connection over TLS.
func (l *lab) secured(t testing.TB, f func(net.Conn)) uint16 {
	t.Helper()
	cert, err := l.origins.Leaf("api.test")
	must(t, err)
	ln := tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{*cert}})
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go f(c)
		}
	}()
	return portOf(ln)
}

// TestP6WebSocketRefused: a rule may keep WebSocket out, over both protocols.
func TestP6WebSocketRefused(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port, func(r *policy.Rule) { r.NoWebSocket = true })
	l.load()
	c := l.rawTLS(t, "api.test", o.port)
	_, err := fmt.Fprintf(c, upgradeRequest, "/ws")
	must(t, err)
	r := readResponse(t, c)
	if r.StatusCode != http.StatusForbidden {
		t.Fatalf("status %d", r.StatusCode)
	}
	s, _ := l.framer(t, "api.test", o.port)
	s.head(t, 1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":path", "/ws", ":authority", "api.test",
		"sec-websocket-key", base64.StdEncoding.EncodeToString(make([]byte, 16)))
	if code := s.status(t, 1); code != "403" {
		t.Fatalf("status %s", code)
	}
	if n := len(o.saw()); n != 0 {
		t.Fatalf("the origin saw %d requests", n)
	}
}

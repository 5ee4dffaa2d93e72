package gateway

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// isExtendedConnect says whether r opens a WebSocket on an HTTP/2 stream
// (RFC 8441, section 4). The server offers it when the program is built with
// the go:debug setting http2xconnect=1.
func isExtendedConnect(r *http.Request) bool {
	return r.ProtoMajor == 2 && r.Method == http.MethodConnect && slices.Equal(r.Header[":protocol"], []string{"websocket"})
}

// upgradeExtendedConnect turns a WebSocket over HTTP/2 into the handshake of
// HTTP/1.1, which every upstream knows.
func upgradeExtendedConnect(out *http.Request) {
	key := make([]byte, 16)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	out.Method = http.MethodGet
	out.Proto, out.ProtoMajor, out.ProtoMinor = "HTTP/1.1", 1, 1
	out.Body, out.ContentLength = http.NoBody, 0
	for _, name := range []string{":protocol", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization"} {
		delete(out.Header, name) // all that settleHeader has left of what ends here
	}
	out.Header.Set("Connection", "Upgrade")
	out.Header.Set("Upgrade", "websocket")
	out.Header.Set("Sec-Websocket-Key", base64.StdEncoding.EncodeToString(key))
}

// switchesToWebSocket says whether an answer of 101 is the WebSocket
// handshake's.
func switchesToWebSocket(h http.Header) bool {
	upgrade := slices.ContainsFunc(splitList(h["Connection"]), func(s string) bool { return strings.EqualFold(s, "upgrade") })
	return upgrade && strings.EqualFold(h.Get("Upgrade"), "websocket")
}

// streamHijacker presents an HTTP/2 stream as the connection that goproxy
// takes over after 101, which the client sees as 200 (RFC 8441, section 5).
type streamHijacker struct{ *answerWriter }

// WriteHeader begins the answer, in the form that the stream has.
func (h streamHijacker) WriteHeader(code int) {
	if code == http.StatusSwitchingProtocols {
		for _, name := range []string{"Connection", "Upgrade", "Sec-Websocket-Accept"} {
			h.Header().Del(name)
		}
		code = http.StatusOK
	}
	h.answerWriter.WriteHeader(code)
	h.Flush()
}

// Hijack takes the stream over.
func (h streamHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	stream := &streamConn{w: h.answerWriter}
	c := newHijackedConn(stream, stream, h.x)
	h.x.hijack(c)
	return c, bufio.NewReadWriter(bufio.NewReader(bytes.NewReader(nil)), bufio.NewWriter(io.Discard)), nil
}

// streamConn is an HTTP/2 stream as a connection. Who copies on it may do so
// for a moment longer than its handler runs, which the stream must not see.
type streamConn struct {
	w *answerWriter

	mu     sync.Mutex // held while the stream is written to
	closed atomic.Bool
}

func (s *streamConn) Read(p []byte) (int, error) { return s.w.x.r.in.Body.Read(p) }

func (s *streamConn) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := s.w.ResponseWriter.Write(p)
	if err == nil {
		err = s.w.x.control.Flush()
	}
	return n, err
}

// Close ends reading and waits for the write that is under way, which is cut
// if the client does not take it. The stream itself ends with its handler.
func (s *streamConn) Close() error {
	s.closed.Store(true)
	err := s.w.x.r.in.Body.Close()
	cut := time.AfterFunc(lastWords, func() {
		s.w.x.mu.Lock()
		defer s.w.x.mu.Unlock()
		s.w.x.sever()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	cut.Stop()
	return err
}

// LocalAddr is of no meaning on a stream.
func (s *streamConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr is of no meaning on a stream.
func (s *streamConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// SetDeadline bounds reads and writes of the stream.
func (s *streamConn) SetDeadline(t time.Time) error {
	if err := s.SetReadDeadline(t); err != nil {
		return err
	}
	return s.SetWriteDeadline(t)
}

// SetReadDeadline bounds reads of the stream.
func (s *streamConn) SetReadDeadline(t time.Time) error { return s.w.x.control.SetReadDeadline(t) }

// SetWriteDeadline bounds writes of the stream.
func (s *streamConn) SetWriteDeadline(t time.Time) error { return s.w.x.control.SetWriteDeadline(t) }

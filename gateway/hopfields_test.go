package gateway

import (
	"io"
	"strings"
	"testing"
)

// TestFieldsOfAProxyEnd: what is for a proxy, or of one, ends at the gateway.
func TestFieldsOfAProxyEnd(t *testing.T) {
	l := newLab(t)
	port, heads := recordHeads(t)
	l.allow("plain.test", port)
	l.load()
	c := l.raw(t, "plain.test", port)
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: plain.test\r\nUser-Agent: a\r\nX-Two: 2\r\nProxy-Authorization: Basic eA==\r\nProxy-Authenticate: Basic\r\n\r\n")
	must(t, err)
	readResponse(t, c)
	want := "GET / HTTP/1.1\r\nHost: plain.test\r\nUser-Agent: a\r\nX-Two: 2\r\n\r\n"
	if got := <-heads; got != want {
		t.Fatalf("origin got\n%q, want\n%q", got, want)
	}
}

// TestFieldsOfAProxyEndOverHTTP2 is the same of a WebSocket on a stream, whose
// header is made into a handshake's.
func TestFieldsOfAProxyEndOverHTTP2(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	s, _ := l.framer(t, "api.test", o.port)
	s.head(t, 1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":path", "/ws", ":authority", "api.test",
		"sec-websocket-version", "13", "user-agent", "a", "x-two", "2", "proxy-authorization", "Basic eA==", "proxy-authenticate", "Basic", "te", "trailers")
	if code := s.status(t, 1); code != "200" {
		t.Fatalf("status %s", code)
	}
	saw := o.saw()
	if len(saw) != 1 || saw[0].Header.Get("X-Two") != "2" || saw[0].Header.Get("Upgrade") != "websocket" {
		t.Fatalf("the origin saw %v", saw)
	}
	for name := range saw[0].Header {
		if strings.HasPrefix(name, "Proxy-") || name == ":protocol" {
			t.Errorf("the origin saw %s", name)
		}
	}
}

package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// byHand opens a connection of HTTP/1.1 and writes to it.
func (c *column) byHand(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	var conn net.Conn = c.raw(t, "api.test", c.port)
	if c.scheme == "https" {
		conn = c.rawTLS(t, "api.test", c.port, "http/1.1")
	}
	say(t, conn, text)
	return conn, bufio.NewReader(conn)
}

// http10: a client of HTTP/1.0 gets an answer that ends with the connection,
// or one with a length if it keeps it.
func (c *column) http10(t *testing.T) {
	if c.h2 {
		return // it is another protocol
	}
	conn, r := c.byHand(t, "GET /down?n=100000 HTTP/1.0\r\nHost: api.test\r\n\r\n")
	resp, b, err := body(http.ReadResponse(r, nil))
	must(t, err)
	if len(b) != 100000 || len(resp.TransferEncoding) > 0 {
		t.Fatalf("%d bytes, %v", len(b), resp.TransferEncoding)
	}
	ended(t, conn, pieceWait)
	conn, r = c.byHand(t, "GET /hello HTTP/1.0\r\nHost: api.test\r\nConnection: keep-alive\r\n\r\n")
	for i := range 2 {
		resp, b, err = body(http.ReadResponse(r, nil))
		must(t, err)
		if b != "hello" || resp.ContentLength != 5 || resp.Header.Get("Connection") != "keep-alive" {
			t.Fatalf("%q, %v", b, resp.Header)
		}
		if i == 0 {
			say(t, conn, "GET /hello HTTP/1.0\r\nHost: api.test\r\nConnection: keep-alive\r\n\r\n")
		}
	}
}

// pipelined: answers come in the order of the requests, whatever each takes.
func (c *column) pipelined(t *testing.T) {
	if c.h2 {
		return // it has streams
	}
	var text strings.Builder
	paths := []string{"/down?n=70000", "/204", "/slow", "/hello", "/head", "/hello"}
	for i, p := range paths {
		method := map[bool]string{false: "GET", true: "HEAD"}[p == "/head"]
		fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: api.test\r\nX-N: %d\r\n\r\n", method, p, i)
	}
	_, r := c.byHand(t, text.String())
	for i, p := range paths {
		method := map[bool]string{false: "GET", true: "HEAD"}[p == "/head"]
		resp, b, err := body(http.ReadResponse(r, &http.Request{Method: method}))
		must(t, err)
		want := map[string]int{"/down?n=70000": 70000, "/slow": 2000, "/hello": 5}[p]
		if len(b) != want || p == "/head" && resp.ContentLength != 12345 || p == "/204" && resp.StatusCode != http.StatusNoContent {
			t.Fatalf("answer %d: %d, %d bytes", i, resp.StatusCode, len(b))
		}
	}
}

// chunked: a body in chunks of any size, and with extensions, is the same at
// the origin, and the answer in chunks at the client.
func (c *column) chunked(t *testing.T) {
	if c.h2 {
		return // it has frames
	}
	var text, whole bytes.Buffer
	src := &pattern{}
	text.WriteString("POST /up HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, n := range []int{1, 2, 1000, 40000, 3} {
		piece := make([]byte, n)
		_, _ = src.Read(piece) // never fails
		whole.Write(piece)
		fmt.Fprintf(&text, "%X;ext=\"a b\"\r\n%s\r\n", n, piece)
	}
	text.WriteString("0\r\n\r\n")
	conn, r := c.byHand(t, text.String())
	_, b, err := body(http.ReadResponse(r, nil))
	must(t, err)
	if !strings.HasPrefix(b, strconv.Itoa(whole.Len())+" <nil> cl=-1") {
		t.Fatal(b)
	}
	say(t, conn, "GET /down?n=100000 HTTP/1.1\r\nHost: api.test\r\n\r\n")
	resp, b, err := body(http.ReadResponse(r, nil))
	must(t, err)
	if len(b) != 100000 || fmt.Sprint(resp.TransferEncoding) != "[chunked]" {
		t.Fatalf("%d bytes, %v", len(b), resp.TransferEncoding)
	}
}

// multiplexed: requests that are answered only when all have arrived.
func (c *column) multiplexed(t *testing.T) {
	const n = 40
	client := c.client(t, c.h2)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			r, _, err := body(client.Get(c.url("/together?n=" + strconv.Itoa(n))))
			if err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("%v %v", r, err)
			}
		})
	}
	wg.Wait()
}

// stalled: streams that are not read use up their windows, not those of
// others, on either side.
func (c *column) stalled(t *testing.T) {
	client := c.client(t, c.h2)
	for range 2 {
		r, err := client.Get(c.url("/forever"))
		must(t, err)
		defer r.Body.Close() // it is never read
	}
	for range 2 {
		r, err := client.Get(c.url("/down?n=1000000"))
		must(t, err)
		n, err := io.Copy(&patternCheck{}, r.Body)
		_ = r.Body.Close() // it was read
		if n != 1000000 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
}

// goAway: an origin that ends its connections costs no request.
func (c *column) goAway(t *testing.T) {
	client := c.client(t, c.h2)
	for i := range 10 {
		path, want := "/goaway", "last"
		if i%2 == 1 {
			path, want = "/hello", "hello"
		}
		r, b, err := body(client.Get(c.url(path)))
		must(t, err)
		if r.StatusCode != http.StatusOK || b != want {
			t.Fatalf("request %d: %d %q", i, r.StatusCode, b)
		}
	}
}

// originResets: a stream or connection that the origin resets before it
// answers is a 502, and what follows goes on.
func (c *column) originResets(t *testing.T) {
	client := c.client(t, c.h2)
	for range 3 {
		r, _, err := body(client.Get(c.url("/abort")))
		must(t, err)
		if r.StatusCode != http.StatusBadGateway {
			t.Fatalf("status %d", r.StatusCode)
		}
		_, b, err := body(client.Get(c.url("/hello")))
		if err != nil || b != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
	}
}

// slowBodies: bodies that drip in both directions arrive whole.
func (c *column) slowBodies(t *testing.T) {
	src, left := &pattern{}, 20
	r, b, err := body(c.client(t, c.h2).Post(c.url("/slow"), "text/plain", readerFunc(func(p []byte) (int, error) {
		if left--; left < 0 {
			return 0, io.EOF
		}
		time.Sleep(5 * time.Millisecond)
		return src.Read(p[:min(len(p), 50)])
	})))
	must(t, err)
	if n, err := io.Copy(&patternCheck{}, strings.NewReader(b)); n != 2000 || err != nil || r.Header.Get("X-Took") != "1000 <nil>" {
		t.Fatalf("%d bytes, %v, the origin took %s", n, err, r.Header.Get("X-Took"))
	}
}

// webSocket: each message passes before the next is sent, and the close code.
func (c *column) webSocket(t *testing.T) {
	if c.h2 {
		c.webSocket2(t)
		return
	}
	url := strings.Replace(c.url("/ws"), "http", "ws", 1)
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: c.client(t, false)})
	must(t, err)
	defer conn.CloseNow()
	for i := range 20 {
		want := strings.Repeat("x", i*100)
		must(t, conn.Write(t.Context(), websocket.MessageText, []byte(want)))
		if _, b, err := conn.Read(t.Context()); err != nil || string(b) != want {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
	}
	must(t, conn.Close(websocket.StatusNormalClosure, ""))
}

// webSocket2 is webSocket on a stream (RFC 8441).
func (c *column) webSocket2(t *testing.T) {
	s := c.openWebSocket2(t, c.origin, "/ws")
	for i := range 20 {
		want := "hello " + strconv.Itoa(i)
		must(t, s.WriteData(1, false, maskedFrame(1, want)))
		got, err := s.message(t)
		if err != nil || got != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

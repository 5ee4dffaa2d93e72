//go:build linux

package lab

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// maxBody bounds the body that a reflection holds, in bytes.
const maxBody = 1 << 20

// serve logs a request and answers it: by the host's own handler, by one of
// the endpoints, or with a reflection of itself.
func (o *Origins) serve(w http.ResponseWriter, r *http.Request) {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	v := o.Host(name)
	q := &Request{Proto: r.Proto, Method: r.Method, Target: r.RequestURI, Host: r.Host, Header: r.Header.Clone()}
	var handler http.Handler
	v.note(func() { v.requests = append(v.requests, q); handler = v.handler })
	if handler == nil {
		handler = o.endpoint(r)
	}
	if handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody)) // what broke off is reflected as far as it came
	v.note(func() { q.Body, q.Trailer = string(body), r.Trailer.Clone() })
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(q) // the gateway may have gone
}

// endpoint finds what stands below /lab/.
func (o *Origins) endpoint(r *http.Request) http.Handler {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		return o.grpc
	}
	endpoints := map[string]http.HandlerFunc{
		"/lab/sse":      serveEvents,
		"/lab/ndjson":   serveLines,
		"/lab/bytes":    serveBytes,
		"/lab/count":    serveCount,
		"/lab/trailers": serveTrailers,
		"/lab/ws":       serveWebSocket,
		"/lab/status":   serveStatus,
		"/lab/hold":     serveHold,
	}
	if h, ok := endpoints[r.URL.Path]; ok {
		return h
	}
	return nil
}

func number(r *http.Request, key string, or int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(key)); err == nil {
		return n
	}
	return or
}

// stream writes n pieces, one each so many milliseconds.
func stream(w http.ResponseWriter, r *http.Request, media string, piece func(i int) string) {
	w.Header().Set("Content-Type", media)
	control := http.NewResponseController(w)
	for i := range number(r, "n", 5) {
		if _, err := io.WriteString(w, piece(i)); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-time.After(time.Duration(number(r, "ms", 50)) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
}

func serveEvents(w http.ResponseWriter, r *http.Request) {
	stream(w, r, "text/event-stream", func(i int) string { return fmt.Sprintf("id: %d\ndata: %d\n\n", i, time.Now().UnixNano()) })
}

func serveLines(w http.ResponseWriter, r *http.Request) {
	stream(w, r, "application/x-ndjson", func(i int) string { return fmt.Sprintf("{\"i\":%d,\"t\":%d}\n", i, time.Now().UnixNano()) })
}

// serveBytes sends n bytes.
func serveBytes(w http.ResponseWriter, r *http.Request) {
	n := number(r, "n", 1<<20)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(n))
	if r.Method == http.MethodHead {
		return
	}
	block := make([]byte, 32<<10)
	for n > 0 {
		m, err := w.Write(block[:min(n, len(block))])
		if err != nil {
			return
		}
		n -= m
	}
}

// serveCount counts what is uploaded.
func serveCount(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%d %v", n, err)
}

func serveTrailers(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody)) // its trailers follow
	w.Header().Set("Trailer", "X-After, X-Echo")
	fmt.Fprintf(w, "body %d", len(body))
	w.Header().Set("X-After", "done")
	w.Header().Set("X-Echo", r.Trailer.Get("X-Sum"))
}

// serveWebSocket sends every message back.
func serveWebSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	c.SetReadLimit(64 << 20)
	defer c.CloseNow()
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if string(b) == "close 4001" {
			_ = c.Close(4001, "as asked")
			return
		}
		if err := c.Write(r.Context(), kind, b); err != nil {
			return
		}
	}
}

// serveStatus answers with a status and fields, as code=302&Location=….
func serveStatus(w http.ResponseWriter, r *http.Request) {
	for k, vs := range r.URL.Query() {
		if k != "code" {
			for _, v := range vs {
				w.Header().Add(k, v)
			}
		}
	}
	w.WriteHeader(number(r, "code", 200))
}

// serveHold answers its head and then nothing until the client goes.
func serveHold(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the test sees whether it came
	<-r.Context().Done()
}

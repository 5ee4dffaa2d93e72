package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// endless is a body without an end, which counts what is taken of it.
type endless struct{ taken atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.taken.Add(int64(len(p)))
	return len(p), nil
}

// TestUploadThatIsNotTakenStopsNoOther: one that the upstream leaves unread
// stands still, and others of the same HTTP/2 connection go on.
func TestUploadThatIsNotTakenStopsNoOther(t *testing.T) {
	l := newLab(t)
	port := l.secured(t, func(c net.Conn) {
		defer c.Close()
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		if r.URL.Path == "/stuck" {
			<-t.Context().Done()
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		answer := http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Close: true,
			Header: http.Header{"X-Taken": {strings.Repeat("i", int(n/1000))}}, Body: http.NoBody}
		_ = answer.Write(c) // the client tells
	})
	l.allow("api.test", port)
	l.load()
	client := l.client(t, true)
	client.Timeout = 0 // the first is to last
	upload := &endless{}
	stuck, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("https://api.test:%d/stuck", port), upload)
	must(t, err)
	go func() {
		if r, err := client.Do(stuck); err == nil {
			_ = r.Body.Close() // there is none
		}
	}()
	still := func() bool { // nothing was taken for a while
		before := upload.taken.Load()
		time.Sleep(500 * time.Millisecond)
		return before > 0 && upload.taken.Load() == before
	}
	for end := time.Now().Add(30 * time.Second); !still(); {
		if time.Now().After(end) {
			t.Fatal("the upload never stands still")
		}
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		fine, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://api.test:%d/fine", port), strings.NewReader(strings.Repeat("u", 100_000)))
		must(t, err)
		r, err := client.Do(fine)
		must(t, err)
		cancel()
		_ = r.Body.Close() // likewise
		if r.StatusCode != http.StatusOK || len(r.Header.Get("X-Taken")) != 100 {
			t.Errorf("%d %v", r.StatusCode, r.Header)
		}
	}
}

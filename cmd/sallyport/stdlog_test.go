package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestP3NothingOfAnAnswerIsLogged: what an upstream sends beyond its answer,
// which may be what it was sent, is not written to the standard error.
func TestP3NothingOfAnAnswerIsLogged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	more, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
		<-more
		_, _ = io.WriteString(c, "the real value")
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Read(make([]byte, 1)) // until the client has closed
	}()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(was)
	back := func() { _ = unix.Dup3(was, 2, 0) } // fails only without the descriptor
	if err := unix.Dup3(int(w.Fd()), 2, 0); err != nil {
		t.Fatal(err)
	}
	defer back()
	if code := execute([]string{"version"}); code != 0 {
		t.Fatalf("exit %d", code)
	}
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	time.Sleep(50 * time.Millisecond) // the connection is idle
	close(more)
	<-closed
	back()
	_ = w.Close()
	if said, err := io.ReadAll(r); err != nil || bytes.Contains(said, []byte("real value")) {
		t.Errorf("%q, %v", said, err)
	}
}

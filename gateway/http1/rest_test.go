package http1

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

const plainRequest = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"

// served is a guard that has delivered a request, and its client's side.
func served(t *testing.T) (*Guard, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	g := NewGuard(near, Limits{})
	delivered(t, g, far)
	return g, far
}

// delivered has one more request delivered and taken.
func delivered(t *testing.T, g *Guard, far net.Conn) {
	t.Helper()
	go func() { _, _ = io.WriteString(far, plainRequest) }() // that it failed is seen below
	b := make([]byte, len(plainRequest))
	if _, err := io.ReadFull(g, b); err != nil || string(b) != plainRequest {
		t.Fatalf("the guard delivers %q, %v", b, err)
	}
	if _, ok := g.Next(); !ok {
		t.Fatal("no head of what was delivered")
	}
}

// TestRest: a server that waits for the next request reads an end, which is
// none, and what comes then is delivered as ever.
func TestRest(t *testing.T) {
	g, far := served(t)
	g.Waits()
	ended := make(chan error, 1)
	go func() {
		_, err := g.Read(make([]byte, 100))
		ended <- err
	}()
	if g.Rest(2) {
		t.Error("it rests the first time that it is found waiting")
	}
	if !g.Rest(2) {
		t.Error("it does not rest the second time")
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("the server reads %v, want %v", err, io.EOF)
	}
	if !g.Rested() || g.Rested() {
		t.Error("the end is not said to be none, once")
	}
	if g.HalfClosed() {
		t.Error("the client is said to have closed its side")
	}
	if err := g.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	delivered(t, g, far)
}

// TestNoRest: nobody's read is ended but that of a server which waits for the
// next request.
func TestNoRest(t *testing.T) {
	t.Run("while a request runs", func(t *testing.T) {
		g, _ := served(t)
		if g.Rest(1) {
			t.Error("it rests")
		}
	})
	t.Run("while the next request runs", func(t *testing.T) {
		g, far := served(t)
		g.Waits()
		delivered(t, g, far)
		if g.Rest(1) {
			t.Error("it rests")
		}
	})
	t.Run("when the next request has come before the end of this one", func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		g := NewGuard(near, Limits{})
		go func() { _, _ = io.WriteString(far, plainRequest+plainRequest) }() // that it failed is seen below
		if _, err := io.ReadFull(g, make([]byte, 2*len(plainRequest))); err != nil {
			t.Fatal(err)
		}
		g.Next()
		g.Waits()
		if g.Rest(1) {
			t.Error("it rests")
		}
	})
	t.Run("when the next request has begun before the end of this one", func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		g := NewGuard(near, Limits{})
		go func() { _, _ = io.WriteString(far, plainRequest+plainRequest[:5]) }() // that it failed is seen below
		if _, err := io.ReadFull(g, make([]byte, len(plainRequest))); err != nil {
			t.Fatal(err)
		}
		g.Next()
		g.Waits()
		if g.Rest(1) {
			t.Error("it rests")
		}
	})
	t.Run("when bytes come meanwhile", func(t *testing.T) {
		g, far := served(t)
		g.Waits()
		if !g.Rest(1) {
			t.Fatal("it does not rest")
		}
		if err := g.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil { // before the server's read
			t.Fatal(err)
		}
		delivered(t, g, far)
		if g.Rested() {
			t.Error("an end was read")
		}
	})
	t.Run("when the client goes", func(t *testing.T) {
		g, far := served(t)
		g.Waits()
		if err := far.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the server reads %v, want %v", err, io.EOF)
		}
		if g.Rest(1) || g.Rested() {
			t.Error("it rests")
		}
	})
}

// TestEmptyLineBeforeRest: a line that is no head yet, and comes while the wait
// is being ended, does not take the bound from the wait.
func TestEmptyLineBeforeRest(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	g := NewGuard(near, Limits{HeadTimeout: 50 * time.Millisecond})
	delivered(t, g, far)
	g.Waits()
	if !g.Rest(1) {
		t.Fatal("it does not rest")
	}
	if err := g.SetReadDeadline(time.Time{}); err != nil { // the read is on its way with what has come
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(far, "\r\n") }() // that it failed is seen below
	ended := make(chan error, 1)
	go func() {
		_, err := g.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() {
			t.Errorf("the server reads %v, want that time is over", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server waits without a bound")
	}
}

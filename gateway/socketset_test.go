package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/gateway/dns"
)

// greeter accepts connections and sends each a byte, until none has come for a
// while. It counts how many goroutines do.
type greeter struct {
	ln   *net.TCPListener
	busy atomic.Int32
}

func (g *greeter) run() error {
	g.busy.Add(1)
	defer g.busy.Add(-1)
	_ = g.ln.SetDeadline(time.Now().Add(20 * time.Millisecond))
	for {
		c, err := g.ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return dns.ErrRest
		case err != nil:
			return err
		}
		_, _ = c.Write([]byte{'x'})
		_ = c.Close()
	}
}

func (g *greeter) rests(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); g.busy.Load() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a goroutine waits for a socket on which nothing comes")
		}
	}
}

func TestASocketOnWhichNothingComesHasNoGoroutine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSocketSet(ctx, cancel)
	var all []*greeter
	for range 12 { // more than are told at once
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		g := &greeter{ln: ln.(*net.TCPListener)}
		all = append(all, g)
		s.serve(g.ln, g.run)
		if g.busy.Load() != 0 {
			t.Error("it does not rest from the beginning")
		}
	}
	watched := make(chan struct{})
	go func() { s.watch(); close(watched) }()
	for range 3 {
		for _, g := range all {
			c, err := net.Dial("tcp", g.ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			if b, err := io.ReadAll(c); string(b) != "x" || err != nil {
				t.Fatalf("%q, %v: it rests though something came", b, err)
			}
			_ = c.Close()
		}
		for _, g := range all {
			g.rests(t)
		}
	}
	cancel()
	<-watched
	for _, g := range all {
		_ = g.ln.Close()
	}
	s.end()
	if s.err != nil {
		t.Errorf("ended with %v", s.err)
	}
}

func TestASocketThatFailsEndsTheOthers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newSocketSet(ctx, cancel)
	failed := errors.New("failed")
	s.serve(nil, func() error { return failed })
	s.serve(nil, func() error { <-ctx.Done(); return errors.New("later") })
	s.watch()
	s.end()
	if s.err != failed {
		t.Errorf("ended with %v", s.err)
	}
}

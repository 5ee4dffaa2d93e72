package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowConn takes a write when it is let, and keeps each.
type slowConn struct {
	net.Conn
	let    chan error // what the next write ends with
	writes [][]byte
	bounds []time.Duration // from now
	closed chan struct{}
}

func newSlowConn() *slowConn {
	return &slowConn{let: make(chan error), closed: make(chan struct{})}
}

func (c *slowConn) Write(p []byte) (int, error) {
	c.writes = append(c.writes, bytes.Clone(p))
	if err := <-c.let; err != nil {
		return 0, err
	}
	return len(p), nil
}

func (c *slowConn) Read([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}

func (c *slowConn) Close() error {
	close(c.closed)
	return nil
}

func (c *slowConn) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		c.bounds = append(c.bounds, 0)
		return nil
	}
	c.bounds = append(c.bounds, time.Until(t))
	return nil
}

// TestGrouped: what is written while a write is under way is sent with the next,
// in its order, and no more of it than a record takes.
func TestGrouped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		g := NewGrouped(c, time.Minute)
		write := func(p string) {
			if n, err := g.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("%.3s: %d, %v", p, n, err)
			}
		}
		write("a")
		synctest.Wait()
		write("b")
		write("c")
		big := strings.Repeat("d", groupSize-3)
		write(big)
		wrote := false
		go func() { write("ef"); wrote = true }() // for which there is no room
		synctest.Wait()
		if wrote {
			t.Error("more was taken than is sent together")
		}
		_ = g.SetWriteDeadline(time.Now()) // of who does not send
		for range 3 {
			c.let <- nil
			synctest.Wait()
		}
		long := strings.Repeat("g", groupSize+1)
		go write(long)
		synctest.Wait()
		write("h")
		c.let <- nil
		synctest.Wait()
		c.let <- nil
		synctest.Wait()
		want := []string{"a", "bc" + big, "ef", long, "h"}
		if !slices.EqualFunc(c.writes, want, func(b []byte, s string) bool { return string(b) == s }) {
			for _, b := range c.writes {
				t.Errorf("%d bytes, %.5s", len(b), b)
			}
		}
		for i, b := range c.bounds {
			if b != []time.Duration{time.Minute, 0}[i%2] {
				t.Errorf("bound %d is %v", i, b)
			}
		}
	})
}

// TestGroupedFails: what cannot be sent closes the connection, and whoever
// writes, waits to write or reads is told why.
func TestGroupedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		g := NewGrouped(c, 0)
		_, _ = g.Write([]byte("a"))
		synctest.Wait()
		why := errors.New("why")
		var read, waited error
		go func() { _, read = g.Read(nil) }()
		go func() { _, waited = g.Write(make([]byte, groupSize+1)) }()
		synctest.Wait()
		c.let <- why
		synctest.Wait()
		n, wrote := g.Write([]byte("b"))
		if read != why || waited != why || wrote != why || n != 0 {
			t.Errorf("read %v, waited %v, wrote %d, %v", read, waited, n, wrote)
		}
		if len(c.writes) != 1 || len(c.bounds) > 0 {
			t.Errorf("writes %q, bounds %v", c.writes, c.bounds)
		}
	})
}

// TestGroupedClosesBehindWhatItTook: what was taken goes out before the close, and
// a peer that does not read holds that up for closeWait only.
func TestGroupedClosesBehindWhatItTook(t *testing.T) {
	for name, reads := range map[string]bool{"a peer that reads": true, "one that does not": false} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			g := NewGrouped(near, 0)
			for _, p := range []string{"a", "b", "c"} {
				if _, err := g.Write([]byte(p)); err != nil {
					t.Fatal(err)
				}
			}
			got := make(chan string, 1)
			if reads {
				go func() { b, _ := io.ReadAll(far); got <- string(b) }()
			}
			closed := make(chan error, 1)
			go func() { closed <- g.Close() }()
			select {
			case <-closed:
			case <-time.After(20 * time.Second):
				t.Fatal("the close waits")
			}
			if reads && <-got != "abc" {
				t.Error("something was not sent")
			}
		})
	}
}

// TestGroupedTellsEnds: an end that no failed write has made is told as it is.
func TestGroupedTellsEnds(t *testing.T) {
	near, far := net.Pipe()
	g := NewGrouped(near, 0)
	_ = far.Close()
	if _, err := g.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	_ = g.Close()
	if _, err := g.Read(make([]byte, 1)); err != io.ErrClosedPipe {
		t.Error(err)
	}
}

package upstream

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestWaiting: what has arrived and was not read is known, and nothing of
// what is no socket or is closed.
func TestWaiting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	c := newConn(accepted, &Pool{conns: map[*conn]struct{}{}})
	info := Info{conn: c}
	if n := info.Waiting(); n != 0 {
		t.Errorf("%d bytes wait before there were any", n)
	}
	const sent, read = 20_000, 5_000
	if _, err := peer.Write(make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); info.Waiting() < sent && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if _, err := io.ReadFull(c, make([]byte, read)); err != nil {
		t.Fatal(err)
	}
	if n := info.Waiting(); n != sent-read {
		t.Errorf("%d bytes wait, want %d", n, sent-read)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := info.Waiting(); n != 0 {
		t.Errorf("%d bytes of a closed connection wait", n)
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	for _, none := range []Info{{}, {conn: newConn(here, nil)}} {
		if n := none.Waiting(); n != 0 {
			t.Errorf("%d bytes of no socket wait", n)
		}
	}
}

package upstream

import (
	"io"
	"net"
	"testing"
)

// TestWaiting: what has arrived and was not read is known, and nothing of
// what is no socket or is closed.
func TestWaiting(t *testing.T) {
	c, peer := tcpPair(t)
	c.secured = false
	info := Info{conn: c}
	if n := info.Waiting(); n != 0 {
		t.Errorf("%d bytes wait before there were any", n)
	}
	const sent, read = 20_000, 5_000
	if _, err := peer.Write(make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	arrive(t, c, sent)
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

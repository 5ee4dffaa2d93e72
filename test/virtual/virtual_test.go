package virtual

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

// TestDialPairs leaves a connection behind, as a dial does whose context ends
// in the moment it succeeds, and looks whether the next one is still its own.
func TestDialPairs(t *testing.T) {
	l := Listen(t)
	left, err := net.Dial("tcp", l.front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	dst := netip.MustParseAddrPort("192.0.2.1:443")
	client, err := l.Dial(t.Context(), dst)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := <-accepted
	defer server.Close()
	if got := server.LocalAddr().String(); got != dst.String() {
		t.Errorf("destination %s", got)
	}
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(client, b); err != nil {
		t.Errorf("the other end is not the connection dialled: %v", err)
	}
}

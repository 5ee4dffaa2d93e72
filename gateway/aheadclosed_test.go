package gateway

import (
	"errors"
	"net"
	"testing"
)

// TestNothingReadAheadIsGivenOfAClosedClient: what a sandbox has sent is not
// served when its connection was closed or reset, also if it was read ahead.
func TestNothingReadAheadIsGivenOfAClosedClient(t *testing.T) {
	ln := listen(t)
	dialled, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	defer dialled.Close()
	accepted, err := ln.Accept()
	must(t, err)
	h := &helloConn{meter: newMeter(accepted)}
	h.open()
	go func() { _, _ = dialled.Write(make([]byte, 4<<20)) }() // it is cut
	b := make([]byte, 16<<10)
	for h.Waiting() <= h.meter.Waiting() { // until some lies here
		_, err := h.Read(b)
		must(t, err)
	}
	h.meter.reset()
	if n, err := h.Read(b); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

package gateway

import (
	"io"
	"time"
)

// How long, and how much of, what a client still sends is thrown away after
// its answer. Closing at once would reset the connection, and a client that
// has not read the answer by then would lose it (RFC 9112, section 9.6).
const (
	lingerTime  = 2 * time.Second
	lingerBytes = 256 << 20
)

// linger closes the gateway's direction and, in the background, the
// connection: when the client has closed its own, or the bounds are reached.
// It is false when that cannot be done.
func (f *frontConn) linger() bool {
	client := f.c.client
	deadline := time.Now().Add(lingerTime)
	if client.Conn.SetDeadline(deadline) != nil || f.CloseWrite() != nil || client.CloseWrite() != nil {
		return false
	}
	go func() {
		defer func() { _ = client.Close() }() // whoever asked is told
		_, _ = io.CopyN(io.Discard, client.Conn, lingerBytes)
	}()
	return true
}

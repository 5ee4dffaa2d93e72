package http2guard

import (
	"encoding/binary"
	"sync"
)

// outgoing is where the server stands in what it sends.
type outgoing struct {
	mu   sync.Mutex
	head []byte // of the frame that begins
	left int    // of the payload of the frame under way, in bytes
	code []byte // of that, if it resets a stream
}

// Sent looks at what the server is about to send, piece by piece. Its error
// ends the connection.
func (g *Guard) Sent(b []byte) error {
	o := &g.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(b) > 0 {
		if o.left > 0 {
			n := min(o.left, len(b))
			if o.head[3] == frameReset {
				o.code = append(o.code, b[:n]...)
			}
			o.left, b = o.left-n, b[n:]
			if err := g.sent(); err != nil {
				return err
			}
			continue
		}
		n := min(headSize-len(o.head), len(b))
		o.head, b = append(o.head, b[:n]...), b[n:]
		if len(o.head) < headSize {
			return nil
		}
		o.left = int(o.head[0])<<16 | int(o.head[1])<<8 | int(o.head[2])
		if err := g.sent(); err != nil {
			return err
		}
	}
	return nil
}

// sent takes a frame of the server, once it is whole.
func (g *Guard) sent() (err error) {
	o := &g.out
	if o.left > 0 {
		return nil
	}
	id := binary.BigEndian.Uint32(o.head[5:]) &^ (1 << 31)
	switch {
	case o.head[3] == frameHeaders:
		g.handled(id)
	case len(o.code) == 4:
		err = g.refused(id, binary.BigEndian.Uint32(o.code))
	}
	o.head, o.code = o.head[:0], o.code[:0]
	return err
}

package gateway

import (
	"errors"
	"time"

	"sallyport/gateway/upstream"
)

// helloConn is the transport of a handshake that may be abandoned: until the
// gateway has decided to answer, it keeps what it reads and writes nothing.
type helloConn struct {
	*meter
	recording bool // a ClientHello is being read
	answering bool // the gateway answers
	done      bool // the handshake is over
	seen      []byte
	last      []byte // of what came after the ClientHello, until it is over: its end, a few bytes

	records upstream.Records // that are to be sent together
	ahead   upstream.Ahead   // what was read of those that came, when the handshake is over
}

var errHelloTooLong = errors.New("the ClientHello is too long")

func (h *helloConn) Read(p []byte) (int, error) {
	if h.done {
		return h.ahead.Read(h.meter, p)
	}
	if !h.recording && h.answering {
		n, err := h.meter.Read(p)
		if n > 0 {
			end := append(h.last, p[max(0, n-plainAlertLen):n]...)
			h.last = append(h.last[:0], end[max(0, len(end)-plainAlertLen):]...)
		}
		return n, err
	}
	if len(h.seen) >= maxHello {
		return 0, errHelloTooLong
	}
	n, err := h.meter.Read(p)
	h.seen = append(h.seen, p[:n]...)
	return n, err
}

// Waiting is how many bytes can at least be read at once.
func (h *helloConn) Waiting() int { return h.ahead.Waiting(h.meter) }

func (h *helloConn) Write(p []byte) (int, error) {
	if !h.answering {
		return len(p), nil // crypto/tls's own alert; the gateway sends its own
	}
	h.seen = nil
	kept, err := h.records.Keep(p)
	switch {
	case err != nil:
		return 0, err
	case kept:
		return len(p), nil
	}
	return h.meter.Write(p)
}

// open ends the handshake. What is read ahead from then on is not given any more
// when the connection is closed.
func (h *helloConn) open() {
	h.done, h.last = true, nil
	h.meter.whenClosed(h.ahead.Stop)
}

// take returns the bytes that were read, to be relayed as they came.
func (h *helloConn) take() []byte { return append(h.seen, h.meter.held...) }

// alert sends a fatal alert in a plain record.
func (h *helloConn) alert(code byte) {
	_ = h.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = h.meter.Write([]byte{21, 3, 3, 0, 2, 2, code}) // the connection is closed next in any case
}

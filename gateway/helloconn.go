package gateway

import (
	"errors"
	"sync"
	"time"
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

	mu        sync.Mutex
	gathered  *[]byte // records that are to be sent together
	gathering bool
	broken    error // of send: what comes behind would follow a gap
}

var errHelloTooLong = errors.New("the ClientHello is too long")

func (h *helloConn) Read(p []byte) (int, error) {
	if h.done {
		return h.meter.Read(p)
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

func (h *helloConn) Write(p []byte) (int, error) {
	if !h.answering {
		return len(p), nil // crypto/tls's own alert; the gateway sends its own
	}
	h.seen = nil
	gathered, err := h.keep(p)
	switch {
	case err != nil:
		return 0, err
	case gathered:
		return len(p), nil
	}
	return h.meter.Write(p)
}

// keep keeps p if records are being gathered.
func (h *helloConn) keep(p []byte) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gathering {
		*h.gathered = append(*h.gathered, p...)
	}
	return h.gathering, h.broken
}

// Sizes in bytes of what is gathered: a longer text than maxPlain takes more
// than one record (RFC 8446, section 5.1), and of longer ones than maxGathered
// each is gathered by itself.
const (
	maxPlain    = 16 << 10
	maxGathered = 64 << 10
)

// gather keeps what is written until send.
func (h *helloConn) gather() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gathered, h.gathering = buffers.records.get(), true
	*h.gathered = (*h.gathered)[:0]
}

// send sends what was gathered. What is written meanwhile waits for it.
func (h *helloConn) send() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.gathered
	h.gathered, h.gathering = nil, false
	defer buffers.records.put(b)
	if len(*b) > 0 {
		_, h.broken = h.meter.Write(*b)
	}
	return h.broken
}

// take returns the bytes that were read, to be relayed as they came.
func (h *helloConn) take() []byte { return append(h.seen, h.meter.held...) }

// alert sends a fatal alert in a plain record.
func (h *helloConn) alert(code byte) {
	_ = h.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = h.meter.Write([]byte{21, 3, 3, 0, 2, 2, code}) // the connection is closed next in any case
}

package upstream

import (
	"io"
	"net"
	"sync/atomic"
)

// Ahead reads several records of TLS with one system call where much has
// arrived: crypto/tls asks for hardly more than one. It holds what it has read
// ahead until that is asked for, and a buffer only so long. The zero value is
// ready.
//
// It is read by one at a time. Waiting and Stop may be called at any time.
type Ahead struct {
	Buffers *Buffers // set before it is used

	much    bool    // the last read got all that it asked for
	buf     *[]byte // lent; nil: nothing of it is in rest
	rest    []byte  // of buf, to be read
	left    atomic.Int64
	stopped atomic.Bool
}

// Arriving is what is read: it knows how many bytes have at least arrived.
type Arriving interface {
	io.Reader
	Waiting() int
}

// aheadFrom is how many bytes are at least asked for, where it may be much.
const aheadFrom = 4 << 10

// Read reads from src into p, and perhaps ahead.
func (a *Ahead) Read(src Arriving, p []byte) (int, error) {
	switch {
	case a.stopped.Load():
		return 0, net.ErrClosed
	case len(a.rest) > 0:
		return a.give(p), nil
	case a.much && src.Waiting() > len(p):
		a.buf = a.Buffers.get()
		n, err := src.Read(*a.buf) // does not wait
		if a.rest = (*a.buf)[:n]; n == 0 {
			a.give(nil)
			return 0, err
		}
		return a.give(p), nil // an error comes again from the next read
	}
	n, err := src.Read(p)
	a.much = n == len(p) && n >= aheadFrom
	return n, err
}

// give returns what fits into p of what was read ahead.
func (a *Ahead) give(p []byte) int {
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	a.left.Store(int64(len(a.rest)))
	if len(a.rest) == 0 {
		a.Buffers.put(a.buf)
		a.buf, a.rest = nil, nil
	}
	return n
}

// Waiting is how many bytes at least can be read at once: of those that wait in
// src it asks only if few were read ahead.
func (a *Ahead) Waiting(src Arriving) int {
	left := int(a.left.Load())
	if left >= maxRecord {
		return left
	}
	return left + src.Waiting()
}

// Stop ends reading: what was read ahead is not given any more.
func (a *Ahead) Stop() { a.stopped.Store(true) }

package upstream

import (
	"errors"
	"io"
	"sync"
)

// Sizes in bytes. A text longer than maxPlain takes more than one record of TLS
// (RFC 8446, section 5.1); of longer ones than maxGathered a part is sent before
// the next is gathered.
const (
	maxPlain    = 16 << 10
	maxGathered = 5 * maxPlain
	recordsSize = maxGathered + 8*(maxRecord-maxPlain) // of a buffer
)

// Buffers lends what is gathered and read ahead into. Nothing is in the clear
// there. The zero value is ready; nil lends what nobody had.
type Buffers struct{ pool sync.Pool }

func (l *Buffers) get() *[]byte {
	if l != nil {
		if b, ok := l.pool.Get().(*[]byte); ok {
			return b
		}
	}
	b := make([]byte, recordsSize)
	return &b
}

func (l *Buffers) put(b *[]byte) {
	if l != nil {
		*b = (*b)[:cap(*b)]
		l.pool.Put(b)
	}
}

// Records gathers records of TLS to send them together, as each system call
// costs. Who uses it writes to a tls.Conn by Write, and what is below that
// connection asks Keep before it sends anything. The zero value is ready.
type Records struct {
	Buffers *Buffers // set before it is used

	mu        sync.Mutex
	gathered  *[]byte
	gathering bool
	held      bool  // what is gathered waits for Release
	broken    error // of sending: what comes behind would follow a gap
}

// Keep keeps p if records are being gathered.
func (r *Records) Keep(p []byte) (kept bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gathering {
		*r.gathered = append(*r.gathered, p...)
	}
	return r.gathering, r.broken
}

// Write writes p to t, so that the records of a long one go to below together,
// and those of any while Hold lasts. It is called by one at a time.
func (r *Records) Write(t, below io.Writer, p []byte) (n int, err error) {
	room, held, waiting := r.room()
	for err == nil && n < len(p) {
		left := len(p) - n
		if !held && !waiting && left <= maxPlain {
			k, err := t.Write(p[n:])
			return n + k, err
		}
		if room < min(left, maxPlain) {
			if err = r.send(below); err != nil {
				break
			}
			room = maxGathered
		}
		piece := p[n:min(len(p), n+room)]
		r.gather()
		_, err = t.Write(piece)
		if room -= len(piece); !held {
			err, room, waiting = errors.Join(err, r.send(below)), maxGathered, false
		}
		if err == nil {
			n += len(piece)
		}
	}
	return n, err
}

// Hold has what is written from now on wait for Release, or until it is much.
func (r *Records) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

// Held says whether what is written waits for Release.
func (r *Records) Held() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// Release sends what has waited to below.
func (r *Records) Release(below io.Writer) error {
	r.mu.Lock()
	r.held = false
	r.mu.Unlock()
	return r.send(below)
}

// room is how many bytes may yet be gathered, and whether some wait already.
func (r *Records) room() (n int, held, waiting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = maxGathered; r.gathering {
		n -= len(*r.gathered)
	}
	return n, r.held, r.gathering
}

// gather keeps what is written until send.
func (r *Records) gather() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gathering {
		r.gathered, r.gathering = r.Buffers.get(), true
		*r.gathered = (*r.gathered)[:0]
	}
}

// send sends what was gathered. What is written meanwhile waits for it.
func (r *Records) send(below io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gathering {
		return r.broken
	}
	b := r.gathered
	r.gathered, r.gathering = nil, false
	defer r.Buffers.put(b)
	if len(*b) > 0 && r.broken == nil {
		_, r.broken = below.Write(*b)
	}
	return r.broken
}

package upstream

import (
	"errors"
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

	much    bool    // the last read brought a whole record, or all that it asked for
	atOnce  bool    // what has not arrived is not waited for
	drained bool    // the last read took all that had arrived, which was little
	given   int     // bytes, all in all
	failed  error   // of TLS, behind what Fill has given
	buf     *[]byte // lent; nil: nothing of it is in rest
	rest    []byte  // of buf, to be read
	left    atomic.Int64
	stopped atomic.Bool
}

// Arriving is what is read: it knows how many bytes have at least arrived.
type Arriving interface {
	io.Reader
	Waiting() int

	// ReadBoth reads into p and, if that is full, into what behind lends, which is
	// given back before anything is waited for. Without wait it reads what has
	// arrived; nothing is errNone.
	ReadBoth(p []byte, behind Lender, wait bool) (int, error)
}

// Lender lends a buffer.
type Lender interface {
	lend() []byte
	back()
}

// aheadFrom is how many bytes are at least asked for, where it may be much.
const aheadFrom = 4 << 10

// errNone says that there is nothing to be read at once.
const errNone noneError = "nothing has arrived"

// noneError is as the error of a deadline: crypto/tls goes on behind it.
type noneError string

func (e noneError) Error() string { return string(e) }
func (noneError) Timeout() bool   { return true }
func (noneError) Temporary() bool { return true }

// Read reads from src into p, and perhaps ahead.
func (a *Ahead) Read(src Arriving, p []byte) (n int, err error) {
	switch {
	case a.stopped.Load():
		return 0, net.ErrClosed
	case len(a.rest) > 0:
		return a.give(p), nil
	case a.atOnce && a.drained:
		return 0, errNone
	case a.much || a.atOnce:
		n, err = a.readBoth(src, p)
	default:
		n, err = src.Read(p)
	}
	a.drained = n < len(p) && n < maxRecord
	if err == errNone {
		return 0, err
	}
	a.much = n >= maxRecord || n == len(p) && n >= aheadFrom
	a.given += min(n, len(p))
	return min(n, len(p)), err
}

// readBoth reads into p and ahead, and returns how much that is together.
func (a *Ahead) readBoth(src Arriving, p []byte) (int, error) {
	n, err := src.ReadBoth(p, a, !a.atOnce)
	if a.buf != nil {
		a.keep((*a.buf)[:max(0, n-len(p))])
	}
	return n, err
}

// lend implements Lender.
func (a *Ahead) lend() []byte {
	a.buf = a.Buffers.get()
	return *a.buf
}

// back implements Lender.
func (a *Ahead) back() { a.keep(nil) }

// give returns what fits into p of what was read ahead.
func (a *Ahead) give(p []byte) int {
	n := copy(p, a.rest)
	a.given += n
	a.keep(a.rest[n:])
	return n
}

// keep notes what of the buffer is to be read, and gives back one in which there
// is nothing.
func (a *Ahead) keep(rest []byte) {
	a.rest = rest
	a.left.Store(int64(len(rest)))
	if len(rest) == 0 {
		a.Buffers.put(a.buf)
		a.buf, a.rest = nil, nil
	}
}

// Fill reads from t, which is TLS over what a reads, into p: what comes, and all
// that has arrived behind it, so far as it fits. It tells of an end with what is
// before it, as crypto/tls does, and again.
func (a *Ahead) Fill(t io.Reader, p []byte) (n int, err error) {
	if a.failed != nil {
		return 0, a.failed
	}
	before := a.given
	if n, err = t.Read(p); err != nil || n == len(p) {
		return n, err
	}
	if took := a.given - before; took > 0 && took-n <= aroundRecord && a.drained && len(a.rest) == 0 {
		return n, nil // it was one record, and all
	}
	k, err := a.FillBehind(t, p[n:])
	return n + k, err
}

// aroundRecord is how many bytes a record of TLS has at most besides its text, in
// the usual ciphers.
const aroundRecord = 64

// FillBehind is Fill, but does not wait for what comes.
func (a *Ahead) FillBehind(t io.Reader, p []byte) (n int, err error) {
	if a.failed != nil {
		return 0, a.failed
	}
	a.atOnce = true
	for err == nil && n < len(p) {
		var k int
		k, err = t.Read(p[n:])
		n += k
	}
	a.atOnce = false
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() { // errNone; a deadline comes again from the next read
		return n, nil
	}
	a.failed = err
	return n, err
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

package upstream

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// maxReplay is how much of a request's body is remembered until the response
// begins, so that a pooled connection that turns out to be dead before
// anything was sent does not fail the request. In bytes.
const maxReplay = 64 << 10

// errSuperseded is what an attempt reads once another one has begun.
var errSuperseded = errors.New("upstream: another attempt reads the body")

// body is a request's body that may be read again from its start, by one
// attempt after another, as long as no more than maxReplay was read.
type body struct {
	src io.ReadCloser

	reading sync.Mutex // held while src is read; never while mu is

	mu      sync.Mutex
	buf     []byte // what was read of src, until sealed
	sealed  bool   // nothing is remembered any more
	err     error  // how src ended
	current *attempt
	closed  bool
}

// attempt is one reading of a body.
type attempt struct {
	body   *body
	pos    int // in buf
	closed bool
}

// attempt begins a reading from the start and ends the one before.
func (b *body) attempt() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sealed {
		return nil, errSent
	}
	b.current = &attempt{body: b}
	return b.current, nil
}

// seal stops remembering.
func (b *body) seal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sealed = true
	b.release()
}

// release gives the memory back once the last attempt has read it.
func (b *body) release() {
	if b.sealed && b.current.pos >= len(b.buf) {
		b.buf, b.current.pos = nil, 0
	}
}

// close closes the source once.
func (b *body) close() {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if !closed {
		b.src.Close()
	}
}

// Read implements io.Reader.
func (a *attempt) Read(p []byte) (int, error) {
	b := a.body
	if n, done, err := a.remembered(p); done {
		return n, err
	}
	b.reading.Lock()
	defer b.reading.Unlock()
	// The attempt before may have been reading until now.
	if n, done, err := a.remembered(p); done {
		return n, err
	}
	n, err := b.src.Read(p)
	return a.remember(p[:n], err)
}

// remembered reads from what is known without asking the source.
func (a *attempt) remembered(p []byte) (n int, done bool, err error) {
	b := a.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case a != b.current:
		return 0, true, errSuperseded
	case a.closed:
		return 0, true, http.ErrBodyReadAfterClose
	case a.pos < len(b.buf):
		n = copy(p, b.buf[a.pos:])
		a.pos += n
		b.release()
		return n, true, nil
	case b.err != nil:
		return 0, true, b.err
	}
	return 0, len(p) == 0, nil
}

// remember takes note of what the source gave. An attempt that has been
// superseded meanwhile leaves it to its successor.
func (a *attempt) remember(p []byte, err error) (int, error) {
	b := a.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && err != io.EOF {
		err = &bodyError{err}
	}
	b.err = err
	if a != b.current {
		b.buf = append(b.buf, p...)
		return 0, errSuperseded
	}
	if !b.sealed && len(b.buf)+len(p) > maxReplay {
		b.sealed = true
	}
	if !b.sealed {
		b.buf = append(b.buf, p...)
		a.pos = len(b.buf)
	}
	b.release()
	return len(p), err
}

// Close implements io.Closer. The source stays open for a later attempt; the
// pool closes it when the trip is over.
func (a *attempt) Close() error {
	a.body.mu.Lock()
	defer a.body.mu.Unlock()
	a.closed = true
	return nil
}

// bodyError marks an error of the sandbox's side of a request.
type bodyError struct{ err error }

// Error implements error.
func (e *bodyError) Error() string { return "request body: " + e.err.Error() }

// Unwrap returns the source's error.
func (e *bodyError) Unwrap() error { return e.err }

// withoutBody takes an answer for what its status says it is: one that has no
// body, whatever length it names (RFC 9110, sections 6.4.1 and 8.6). Over
// HTTP/2 net/http waits for that many bytes.
func withoutBody(resp *http.Response) {
	if resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified {
		resp.Body, resp.ContentLength = nothing{resp.Body}, 0
	}
}

// nothing is a body of no bytes.
type nothing struct{ io.Closer }

// Read implements io.Reader.
func (nothing) Read([]byte) (int, error) { return 0, io.EOF }

package gateway

import (
	"io"
	"net/http"
	"sync/atomic"
)

// answerBody counts an answer and notes when it breaks off.
type answerBody struct {
	io.ReadCloser
	x     *exchange
	most  int64 // bytes; 0 is no bound
	whole bool  // it was read to its end
}

// Close ends the answer. An upstream of HTTP/2 ends it only when what is read
// of the request's body returns, and the client that is to send the rest may
// wait for this answer.
func (b *answerBody) Close() error {
	if b.whole && b.x.asking.Load() {
		go func() { _ = b.ReadCloser.Close() }() // it was whole: there is nothing to tell
		return nil
	}
	return b.ReadCloser.Close()
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	total := b.x.received.Add(int64(n))
	b.x.moved()
	if e := b.x.r.meters.add(0, int64(n)); e != nil && (err == nil || err == io.EOF) {
		n, err = 0, e
	}
	if b.most > 0 && total > b.most {
		n, err = 0, errAnswerTooLong
	}
	b.whole = b.whole || err == io.EOF
	if err != nil && err != io.EOF {
		b.x.broken.Store(true)
		b.x.fail(err)
	}
	return n, err
}

// requestBody counts a request's body. It does not close what it reads from:
// net/http's server does that, and drains it, when the answer has been sent;
// before, it would wait for a client that waits for the answer.
type requestBody struct {
	src    io.Reader
	x      *exchange
	most   int64 // bytes; 0 is no bound
	closed atomic.Bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	b.x.invite()
	n, err := b.src.Read(p)
	total := b.x.sent.Add(int64(n))
	b.x.moved()
	switch over := b.x.r.meters.add(int64(n), 0); {
	case over != nil:
		n, err = 0, over
	case b.most > 0 && total > b.most:
		n, err = 0, errTooLong
	}
	if err != nil {
		b.x.asking.Store(false)
	}
	if err != nil && err != io.EOF {
		b.x.unread.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close ends reading.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	return nil
}

package upstream

import (
	"errors"
	"syscall"
)

// sending is a conn whose records are not gathered.
type sending conn

// Write implements io.Writer. The error of a reset is told when what the peer had
// sent before has been read.
func (s *sending) Write(b []byte) (int, error) {
	c := (*conn)(s)
	if c.barred.Load() {
		return 0, errSent
	}
	n, err := c.Conn.Write(b)
	if !c.ending.Load() {
		c.written.Add(int64(n))
	}
	if !c.unread.Load() && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		c.wait(c.ended, answerWait)
		c.wait(nil, answerGrace)
	}
	return n, err
}

// arriving is what of a conn has not been read ahead.
type arriving conn

// Read implements io.Reader.
func (a *arriving) Read(b []byte) (int, error) { return a.Conn.Read(b) }

// Waiting implements Arriving.
func (a *arriving) Waiting() int { return Waiting(a.raw) }

// ReadBoth implements Arriving.
func (a *arriving) ReadBoth(p []byte, behind Lender, wait bool) (int, error) {
	return a.both.Read(a.Conn, a.raw, p, behind, wait)
}

// waiting is how many bytes can at least be read at once.
func (c *conn) waiting() int { return c.ahead.Waiting((*arriving)(c)) }

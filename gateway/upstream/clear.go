package upstream

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// clearConn is the clear side of a connection of HTTP/1.1, as net/http reads it.
// Inside a chunk net/http reads on until the chunk ends or its caller's buffer
// is full, however long the peer pauses. So it is given what has come of a chunk
// as a chunk of its own; nothing else is changed.
//
// It is used by one reader and one writer at a time.
type clearConn struct {
	net.Conn // a *conn or a *tls.Conn around one
	under    *conn

	writing sync.Mutex // held by a write, whose records may be gathered
	begun   bool       // something was written; under writing

	part  part
	left  int64  // of the part, in bytes; negative: up to the end of the connection
	line  int    // bytes of the line that has begun, of a head or of trailers
	lost  bool   // what comes is not understood, and left to net/http
	rest  []byte // read behind a head or trailers, to be read again
	store []byte // of rest
	held  []byte // of a line of chunks, that has not come whole

	status [10]byte    // what the head began with, up to the first digit of its status
	known  int         // of status, in bytes
	behind atomic.Bool // something came behind an answer, which nobody has asked for

	buf  *[]byte // lent; nil: nothing of it is in out
	out  []byte  // of buf, to be delivered
	much bool    // the last read filled its buffer
	err  error   // behind out
}

// part is what a connection is read for.
type part uint8

// Parts.
const (
	inHead part = iota
	inBody
	inChunks // at a line with a size, or within a chunk if something is left
	inChunkEnd
	inTrailers
)

// Sizes in bytes.
const (
	maxChunkLine = 4 << 10 // as in net/http
	frameRoom    = 2 + 16 + 2
	littleSize   = 4 << 10 // of a buffer for a stream that pauses
	muchSize     = 64 << 10
	pauseSize    = 1 << 10          // less than that is read before a pause
	maxRecord    = 5 + 16<<10 + 256 // of TLS (RFC 8446, section 5.2)
)

// chunkBuffers lends what chunks are read into.
type chunkBuffers struct{ little, much sync.Pool }

func (c *chunkBuffers) get(much bool) *[]byte {
	pool, size := &c.little, littleSize
	if much {
		pool, size = &c.much, muchSize
	}
	if b, ok := pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, frameRoom+maxChunkLine+size)
	return &b
}

func (c *chunkBuffers) put(b *[]byte) {
	if len(*b) > littleSize+frameRoom+maxChunkLine {
		c.much.Put(b)
		return
	}
	c.little.Put(b)
}

// newClearConn returns nc, which is c or a TLS connection around it.
func newClearConn(nc net.Conn, c *conn) *clearConn { return &clearConn{Conn: nc, under: c} }

// body says what follows the head that net/http has read, of which the last read
// was the end.
func (a *clearConn) body(resp *http.Response) {
	switch {
	case resp.Body == http.NoBody: // another goroutine may already wait for the next head
	case a.lost, resp.StatusCode == http.StatusNoContent, resp.StatusCode == http.StatusNotModified:
	case slices.Equal(resp.TransferEncoding, []string{"chunked"}):
		a.part, a.left = inChunks, 0
		a.behind.Store(false)
	default:
		a.part, a.left = inBody, resp.ContentLength
		a.behind.Store(false)
		if resp.StatusCode == http.StatusSwitchingProtocols {
			a.left = -1
		}
	}
}

// Read implements net.Conn.
func (a *clearConn) Read(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case len(a.out) > 0:
		return a.deliver(p), nil
	case a.err != nil:
		return 0, a.err
	}
	switch a.part {
	case inHead:
		if a.behind.Load() {
			return 0, errBehind
		}
		n, err := a.read(p)
		if n = a.endHead(p[:n]); len(a.rest) > 0 {
			err = nil // it comes again behind the rest
		}
		return n, err
	case inBody:
		return a.readBody(p)
	default:
		for len(a.out) == 0 && a.err == nil && a.part != inHead {
			a.fill()
		}
		if len(a.out) > 0 {
			return a.deliver(p), nil
		}
		return 0, a.err
	}
}

// errBehind is all that is read behind what came behind an answer.
var errBehind = errors.New("upstream: something came behind an answer")

// readBody reads of a body whose length may be known, and one byte more, which
// is none of it, if it has come and somebody could take it for an answer.
func (a *clearConn) readBody(p []byte) (int, error) {
	if a.left < 0 {
		return a.readAll(p)
	}
	n, err := a.readAll(p[:min(int64(len(p)), a.left+1)])
	if int64(n) > a.left {
		a.unread(p[a.left:n])
		n, err = int(a.left), nil // it comes again behind the rest
	}
	if a.left -= int64(n); a.left == 0 {
		if err == nil && n == len(p) && len(a.rest) == 0 {
			a.lookBehind()
		}
		a.answered()
	}
	return n, err
}

// lookBehind reads a byte of what has come behind an answer, where what net/http
// reads into had no room for it, and waits for none.
func (a *clearConn) lookBehind() {
	var one [1]byte
	n := 0
	switch {
	case a.under.secured:
		n, _ = a.under.ahead.FillBehind(a.Conn, one[:]) // an error comes again
	case a.under.raw != nil && Waiting(a.under.raw) > 0:
		n, _ = a.Conn.Read(one[:])
	}
	if n > 0 {
		a.unread(one[:n])
	}
}

// answered notes that an answer has ended. What is left was sent behind it.
func (a *clearConn) answered() {
	a.part = inHead
	a.behind.Store(len(a.rest) > 0)
}

// read reads what comes as it is.
func (a *clearConn) read(p []byte) (int, error) {
	if len(a.rest) > 0 {
		n := copy(p, a.rest)
		a.rest = a.rest[n:]
		return n, nil
	}
	return a.Conn.Read(p)
}

// readAll reads what comes, and all that has arrived behind it, so far as it
// fits into p.
func (a *clearConn) readAll(p []byte) (n int, err error) {
	switch ahead := &a.under.ahead; {
	case !a.under.secured:
		return a.read(p)
	case len(a.rest) == 0:
		return ahead.Fill(a.Conn, p)
	default:
		n, _ = a.read(p) // of the rest
		k, err := ahead.FillBehind(a.Conn, p[n:])
		return n + k, err
	}
}

// unread has b, which was read last, read again. It is not part of store.
func (a *clearConn) unread(b []byte) {
	if len(a.rest) > 0 { // b came from there
		a.rest = a.store[len(a.store)-len(a.rest)-len(b):]
		return
	}
	a.store = append(a.store[:0], b...)
	a.rest = a.store
}

// endHead returns how much of b belongs to a head, and keeps the rest: what
// net/http holds when it has read a head is nothing of what follows it.
//
// What follows a head that is not an informational one (RFC 9110, section 15.2)
// is behind the answer, unless body says that it has a body.
func (a *clearConn) endHead(b []byte) int {
	a.known += copy(a.status[a.known:], b)
	end, ended := a.emptyLine(b)
	if !ended {
		return end
	}
	if end < len(b) {
		a.unread(b[end:])
	}
	interim := a.known == len(a.status) && a.status[a.known-1] == '1'
	a.known = 0
	a.behind.Store(!interim && len(a.rest) > 0)
	return end
}

// emptyLine finds the end of the lines of a head or of trailers, which is an
// empty one. A line of one byte is a mistake if that is not a carriage return.
func (a *clearConn) emptyLine(b []byte) (end int, ended bool) {
	for end < len(b) {
		n := bytes.IndexByte(b[end:], '\n')
		if n < 0 {
			a.line += len(b) - end
			return len(b), false
		}
		length := a.line + n
		end, a.line = end+n+1, 0
		if length <= 1 {
			return end, true
		}
	}
	return end, false
}

func (a *clearConn) deliver(p []byte) int {
	n := copy(p, a.out)
	if a.out = a.out[n:]; len(a.out) == 0 {
		a.under.pool.u.chunks.put(a.buf)
		a.buf, a.out = nil, nil
	}
	return n
}

// fill reads what has come of chunks, and no more, into out.
func (a *clearConn) fill() {
	buffers := &a.under.pool.u.chunks
	bp := buffers.get(a.much)
	room := (*bp)[frameRoom:]
	had := copy(room, a.held)
	n, err := a.readAll(room[had:])
	a.err, a.much = err, n >= pauseSize
	n += had
	a.held, a.buf = a.held[:0], bp
	frame, end := a.judge(room[:n])
	if a.err != nil && a.part != inHead { // what is there is all
		a.held, end = a.held[:0], n
	}
	if a.out = (*bp)[frameRoom-frame : frameRoom+end]; len(a.out) == 0 {
		buffers.put(bp)
		a.buf, a.out = nil, nil
	}
}

// Package http1 reads the framing of HTTP/1.1 requests strictly (RFC 9112)
// before a lenient parser sees them. What two servers could frame in two ways
// is refused here, so that the request which was decided on is the request
// which is forwarded.
package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds on one request's head and on the framing of its body.
const (
	DefaultMaxHead   = 128 << 10 // bytes of request line and fields
	DefaultMaxFields = 512

	DefaultHeadTimeout = 30 * time.Second
	DefaultBodyTimeout = 15 * time.Minute

	maxChunkLine = 512 // bytes of a chunk-size line with its extensions
	maxTrailer   = 16 << 10
	readSize     = 1 << 10 // kept while a connection is idle; longer heads grow it
)

// Guard is a connection whose reads deliver only requests that were framed
// strictly. Heads are delivered whole; bodies stream through.
//
// It stands in front of net/http, which serves the requests of a connection
// one after the other: Next gives the head of each in turn.
type Guard struct {
	net.Conn
	limits Limits

	in     []byte // read from Conn, not yet judged
	out    []byte // judged, not yet delivered
	looked int    // bytes of in, within a head, that have been looked at
	timed  bool   // a deadline for the rest of the head is set
	body   bodyState
	large  []byte // for what is read of a chunk, while much comes
	much   bool   // the last piece of a chunk was large
	err    error  // sticky
	open   bool   // after an upgrade: bytes pass unread
	halt   atomic.Bool
	unread atomic.Bool
	fault  atomic.Pointer[Violation] // of a body
	called atomic.Bool               // the server wants a read back that it has begun

	mu    sync.Mutex
	heads []Head
	done  int  // heads read
	ended bool // the client has closed its side after a whole request
	rest  rest
}

// Limits bound what a Guard holds and waits for. A zero field is its default.
type Limits struct {
	Head        int           // bytes of a request's head; default DefaultMaxHead
	Fields      int           // fields of a request's head; default DefaultMaxFields
	HeadTimeout time.Duration // from a head's first byte to its last; default DefaultHeadTimeout
	BodyTimeout time.Duration // from one piece of a body to the next; default DefaultBodyTimeout
}

// NewGuard returns a Guard over c.
func NewGuard(c net.Conn, l Limits) *Guard {
	if l.Head <= 0 {
		l.Head = DefaultMaxHead
	}
	if l.Fields <= 0 {
		l.Fields = DefaultMaxFields
	}
	if l.HeadTimeout <= 0 {
		l.HeadTimeout = DefaultHeadTimeout
	}
	if l.BodyTimeout <= 0 {
		l.BodyTimeout = DefaultBodyTimeout
	}
	return &Guard{Conn: c, limits: l}
}

// Next returns the head of the request that is being served and forgets it.
// It is false when there is none, which a server that asks once a request
// never sees.
func (g *Guard) Next() (Head, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.heads) == 0 {
		return Head{}, false
	}
	h := g.heads[0]
	g.heads = g.heads[1:]
	return h, true
}

// HalfClosed says whether the client has closed its side where a request may
// end. It may still wait for answers (RFC 9112, section 9.6).
func (g *Guard) HalfClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended
}

// Unread says whether the client may be sending what will not be read: the
// rest of a body, or what follows a refused head. After Halt nobody waits for
// that.
func (g *Guard) Unread() bool { return g.unread.Load() && !g.halt.Load() }

// Heads returns how many heads have been read, refused ones included.
func (g *Guard) Heads() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done
}

// Read delivers judged bytes. A body that breaks its framing ends in a
// *Violation error.
func (g *Guard) Read(p []byte) (int, error) {
	for {
		if len(g.out) > 0 {
			n := copy(p, g.out)
			g.out = g.out[n:]
			return n, nil
		}
		if g.open {
			return g.readOpen(p)
		}
		if g.err != nil {
			return 0, g.err
		}
		if g.body.remaining > 0 && len(g.in) == 0 {
			if g.body.chunked {
				return g.piece(p)
			}
			if int64(len(p)) > g.body.remaining {
				p = p[:g.body.remaining]
			}
			if err := g.bound(); err != nil {
				return 0, err
			}
			n, err := g.Conn.Read(p)
			if err == nil {
				n = g.gather(p, n) // of much that comes in small pieces each costs
			}
			if g.body.remaining -= int64(n); !g.body.inside() {
				g.lift()
			} else if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return n, err
		}
		if g.step() {
			continue
		}
		if err := g.fill(); err != nil {
			return 0, err
		}
	}
}

func (g *Guard) readOpen(p []byte) (int, error) {
	if len(g.in) > 0 {
		n := copy(p, g.in)
		g.in = g.in[n:]
		return n, nil
	}
	return g.Conn.Read(p)
}

// CloseWrite passes a half-close on where the connection can do it.
func (g *Guard) CloseWrite() error {
	if c, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// fill reads more bytes. A head that does not come whole is refused like any
// other, so that it is recorded.
func (g *Guard) fill() error {
	if err := g.bound(); err != nil {
		return err
	}
	switch size := cap(g.in) - len(g.in); {
	case len(g.in) == 0 && (size < readSize/2 || size > readSize): // out was delivered, nothing else holds it
		g.in = make([]byte, 0, readSize)
	case size < readSize/2:
		grown := make([]byte, len(g.in), max(2*len(g.in), readSize))
		copy(grown, g.in)
		g.in = grown
	}
	n, err := g.Conn.Read(g.in[len(g.in):cap(g.in)])
	g.in = g.in[:len(g.in)+n]
	if n > 0 || err == nil {
		if !g.body.inside() {
			g.stir()
		}
		return nil
	}
	if g.rests(err) {
		return io.EOF
	}
	if len(g.in) > 0 && !g.body.inside() && !g.halt.Load() && !g.called.Load() {
		g.refuse(broken(err))
		return nil
	}
	if err != io.EOF {
		return err
	}
	if g.body.inside() {
		return io.ErrUnexpectedEOF
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	return io.EOF
}

// step judges what is in g.in and says whether it got further: whether there
// is something to deliver, or an error, without another read.
func (g *Guard) step() bool {
	if g.body.inside() {
		return g.stepBody()
	}
	if len(g.in) == 0 {
		return false
	}
	// RFC 9112, section 2.2: an empty line before the request line is ignored.
	if g.in[0] == '\r' {
		if len(g.in) < 2 {
			return false
		}
		if g.in[1] == '\n' && !g.body.skipped {
			g.in, g.body.skipped = g.in[2:], true
			return len(g.in) > 0
		}
	}
	end, v := g.headEnd()
	switch {
	case v != nil:
		return g.refuse(v)
	case end > g.limits.Head, end < 0 && len(g.in) > g.limits.Head:
		return g.refuse(g.tooLarge())
	case end < 0:
		return false
	}
	h, framing, deliver, v := parseHead(g.in[:end], g.limits.Fields)
	if v == nil && len(deliver) > g.limits.Head { // escaping made it longer
		v = g.tooLarge()
	}
	if v != nil {
		return g.refuse(v)
	}
	g.push(h)
	g.out, g.in = deliver, g.in[end:]
	g.body = bodyState{remaining: framing.length, chunked: framing.chunked}
	g.open = h.Upgrade
	g.lift()
	return true
}

// headEnd finds the end of the head and checks the bytes up to there, but
// those only that came since the last time. It is negative while the end has
// not come.
func (g *Guard) headEnd() (int, *Violation) {
	from := max(0, g.looked-3) // the empty line may have been cut in two
	end, limit := bytes.Index(g.in[from:], []byte("\r\n\r\n")), len(g.in)
	if end >= 0 {
		end += from + 4
		limit = end - 2
	}
	look := g.looked
	if look > 0 && g.in[look-1] == '\r' {
		look--
	}
	g.looked = len(g.in)
	if end >= 0 {
		g.looked = 0
	}
	return end, checkLines(g.in[look:max(look, min(limit, g.limits.Head))])
}

func (g *Guard) tooLarge() *Violation {
	return &Violation{TooLarge: true, Detail: fmt.Sprintf("request head is over %d bytes", g.limits.Head)}
}

// broken is the violation of a head that err has ended.
func broken(err error) *Violation {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return &Violation{Malformed: true, Detail: "the request head did not come in time"}
	}
	return &Violation{Malformed: true, Detail: "the connection ended inside a request head"}
}

// refuse delivers a stand-in request, whose handler finds the violation in
// its head, and then the end of the stream.
func (g *Guard) refuse(v *Violation) bool {
	g.unread.Store(true)
	g.push(Head{Method: "GET", Target: "/", Violation: v})
	g.out = []byte("GET / HTTP/1.1\r\nHost: refused.invalid\r\nConnection: close\r\n\r\n")
	g.in = nil
	g.err = io.EOF
	return true
}

func (g *Guard) push(h Head) {
	g.mu.Lock()
	g.heads = append(g.heads, h)
	g.done++
	g.rest = rest{}
	g.mu.Unlock()
}

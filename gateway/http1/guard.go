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
	"strings"
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

// Violation is why a head is refused.
type Violation struct {
	TooLarge  bool   // over a bound (RFC 6585, section 5)
	Host      bool   // the Host field or an absolute target cannot be read as one authority
	Malformed bool   // wrong, but not in a way in which two servers could frame it differently
	Detail    string // for the record: what is wrong, without bytes of the request
}

// Error returns the detail.
func (v *Violation) Error() string { return v.Detail }

// Head is what the guard saw of one request.
type Head struct {
	Method string
	// Target is the origin-form path and query as sent, byte for byte; "*"
	// for the asterisk-form.
	Target string
	// Upgrade is set on the handshake of a WebSocket (RFC 6455, section 4.1).
	// Bytes after it are not read as HTTP: answer with 101, or close.
	Upgrade bool
	// Scheme and Authority are set when the target was in absolute-form.
	Scheme, Authority string
	// Violation is set on a head that was refused. The request which the
	// server then sees is a stand-in: answer it with an error and close.
	Violation *Violation
}

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
	err    error // sticky
	open   bool  // after an upgrade: bytes pass unread
	halt   atomic.Bool
	unread atomic.Bool

	mu    sync.Mutex
	heads []Head
	done  int  // heads read
	ended bool // the client has closed its side after a whole request
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
			if int64(len(p)) > g.body.remaining {
				p = p[:g.body.remaining]
			}
			if err := g.bound(); err != nil {
				return 0, err
			}
			n, err := g.Conn.Read(p)
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

// errHalted ends reading after Halt.
var errHalted = errors.New("connection is no longer read")

// Halt ends reading inside a request, also one that waits. It may be called
// at any time.
func (g *Guard) Halt() {
	g.halt.Store(true)
	_ = g.Conn.SetReadDeadline(time.Unix(1, 0)) // an error says that the wait has ended
}

// bound sets the deadline of the next read: one for the whole of a head that
// has begun, one for each piece of a body. Before a head the server sets it.
func (g *Guard) bound() error {
	if g.halt.Load() {
		return errHalted
	}
	wait := g.limits.BodyTimeout
	if !g.body.inside() {
		if wait = g.limits.HeadTimeout; len(g.in) == 0 || g.timed {
			return nil
		}
	}
	g.timed = true
	if err := g.Conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if g.halt.Load() { // its deadline may have been the earlier
		return errHalted
	}
	return nil
}

// lift takes a deadline back when a head or a body has ended: how long the
// next is waited for is for the server to say.
func (g *Guard) lift() {
	g.unread.Store(g.body.inside())
	if g.timed {
		g.timed = false
		_ = g.Conn.SetReadDeadline(time.Time{}) // an error comes again from the next read
	}
}

// fill reads more bytes. End of input inside a head is an error that
// net/http does not answer, as it should be.
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
		return nil
	}
	if err != io.EOF {
		return err
	}
	if len(g.in) > 0 || g.body.inside() {
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
	g.mu.Unlock()
}

// checkLines refuses line ends other than CRLF (RFC 9112, section 2.2) and
// control characters, as soon as they arrive.
func checkLines(b []byte) *Violation {
	for i, c := range b {
		switch {
		case c == '\n':
			if i == 0 || b[i-1] != '\r' {
				return &Violation{Detail: "bare LF in the request head"}
			}
		case c == '\r':
			if i+1 < len(b) && b[i+1] != '\n' {
				return &Violation{Detail: "bare CR in the request head"}
			}
		case c < 0x20 && c != '\t' || c == 0x7f:
			return &Violation{Detail: "control character in the request head"}
		}
	}
	return nil
}

type framing struct {
	length             int64
	chunked            bool
	upgrade, websocket bool // named in Connection and in Upgrade
}

// parseHead reads one whole head, its empty line included, and returns the
// bytes that the server is to read in its place: the same, with the target in
// origin-form and with stray percent signs escaped, which net/url refuses.
func parseHead(b []byte, maxFields int) (Head, framing, []byte, *Violation) {
	lines := b
	first, rest, _ := bytes.Cut(lines, []byte("\r\n"))
	h, version, v := parseRequestLine(string(first))
	if v != nil {
		return Head{}, framing{}, nil, v
	}
	f, v := parseFields(rest[:len(rest)-2], version, maxFields)
	if v != nil {
		return Head{}, framing{}, nil, v
	}
	h.Upgrade = f.websocket && f.upgrade && h.Method == "GET"
	if h.Upgrade && (f.length > 0 || f.chunked) {
		return Head{}, framing{}, nil, &Violation{Detail: "WebSocket handshake with a body"}
	}
	if h.Method == "CONNECT" {
		// The server would read the target as an authority. It is refused
		// in any case; origin-form keeps the request parseable.
		h.Authority, h.Target = h.Target, "/"
	}
	shown := escapeStray(h.Target)
	deliver := make([]byte, 0, len(b)+len(shown)-len(h.Target)+8)
	deliver = append(deliver, h.Method...)
	if h.Method == "CONNECT" {
		deliver = append(deliver[:0], "GET"...)
	}
	deliver = append(deliver, ' ')
	deliver = append(deliver, shown...)
	deliver = append(deliver, " HTTP/1."...)
	deliver = append(deliver, byte('0'+version), '\r', '\n')
	deliver = append(deliver, rest...)
	return h, f, deliver, nil
}

// parseRequestLine reads method, target and version (RFC 9112, section 3).
func parseRequestLine(line string) (Head, int, *Violation) {
	bad := func(s string) (Head, int, *Violation) { return Head{}, 0, &Violation{Detail: s} }
	method, rest, ok := strings.Cut(line, " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !token(method) {
		return bad("malformed request line")
	}
	version := 0
	switch proto {
	case "HTTP/1.1":
		version = 1
	case "HTTP/1.0":
	default:
		return bad("request line names no version of HTTP/1")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return bad("illegal character in the request target")
		}
	}
	h := Head{Method: method, Target: target}
	switch {
	case target == "":
		return bad("empty request target")
	case method == "CONNECT":
	case target[0] == '/':
	case target == "*":
		if method != "OPTIONS" {
			return bad("asterisk target with a method other than OPTIONS")
		}
	default:
		scheme, after, ok := strings.Cut(target, "://")
		if !ok {
			return bad("request target is neither a path nor an absolute URL")
		}
		cut := strings.IndexAny(after, "/?")
		h.Scheme, h.Authority, h.Target = strings.ToLower(scheme), after, "/"
		if cut >= 0 {
			h.Authority, h.Target = after[:cut], after[cut:]
			if after[cut] == '?' {
				h.Target = "/" + h.Target
			}
		}
		if h.Authority == "" {
			return Head{}, 0, &Violation{Host: true, Detail: "absolute request target without an authority"}
		}
	}
	return h, version, nil
}

// escapeStray writes %25 for each percent sign that begins no escape.
func escapeStray(s string) string {
	path, query, hasQuery := strings.Cut(s, "?")
	if !stray(path) {
		return s
	}
	var b strings.Builder
	for i := range len(path) {
		b.WriteByte(path[i])
		if path[i] == '%' && !(i+2 < len(path) && hex(path[i+1]) && hex(path[i+2])) {
			b.WriteString("25")
		}
	}
	if hasQuery {
		b.WriteByte('?')
		b.WriteString(query)
	}
	return b.String()
}

func stray(path string) bool {
	for i := range len(path) {
		if path[i] == '%' && !(i+2 < len(path) && hex(path[i+1]) && hex(path[i+2])) {
			return true
		}
	}
	return false
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// token says whether s is an RFC 9110 token (section 5.6.2).
func token(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return true
}

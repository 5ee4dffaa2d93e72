package http1

import (
	"bytes"
	"io"
	"math"
)

// bodyState is where in a request's body the guard stands.
type bodyState struct {
	remaining int64 // bytes of a Content-Length body, or of the chunk of which a part was delivered
	chunked   bool
	part      chunkPart
	trailer   int  // bytes of trailer lines read
	skipped   bool // the empty line before a request line was taken
}

type chunkPart uint8

const (
	chunkSize chunkPart = iota
	chunkData
	chunkEnd // the CRLF after the data
	chunkTrailer
)

// inside says whether bytes of the body are still to come.
func (s *bodyState) inside() bool { return s.remaining > 0 || s.chunked }

// stepBody judges body bytes in g.in; see step.
func (g *Guard) stepBody() bool {
	if len(g.in) == 0 {
		return false
	}
	if g.body.remaining > 0 { // of a chunk nothing is left in g.in
		n := int(min(int64(len(g.in)), g.body.remaining))
		g.deliver(n)
		if g.body.remaining -= int64(n); !g.body.inside() {
			g.lift()
		}
		return true
	}
	switch g.body.part {
	case chunkData:
		g.body.part = chunkEnd
		return true
	case chunkEnd:
		if len(g.in) < 2 {
			return false
		}
		if g.in[0] != '\r' || g.in[1] != '\n' {
			return g.broken("chunk data is longer than its size says")
		}
		g.deliver(2)
		g.body.part = chunkSize
		return true
	case chunkTrailer:
		return g.stepTrailer()
	default:
		return g.stepSize()
	}
}

// stepSize reads a chunk-size line (RFC 9112, section 7.1) and what has come of
// the chunk. If that is not the whole, the size becomes that of what has come:
// inside a chunk net/http reads on until the chunk ends or its caller's buffer is
// full, however long the client pauses. See piece for the rest.
func (g *Guard) stepSize() bool {
	end, ok := g.line(maxChunkLine)
	if !ok {
		return g.err != nil
	}
	size, digits, ok := parseChunkSize(g.in[:end])
	if !ok {
		return g.broken("malformed chunk size")
	}
	have := min(int64(len(g.in)-end-2), size)
	switch {
	case size == 0:
		g.body.part = chunkTrailer
	case have == 0:
		return false
	default:
		g.body.part = chunkData
	}
	g.deliver(end + 2 + int(have))
	if have < size {
		g.out, have = g.gathered(g.out, have, size)
		hexDigits(g.out[:digits], have)
	}
	g.body.remaining = size - have
	return true
}

// gathered returns what was delivered of a chunk, its line and so much of it,
// with what can be read behind that at once where much comes.
func (g *Guard) gathered(out []byte, have, size int64) ([]byte, int64) {
	if !g.much || len(out) > pieceSize-maxRecord {
		return out, have
	}
	b := g.buffer()
	n := copy(b, out)
	n = g.gather(b[:n+int(min(int64(len(b)-n), size-have))], n)
	return b[:n], have + int64(n-len(out))
}

// buffer returns the large buffer. Nothing may be left in it.
func (g *Guard) buffer() []byte {
	if g.large == nil {
		g.large = make([]byte, pieceRoom+pieceSize)
	}
	return g.large
}

// gather reads behind the first n bytes of b what can be read at once: so much
// has arrived that a whole record is in it.
func (g *Guard) gather(b []byte, n int) int {
	for len(b)-n >= maxRecord && g.waiting() >= maxRecord {
		k, err := g.Conn.Read(b[n:])
		if n += k; err != nil {
			break // it comes again from the next read
		}
	}
	return n
}

// Sizes in bytes of what piece reads.
const (
	pieceRoom = len("\r\n00000000\r\n") // before it
	pieceSize = 64 << 10                // into a buffer of its own
	pieceMuch = 4 << 10                 // from here on
	maxRecord = 5 + 16<<10 + 256        // of TLS (RFC 8446, section 5.2)
)

// piece reads what has come of a chunk of which net/http was given a part, and
// delivers it as a chunk of its own: behind the end of that part, and a size. It
// reads into p, and where much comes into a buffer, as net/http asks for little.
func (g *Guard) piece(p []byte) (int, error) {
	b, own := p, g.much || len(p) < 2*pieceRoom
	if own {
		b = g.buffer()
	}
	b = b[:pieceRoom+int(min(int64(len(b)-pieceRoom), g.body.remaining))]
	if err := g.bound(); err != nil {
		return 0, err
	}
	n, err := g.Conn.Read(b[pieceRoom:])
	if n == 0 {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	if own {
		n = g.gather(b, pieceRoom+n) - pieceRoom
	}
	b = b[:pieceRoom+n]
	copy(b, "\r\n00000000\r\n")
	hexDigits(b[2:pieceRoom-2], int64(n))
	g.body.remaining -= int64(n)
	g.much = n >= pieceMuch-pieceRoom || own && g.body.remaining == 0
	if !g.much {
		g.large = nil
	}
	if !own {
		return len(b), nil // an error comes again from the next read
	}
	n = copy(p, b)
	g.out = b[n:]
	return n, nil
}

// stepTrailer reads one trailer line, or the empty one that ends the body.
func (g *Guard) stepTrailer() bool {
	end, ok := g.line(maxTrailer)
	if !ok {
		return g.err != nil
	}
	if end > 0 {
		name, _, found := bytes.Cut(g.in[:end], []byte(":"))
		if !found || !token(string(name)) {
			return g.broken("malformed trailer field")
		}
		if equalFold(name, "transfer-encoding") || equalFold(name, "content-length") || equalFold(name, "host") {
			return g.broken("framing field in the trailers")
		}
		if g.body.trailer += end + 2; g.body.trailer > maxTrailer {
			return g.broken("trailers are too large")
		}
		g.deliver(end + 2)
		return true
	}
	g.deliver(2)
	g.body, g.much, g.large = bodyState{}, false, nil
	g.lift()
	return true
}

// line finds the CRLF that ends the line at the start of g.in and checks the
// line's bytes. When it is not there yet, or g.err was set, ok is false.
func (g *Guard) line(limit int) (end int, ok bool) {
	end = bytes.Index(g.in, []byte("\r\n"))
	have := g.in
	if end >= 0 {
		have = g.in[:end+2]
	}
	if v := checkLines(have[:min(len(have), limit+2)]); v != nil {
		g.broken(v.Detail)
		return 0, false
	}
	if end > limit || end < 0 && len(g.in) > limit {
		g.broken("chunk line is too long")
		return 0, false
	}
	return end, end >= 0
}

// deliver moves n judged bytes out.
func (g *Guard) deliver(n int) {
	g.out = g.in[:n:n]
	g.in = g.in[n:]
}

// broken ends the stream inside a body: the request was decided and its
// upstream half is cut by the error.
func (g *Guard) broken(detail string) bool {
	v := &Violation{Detail: detail}
	g.unread.Store(true)
	g.fault.Store(v)
	g.err, g.in = v, nil
	return true
}

// Broken is how the framing of a body was broken, or nil. It is that of the
// request that is being served: there is none after it. It is known before a
// read of the body fails, which the server takes for the client's end.
func (g *Guard) Broken() *Violation { return g.fault.Load() }

// waiting is how many bytes have at least arrived that were not read yet.
func (g *Guard) waiting() int {
	if c, ok := g.Conn.(interface{ Waiting() int }); ok {
		return c.Waiting()
	}
	return 0
}

// parseChunkSize reads the size, which has so many digits, and ignores
// extensions.
func parseChunkSize(b []byte) (n int64, length int, ok bool) {
	digits := b
	if i := bytes.IndexByte(b, ';'); i >= 0 {
		digits = b[:i]
	}
	if len(digits) == 0 || len(digits) > 16 {
		return 0, 0, false
	}
	for _, c := range digits {
		var d int64
		switch {
		case '0' <= c && c <= '9':
			d = int64(c - '0')
		case 'a' <= c && c <= 'f':
			d = int64(c-'a') + 10
		case 'A' <= c && c <= 'F':
			d = int64(c-'A') + 10
		default:
			return 0, 0, false
		}
		if n > (math.MaxInt64-15)/16 {
			return 0, 0, false
		}
		n = n*16 + d
	}
	return n, len(digits), true
}

// hexDigits writes n, which has no more digits, with zeros before it.
func hexDigits(b []byte, n int64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

package http2guard

import (
	"errors"
	"io"
	"slices"

	"golang.org/x/net/http2/hpack"
)

// maxCut is of how many streams that the server has reset it is known that the
// client may not have heard of that.
const maxCut = 1000

// Read reads what follows the preface from r, for the server. There is one
// reader at a time.
func (g *Guard) Read(r io.Reader, b []byte) (int, error) {
	var err error
	for len(g.rest) == 0 && err == nil {
		var n int
		n, err = r.Read(b)
		out, fault := g.Take(b[:n])
		if fault != nil {
			return 0, fault
		}
		g.rest = out
		if n == 0 {
			break
		}
	}
	n := copy(b, g.rest)
	if g.rest = g.rest[n:]; len(g.rest) > 0 {
		err = nil // it comes again
	}
	return n, err
}

// passed gathers what the server is to get of in, in its place as long as there
// is room for it in what was looked at.
type passed struct {
	in    []byte
	seen  int // bytes of in that were looked at
	bytes []byte
	own   bool // bytes are not in in
}

func (p *passed) add(b ...byte) {
	if !p.own && len(p.bytes)+len(b) <= p.seen {
		p.bytes = p.in[:len(p.bytes)+copy(p.in[len(p.bytes):p.seen], b)]
		return
	}
	if !p.own {
		p.bytes, p.own = slices.Clip(p.bytes), true
	}
	p.bytes = append(p.bytes, b...)
}

// A server must be ready for what its client sent before it heard of a reset
// (RFC 9113, section 5.1). Net/http closes the connection for trailers, but
// only resets the stream, once more, for a field without a name. Their own
// fields it must see: they may change the table that later heads refer to.

// passedFlags are the flags of the frame that begins, as the server is to see
// them: a stray head does not end before endStray.
func (g *Guard) passedFlags() byte {
	if g.stray && g.piece() {
		return g.flags &^ flagEndHeaders
	}
	return g.flags
}

// endStray returns the frame that ends a stray head, if the frame that was
// taken was the last of one.
func (g *Guard) endStray() []byte {
	if !g.stray || !g.piece() || g.flags&flagEndHeaders == 0 {
		return nil
	}
	g.stray = false
	id := g.id
	return []byte{0, 0, 3, frameContinuation, flagEndHeaders, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id),
		0, 0, 0} // a literal that is not indexed, with no name and no value
}

// again looks at a further head of a stream: trailers, or what comes on one that
// has ended, for which the server resets it or closes the connection (RFC 9113,
// section 5.1).
func (g *Guard) again(h *request) error {
	sound := len(h.pseudo) == 0 && h.invalid == "" && g.ends
	asks := slices.ContainsFunc(h.pseudo, func(f hpack.HeaderField) bool { return f.Name == ":method" })
	if !asks && slices.Contains(g.cut, g.id) { // trailers of a request that was refused, which is on record
		if !g.stray || !sound || h.cut {
			return errors.New("http2: malformed trailers on a stream that was reset")
		}
		g.ended(g.id)
		return nil
	}
	w := g.waits(g.id)
	if !slices.Contains(g.sending, g.id) && (w == nil || w.gone) {
		f := h.told("a request head on a stream that has ended")
		f.Lost = len(h.pseudo) == 0 // trailers may be late only
		return errors.Join(g.report(f), errors.New("http2: "+f.Detail))
	}
	if !sound {
		g.breaks("the trailers are malformed")
	}
	if g.ends {
		g.ended(g.id)
	}
	return nil
}

// ended takes note that nothing is to come on a stream any more.
func (g *Guard) ended(id uint32) {
	is := func(other uint32) bool { return other == id }
	g.sending, g.cut = slices.DeleteFunc(g.sending, is), slices.DeleteFunc(g.cut, is)
}

// cutOff takes note that the server has reset a stream, on which more may come.
func (g *Guard) cutOff(id uint32) {
	if !slices.Contains(g.sending, id) {
		return
	}
	g.ended(id)
	if len(g.cut) >= maxCut {
		g.cut = slices.Delete(g.cut, 0, 1)
	}
	g.cut = append(g.cut, id)
}

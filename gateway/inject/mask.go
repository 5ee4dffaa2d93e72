package inject

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"sallyport/secrets"
)

// filler covers values. It is one byte, so that lengths stay as they are.
const filler = '*'

// Masker covers values and their encodings with a filler of the same length.
// It may be used for many responses at once.
//
// It finds a value that stands in a text as it is or encoded once, in the
// ways that encodings and looseForms list. It does not find one that the
// upstream has transformed otherwise: reversed, encrypted, in another case, in
// pieces, or in a file that is compressed as such.
type Masker struct {
	seek  *seeker
	field *seeker  // what of values can be the name of a header, in lower case; nil: nothing
	names []string // of secrets, by owner of a pattern

	now  func() *Masker // see Following; nil: it is this one
	room Room           // see Within
}

// Nothing returns a Masker that covers nothing, where values may come in later.
func Nothing() *Masker { return &Masker{seek: newSeeker(nil, nil)} }

// Following returns m for one response. What is read of its body later, of its
// trailers and its messages is covered by what now returns then; it is never
// nil, and is the same one when nothing has changed.
func (m *Masker) Following(now func() *Masker) Masker {
	f := *m
	f.now = now
	return f
}

// Within has m, which is for one response, take from room what it needs of
// memory to look into what is compressed.
func (m *Masker) Within(room Room) { m.room = room }

// latest returns what covers what has come by now.
func (m *Masker) latest() *Masker {
	if m.now == nil {
		return m
	}
	return m.now()
}

func newMasker(held []secrets.Held) *Masker {
	m := &Masker{}
	var patterns []string
	var owner []int
	var escaped []looseValue
	var fields patternList
	seen := make(map[string]bool)
	for _, h := range held {
		m.names = append(m.names, h.Name)
		escaped = append(escaped, looseForms(h.Value.Reveal(), len(m.names)-1)...)
		for _, p := range encodings(h.Value.Reveal()) {
			fields.add(strings.ToLower(p), len(m.names)-1)
			if !seen[p] {
				seen[p] = true
				patterns, owner = append(patterns, p), append(owner, len(m.names)-1)
			}
		}
	}
	if len(patterns) == 0 {
		return nil
	}
	m.seek = newSeeker(patterns, owner)
	m.seek.beside(escaped)
	m.field = fields.seeker()
	return m
}

// span is a part of a text that is covered.
type span struct{ start, end int }

// cover covers the values in text, whole ones only, and calls hit for each.
func (m *Masker) cover(text []byte, hit func(name string)) {
	var spans []span
	each(m.seek, text, func(owner, start, end int) {
		hit(m.names[owner])
		spans = append(spans, span{start, end})
	})
	for _, s := range spans {
		fill(text[s.start:s.end])
	}
}

func fill(b []byte) {
	for i := range b {
		b[i] = filler
	}
}

// Text returns text with values covered, and calls hit for each.
func (m *Masker) Text(text string, hit func(name string)) string {
	found := false
	each(m.seek, text, func(_, _, _ int) { found = true })
	if !found {
		return text // as nearly every one: it is not copied
	}
	b := []byte(text)
	m.cover(b, hit)
	return string(b)
}

// named calls hit for each value in the name of a field, whose case does not
// survive, and says whether there is one.
func (m *Masker) named(name string, hit func(name string)) (found bool) {
	if m.field == nil || len(name) < m.field.shortest {
		return false
	}
	look := func(text string) {
		each(m.field, strings.ToLower(text), func(owner, _, _ int) { found = true; hit(m.names[owner]) })
	}
	look(name)
	if plain := unescapeAll(name); plain != name {
		look(plain)
	}
	return found
}

// Header covers values in a header, in place. A field in whose name a value
// stands, in any case, is taken out.
func (m *Masker) Header(h http.Header, hit func(name, header string)) {
	for name, lines := range h {
		if m.named(name, func(secret string) { hit(secret, "name") }) {
			delete(h, name)
			continue
		}
		for i, text := range lines {
			lines[i] = m.Text(text, func(secret string) { hit(secret, name) })
		}
	}
}

// Reader returns src with values covered. What it gives back is as long as
// what it reads, and it holds nothing back but bytes that may be the
// beginning of a value, if they are more than a slight piece of it; hit is
// called for each value, from Read.
func (m *Masker) Reader(src io.Reader, hit func(name string)) io.Reader {
	return &maskReader{m: m, src: src, hit: hit}
}

// whole makes r Reader of the whole of a body; firm is that of a maskReader.
func (m *Masker) whole(r *maskReader, src io.Reader, hit func(name string), firm bool) io.Reader {
	*r = maskReader{m: m, src: src, hit: hit, firm: firm}
	return r
}

// part is Reader for a part of a representation: pieces of a value at its
// beginning and end are covered as well, and edge is called for each. Reading
// one of less than minPart bytes is an error.
func (m *Masker) part(src io.Reader, hit, edge func(name string)) io.Reader {
	return &maskReader{m: m, src: src, hit: hit, edge: edge, least: minPart, first: true}
}

// minPart is the shortest part of a representation that is looked into, in
// bytes. What is covered of a shorter one would tell guesses of a piece of a
// value from others.
const minPart = 32

// errShortPart ends a part of less than minPart bytes.
var errShortPart = fmt.Errorf("response: a part of a body of less than %d bytes cannot be looked into", minPart)

type maskReader struct {
	m     *Masker
	is    *Masker // the latest of m; nil: it has not been asked for
	src   io.Reader
	hit   func(name string)
	edge  func(name string) // src is a part of a whole, and this is called for what its edges cut; nil: it is a whole
	least int               // how long such a part is at least, in bytes
	first bool              // nothing of it has been judged
	firm  bool              // how long src is has been said: no piece of a value goes out before the rest

	held    []byte // read, and not judged yet
	given   int    // how many bytes of held have been given back
	covered int    // how many bytes of held are part of a value
	ready   []byte // judged, and not given back yet
	buf     []byte // for a caller whose buffer is too small
	err     error
}

// minBuffer is the smallest buffer that is filled in place, in bytes.
const minBuffer = 4 << 10

func (r *maskReader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if r.is == nil {
		r.is = r.m.latest()
	}
	for len(r.ready) == 0 && r.err == nil {
		room := len(r.held) + r.is.seek.longest
		if len(b) >= max(room, minBuffer) {
			if n := copy(b, r.fill(b)); n > 0 {
				return n, nil
			}
			continue
		}
		if len(r.buf) < max(room, minBuffer) {
			r.buf = make([]byte, max(room, minBuffer))
		}
		r.ready = r.fill(r.buf)
	}
	if len(r.ready) > 0 {
		n := copy(b, r.ready)
		r.ready = r.ready[n:]
		return n, nil
	}
	return 0, r.err
}

// fill reads into b, which is longer than what is held, until something can
// be given back, and returns that; nothing, if b has become too short for that.
func (r *maskReader) fill(b []byte) []byte {
	for {
		n := copy(b, r.held)
		k, err := r.src.Read(b[n:])
		n += k
		text := b[:n]
		r.is = r.m.latest() // the value that has come may be new
		if err != nil {
			r.err = err
		}
		if err != nil && r.first && n > 0 && n < r.least {
			r.err = errShortPart
			return nil
		}
		if r.first && err == nil && n < r.is.seek.longest {
			r.held = append(r.held[:0], text...) // too little to know a piece by
			if len(b) < len(r.held)+r.is.seek.longest {
				return nil
			}
			continue
		}
		keep := n
		if err == nil {
			keep = r.is.seek.open(text)
		}
		spans := r.spans(text, keep)
		if r.edge != nil {
			spans = append(spans, r.cut(text, err != nil)...)
		}
		from, give := r.given, max(keep, r.given)
		if r.edge == nil && !r.firm && r.is.seek.slight(text[keep:]) {
			give = n
		}
		r.held = append(r.held[:0], text[keep:]...)
		r.covered, r.given = 0, give-keep
		for _, s := range spans {
			r.covered = max(r.covered, s.end-keep)
			fill(text[s.start:min(s.end, give)])
		}
		if give > from || err != nil {
			return b[from:give]
		}
		if len(b) < len(r.held)+r.is.seek.longest {
			return nil
		}
	}
}

// spans returns what is covered in text, which begins with what was held: the
// rest of what began before it, and what begins before keep. What begins
// behind is found again when more has come.
func (r *maskReader) spans(text []byte, keep int) []span {
	var spans []span
	if r.covered > 0 {
		spans = append(spans, span{0, r.covered})
	}
	each(r.is.seek, text, func(owner, start, end int) {
		if start < keep {
			spans = append(spans, span{start, end})
			r.hit(r.is.names[owner])
		}
	})
	return spans
}

// cut returns the pieces of values of minRaw bytes and more by which the
// first text begins and the last one ends, and a text that is all inside one,
// however short: asked for bit by bit, it would be the value. It calls edge for
// each.
func (r *maskReader) cut(text []byte, last bool) (spans []span) {
	add := func(owner, start, end int) {
		spans = append(spans, span{start, end})
		if owner >= 0 {
			r.edge(r.is.names[owner])
		}
	}
	for i, p := range r.is.seek.patterns {
		if r.first && last && len(text) > 0 && len(text) < len(p) && strings.Contains(p, string(text)) {
			add(r.is.seek.owner[i], 0, len(text))
		}
		for n := min(len(p)-1, len(text)); n >= minRaw; n-- {
			if r.first && strings.HasSuffix(p, string(text[:n])) {
				add(r.is.seek.owner[i], 0, n)
				break
			}
		}
	}
	if l := r.is.seek.loose; l != nil && r.first {
		n, inside, owner := l.tail(text)
		if last && inside {
			n = len(text)
		}
		if n > 0 {
			add(owner, 0, n)
		}
	}
	r.first = false
	if open, owner := r.is.seek.opened(text); last && len(text)-open >= minRaw {
		add(owner, open, len(text))
	}
	return spans
}

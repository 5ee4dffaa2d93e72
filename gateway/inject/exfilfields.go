package inject

import (
	"io"
	"net/http"
	"strings"
	"unicode/utf8"
)

// look searches a text as it is and percent-decoded once.
func (o *outgoing) look(u *uses, p place, text string) {
	if !o.in(u, p, text) {
		if plain := unescape(text); plain != text {
			o.in(u, p, plain)
		}
	}
}

// fields searches header or trailer fields, names and values.
func (o *outgoing) fields(u *uses, kind kind, fields http.Header) {
	unnamed := place{kind: inHeaderName}
	where := unnamed.String()
	for name, lines := range fields {
		p := place{kind: kind, header: name}
		if o.named(u, where, name) {
			p = unnamed // a record does not repeat it
		}
		for _, text := range lines {
			o.look(u, p, text)
			if name == "Cookie" && strings.Contains(text, "; ") {
				// HTTP/2 cuts it at semicolons (RFC 9113, section 8.2.3).
				o.look(u, p, strings.ReplaceAll(text, "; ", ";"))
			}
		}
	}
}

// named searches a name, whose case does not survive, and says whether a value
// is in it.
func (o *outgoing) named(u *uses, where, name string) bool {
	if o.name == nil || len(name) < minOutgoing || len(name) < o.name.shortest && sevenBit(name) {
		return false // folding, as undoing escapes, makes no text of ASCII longer
	}
	found := false
	look := func(text string) {
		each(o.name, folded(text), func(owner, _, _ int) {
			found = true
			u.add(Use{Name: o.names[owner], Place: where, Action: Withheld})
		})
	}
	look(name)
	if plain := unescapeAll(name); plain != name {
		look(plain)
	}
	return found
}

// unescapeAll decodes every escape of a text once.
func unescapeAll(text string) string {
	first := 0
	for first < len(text) && !isEscape(text[first]) {
		first++
	}
	if first == len(text) {
		return text // as nearly every name of a field
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if u := unescapeAt(text, i); u.size > 0 {
			b, i = append(b, u.b[:u.n]...), i+u.size
			continue
		}
		b, i = append(b, text[i]), i+1
	}
	return string(b)
}

// WatchTrailers returns src, the body of r, whose end is reported only when no
// value that is held then is in the trailers, which have come by then. Otherwise
// reading ends with a *Refusal. Now returns what knows the values in force.
func WatchTrailers(src io.Reader, r *http.Request, now func() *Guard) io.Reader {
	return &watchedEnd{src: src, r: r, now: now}
}

// watchedEnd is what WatchTrailers returns.
type watchedEnd struct {
	src io.Reader
	r   *http.Request
	now func() *Guard
}

func (w *watchedEnd) Read(b []byte) (int, error) {
	n, err := w.src.Read(b)
	if err != io.EOF || len(w.r.Trailer) == 0 {
		return n, err
	}
	if refusal := w.now().trailers(w.r.Trailer); refusal != nil {
		return n, refusal
	}
	return n, err
}

func (g *Guard) trailers(fields http.Header) *Refusal {
	if g.out.text == nil {
		return nil
	}
	var u uses
	g.out.fields(&u, inTrailer, fields)
	return exfiltration(u)
}

// sevenBit says whether a text is of ASCII alone.
func sevenBit(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

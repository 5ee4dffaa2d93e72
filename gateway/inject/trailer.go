package inject

import (
	"io"
	"net/http"
)

// trailers looks into the trailer fields that a request announces. Their
// values come after the body, so they are looked at when it has been read.
func (s *scan) trailers(r *http.Request) {
	if len(r.Trailer) == 0 {
		return
	}
	for name, lines := range r.Trailer {
		s.folded(place{kind: inHeaderName, header: name}, name)
		for _, text := range lines {
			s.trailerText(name, text)
		}
	}
	s.trailer = &trailerCheck{t: s.t, in: s.in}
}

func (s *scan) trailerText(name, text string) {
	p := place{kind: inTrailer, header: name, fixed: true}
	if !s.text(p, text).any() {
		s.escaped(p, text)
	}
}

// trailerCheck looks at the values of trailer fields when they have come.
type trailerCheck struct {
	t  *Table
	in Input
}

// refusal says why the trailers of the request, and those of out, must not
// go out; nil if they may.
func (c *trailerCheck) refusal(out http.Header) error {
	s := scan{t: c.t, in: c.in, own: c.t.owners.of(c.in.Sandbox)}
	s.injects = s.bound()
	for _, trailer := range []http.Header{c.in.Request.Trailer, out} {
		for name, lines := range trailer {
			for _, text := range lines {
				s.trailerText(name, text)
			}
		}
	}
	if s.reason == "" {
		return nil
	}
	return &Refusal{Reason: s.reason, Message: s.message, Uses: s.uses.sorted()}
}

// guard wraps the body of out so that its end is reported only when the
// trailers may go out. Otherwise reading ends with a *Refusal, which makes
// the transport abort the request.
func (c *trailerCheck) guard(out *http.Request) {
	if out.Body != nil {
		out.Body = &guarded{ReadCloser: out.Body, check: c, out: out}
	}
}

type guarded struct {
	io.ReadCloser
	check *trailerCheck
	out   *http.Request
}

func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.ReadCloser.Read(b)
	if err == io.EOF {
		if refusal := g.check.refusal(g.out.Trailer); refusal != nil {
			return n, refusal
		}
	}
	return n, err
}

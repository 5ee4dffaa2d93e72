package inject

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"sallyport/policy"
	"sallyport/secrets"
)

const (
	// defaultBodyMax is the most of a body that is held when its length has
	// to be known, in bytes.
	defaultBodyMax = 1 << 20
	// bodyChunk is how much of a body is read at once, in bytes.
	bodyChunk = 16 << 10
)

// BodyTypes returns the media types whose fields a secret can stand in, which
// are the types of a body place that names none.
func BodyTypes() []string {
	return []string{"application/json", "application/x-www-form-urlencoded", "multipart/form-data"}
}

// bodyPlace is a policy.BodyPlace, compiled.
type bodyPlace struct {
	types  []string
	max    int64
	fields [][]string // of dotted names; "*" is any one name
}

func newBodyPlace(b *policy.BodyPlace) *bodyPlace {
	p := &bodyPlace{max: b.Max, types: BodyTypes()}
	if p.max <= 0 {
		p.max = defaultBodyMax
	}
	if len(b.Types) > 0 {
		p.types = nil
		for _, t := range b.Types {
			p.types = append(p.types, strings.ToLower(t))
		}
	}
	for _, f := range b.Fields {
		p.fields = append(p.fields, strings.Split(f, "."))
	}
	return p
}

func (b *bodyPlace) covers(media string) bool {
	return slices.ContainsFunc(b.types, func(t string) bool { ok, _ := path.Match(t, media); return ok })
}

// allows says whether the field with this path of names is one of b's. The
// elements of a JSON array have the name of the array.
func (b *bodyPlace) allows(field []string) bool {
	return slices.ContainsFunc(b.fields, func(want []string) bool {
		return slices.EqualFunc(want, field, func(w, f string) bool { return w == f || w == "*" })
	})
}

// bodyCheck is what is done to the body of one request.
type bodyCheck struct {
	in     scanInput
	media  string
	params map[string]string
	coding string // of the body; "": none
	max    int64
	digest bool // a header or trailer of the request covers the body
}

// scanInput is what a later scan of the same request needs.
type scanInput struct {
	t  *Table
	in Input
}

func (c scanInput) scan() *scan {
	s := &scan{t: c.t, in: c.in, own: c.t.owners.of(c.in.Sandbox)}
	s.injects = s.bound()
	return s
}

// body plans what is done to the body: nothing, unless a secret that is
// approved for the request may stand in a body of its type.
func (s *scan) body(r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	var names []string
	limit := int64(0)
	media, params, bad := mime.ParseMediaType(r.Header.Get("Content-Type"))
	for _, n := range s.in.Decision.Inject {
		c := s.t.creds[n]
		if c == nil || c.body == nil || !s.approved(c) || bad == nil && !c.body.covers(media) {
			continue
		}
		names, limit = append(names, n), max(limit, c.body.max)
	}
	if len(names) == 0 || r.Header.Get("Content-Type") == "" {
		return
	}
	switch {
	case bad != nil || !plainType(r.Header) || !ascii(params["charset"]):
		s.refuse(policy.UninspectableBody, "the type of the body cannot be read, or can be in two ways")
	case !decodes(coding(r.Header)):
		s.refuse(policy.UninspectableBody, "the body is in a coding that the gateway cannot undo")
	case !slices.Contains(BodyTypes(), media):
		s.refuse(policy.UninspectableBody, "a body of this type has no fields in which a credential could stand")
	case r.ContentLength > limit:
		s.refuse(policy.BodyTooLarge, "the body is larger than the gateway holds of a body in which a credential may stand")
	default:
		s.names = append(s.names, names...)
		s.bodyCheck = &bodyCheck{in: scanInput{s.t, s.in}, media: media, params: params, coding: coding(r.Header), max: limit, digest: digested(r)}
	}
}

// ascii says whether a charset has the bytes of ASCII for what is ASCII, so
// that the gateway reads the same text as the upstream.
func ascii(charset string) bool {
	return unicodeCharset(charset) || strings.EqualFold(charset, "iso-8859-1")
}

// coding returns the content codings of a message, "" for none.
func coding(h http.Header) string {
	code := strings.ToLower(strings.TrimSpace(strings.Join(h["Content-Encoding"], ",")))
	if code == "identity" {
		return ""
	}
	return code
}

// digested says whether a request has a digest of its body, or announces one.
func digested(r *http.Request) bool {
	for _, name := range []string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest"} {
		if _, follows := r.Trailer[name]; follows || len(r.Header[name]) > 0 {
			return true
		}
	}
	return false
}

// parts says whether the body is a form of parts.
func (c *bodyCheck) parts() bool { return c.media == "multipart/form-data" }

// bodyReader is a body with values in the place of placeholders.
type bodyReader struct {
	plan *Plan
	src  io.Closer
	step stepper
	text *texter
	out  bytes.Buffer
	gone bool // a byte of it has been read
	err  error

	known bool // what is found is on record
}

// stepper reads a piece of a body and appends what goes out to out. It
// returns io.EOF when all has been.
type stepper interface {
	next(out *bytes.Buffer) error
}

func (c *bodyCheck) reader(p *Plan, src io.ReadCloser, values map[string]secrets.Value) (*bodyReader, error) {
	t := &texter{plan: p, scan: c.in.scan(), values: values, media: c.media}
	if !unicodeCharset(c.params["charset"]) {
		t.always = doubtCharset
	}
	b := &bodyReader{plan: p, src: src, text: t}
	var plain io.Reader = src
	if c.coding != "" {
		var err error
		if plain, err = c.decoded(p, src, values); err != nil {
			return nil, err
		}
	}
	switch c.media {
	case "application/json":
		b.step = newJSONBody(plain, t)
	case "application/x-www-form-urlencoded":
		b.step = newFormBody(plain, t)
	default:
		m, err := newMultipartBody(plain, t, c.params["boundary"])
		if err != nil {
			return nil, err
		}
		b.step = m
	}
	return b, nil
}

// Read gives the changed body. Its error is a *Refusal when the body must
// not go out.
func (b *bodyReader) Read(to []byte) (int, error) {
	for b.out.Len() == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.err = b.step.next(&b.out)
		if b.err == nil {
			continue
		}
		uses := b.text.scan.uses
		if b.err != io.EOF {
			b.out.Reset() // what is not judged does not leave
			if !b.gone {
				uses = Unsent(uses)
			}
		}
		if !b.known {
			b.plan.record(uses)
		}
	}
	b.gone = true
	return b.out.Read(to)
}

// Close closes the body as it was sent.
func (b *bodyReader) Close() error { return b.src.Close() }

func (b *bodyReader) changed() bool {
	return slices.ContainsFunc(b.text.scan.uses, func(u Use) bool { return u.Action == Injected })
}

// malformed is the refusal of a body that is not what its type says.
func malformed(what string) error {
	return &Refusal{Reason: policy.UninspectableBody, Message: "the body is no well-formed " + what}
}

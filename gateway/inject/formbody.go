package inject

import (
	"bufio"
	"bytes"
	"io"
	"mime/multipart"
	"slices"

	"sallyport/policy"
)

// formBody goes through a body of application/x-www-form-urlencoded.
type formBody struct {
	src   *bufio.Reader
	text  *texter
	value bool   // a value is being read, else a name
	name  []byte // decoded, at most maxField and one bytes
	fresh bool   // the text has to begin
}

func newFormBody(src io.Reader, t *texter) *formBody {
	return &formBody{src: bufio.NewReaderSize(src, bodyChunk), text: t, fresh: true}
}

func (f *formBody) next(out *bytes.Buffer) error {
	for !f.text.full() {
		if f.fresh {
			f.begin()
		}
		c, err := f.src.ReadByte()
		if err != nil {
			if err == io.EOF {
				if err := f.text.flush(out, true); err != nil {
					return err
				}
			}
			return err
		}
		switch {
		case c == '&', c == '=' && !f.value:
			if err := f.text.flush(out, true); err != nil {
				return err
			}
			out.WriteByte(c)
			f.value, f.fresh = c == '=', true
			return nil
		case c == '%':
			f.escape()
		case c == '+':
			f.add([]byte{c}, ' ')
		default:
			f.add([]byte{c}, c)
			if c == ';' && f.value {
				f.text.unsure(doubtSemicolon, len(f.text.decoded))
			}
		}
	}
	return f.text.flush(out, false)
}

func (f *formBody) begin() {
	f.fresh = false
	if !f.value {
		f.name = f.name[:0]
		f.text.begin(place{kind: inBody, fixed: true}, escape)
		return
	}
	f.text.begin(place{kind: inBody, media: f.text.media, field: []string{string(f.name)}}, escape)
}

func (f *formBody) add(raw []byte, c byte) {
	if !f.value && len(f.name) <= maxField {
		f.name = append(f.name, c)
	}
	f.text.add(raw, c)
}

// escape reads what follows a percent sign; what is no escape stands for
// itself.
func (f *formBody) escape() {
	digits, _ := f.src.Peek(2)
	if len(digits) == 2 && unhex(digits[0]) < 16 && unhex(digits[1]) < 16 {
		raw := []byte{'%', digits[0], digits[1]}
		_, _ = f.src.Discard(2)
		f.add(raw, unhex(raw[1])<<4|unhex(raw[2]))
		return
	}
	f.add([]byte{'%'}, '%')
}

// multipartBody goes through a body of multipart/form-data (RFC 7578). Its
// parts are written anew with the same boundary; what is before the first
// and behind the last one is dropped.
type multipartBody struct {
	from *remember
	src  *multipart.Reader
	dst  *multipart.Writer
	to   redirect
	text *texter
	part *multipart.Part
	line delimiterLine
	buf  []byte
}

// redirect lets a multipart.Writer write to what is out at the time.
type redirect struct{ out *bytes.Buffer }

func (r *redirect) Write(b []byte) (int, error) { return r.out.Write(b) }

func newMultipartBody(src io.Reader, t *texter, boundary string) (*multipartBody, error) {
	m := &multipartBody{from: &remember{Reader: src}, text: t, buf: make([]byte, bodyChunk), line: delimiterLine{delimiter: []byte("--" + boundary)}}
	m.src = multipart.NewReader(m.from, boundary)
	m.dst = multipart.NewWriter(&m.to)
	if m.dst.SetBoundary(boundary) != nil {
		return nil, malformed("multipart/form-data")
	}
	return m, nil
}

func (m *multipartBody) next(out *bytes.Buffer) error {
	m.to.out = out
	if m.part == nil {
		return m.nextPart()
	}
	n, err := m.part.Read(m.buf)
	if at := m.line.find(m.buf[:n]); at >= 0 {
		m.text.unsure(doubtDelimiter, len(m.text.decoded)+at)
	}
	m.text.plain(m.buf[:n])
	if err == io.EOF {
		m.part = nil
		return m.text.flush(out, true)
	}
	if err != nil {
		return m.broken()
	}
	return m.text.flush(out, false)
}

// maxPartHead is the longest head of a part that is read, with what is before
// the first one, in bytes. A client may leave any number of them unfinished.
const maxPartHead = 16 << 10

func (m *multipartBody) nextPart() error {
	m.from.bound(maxPartHead)
	part, err := m.src.NextRawPart()
	m.from.bound(0)
	if err == io.EOF {
		if err := m.dst.Close(); err != nil {
			return err
		}
		return io.EOF
	}
	if err != nil {
		return m.broken()
	}
	for name, lines := range part.Header {
		for _, l := range append([]string{name}, lines...) {
			if err := m.text.whole(l); err != nil {
				return err
			}
		}
	}
	if len(part.Header["Content-Disposition"]) > 1 {
		return malformed("multipart/form-data")
	}
	if e := part.Header.Get("Content-Transfer-Encoding"); e != "" && !slices.Contains([]string{"binary", "7bit", "8bit"}, e) {
		return &Refusal{Reason: policy.UninspectableBody, Message: "a part of the body has a transfer encoding"}
	}
	if _, err := m.dst.CreatePart(part.Header); err != nil {
		return err
	}
	m.part = part
	where := place{kind: inBody, media: m.text.media, field: []string{part.FormName()}}
	if part.FileName() != "" {
		where = place{kind: inBody, fixed: true}
	}
	if nests(part.Header) {
		m.text.always = doubtNested
	}
	m.text.begin(where, verbatim)
	m.text.unsure(partDoubt(part.Header), 0)
	m.line.begin()
	return nil
}

// broken tells the errors of a body that is not multipart from those of
// reading it.
func (m *multipartBody) broken() error {
	if m.from.err == nil {
		return malformed("multipart/form-data")
	}
	return m.from.err
}

// remember keeps the error with which reading ended before the end.
type remember struct {
	io.Reader
	err     error
	bounded bool
	left    int // bytes that may be read, if bounded
}

// bound lets no more than about n bytes be read; 0 is no bound.
func (r *remember) bound(n int) { r.bounded, r.left = n > 0, n }

func (r *remember) Read(b []byte) (int, error) {
	if r.bounded && r.left <= 0 {
		r.err = &Refusal{Reason: policy.UninspectableBody, Message: "the head of a part of the body is too long"}
		return 0, r.err
	}
	n, err := r.Reader.Read(b)
	r.left -= n
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

package inject

import (
	"bytes"
	"io"
	"math"
	"net/http"

	"sallyport/policy"
	"sallyport/secrets"
)

// growth is how much longer than c.max a body may become, in bytes: values can
// be longer than what stands for them.
const growth = 1 << 20

// apply makes out's body the one with values in it. A body whose length was
// announced (at most c.max bytes) is read and changed at once, so that the new
// length is announced; any other is changed while it is sent, and ends with a
// *Refusal when a placeholder stands where it must not. A compressed body is
// compressed anew, and a form of parts written anew; where the length was
// announced, only if a value is in it.
func (c *bodyCheck) apply(p *Plan, out *http.Request, values map[string]secrets.Value) error {
	sent := kept{hold: p.hold, most: out.ContentLength} // as it came, when it may go out as other bytes
	src := out.Body
	if (c.coding != "" || c.parts()) && out.ContentLength >= 0 {
		src = tee{io.TeeReader(out.Body, &sent), out.Body}
	}
	b, err := c.reader(p, src, values)
	if err != nil {
		return err
	}
	if out.ContentLength < 0 {
		if c.digest {
			return &Refusal{Reason: policy.UninspectableBody, Message: "a digest covers the body, which may change while it is sent"}
		}
		out.Body = b
		if c.coding != "" {
			r, err := encode(c.coding, b, p.room)
			if err != nil {
				return err
			}
			out.Body = tee{r, b}
		}
		return nil
	}
	goes, err := c.content(b, src, &sent, values)
	if err != nil {
		return err
	}
	if err := b.Close(); err != nil {
		return err
	}
	if out.Body, err = goes.open(); err != nil {
		return err
	}
	out.ContentLength, out.GetBody = goes.length, goes.open
	if out.Header.Get("Content-Length") != "" {
		out.Header.Del("Content-Length") // net/http writes it from the field
	}
	return nil
}

// content is a body that goes out, as often as it is opened.
type content struct {
	open   func() (io.ReadCloser, error)
	length int64
}

// content reads a body whose length was announced, and returns what goes out.
func (c *bodyCheck) content(b *bodyReader, src io.Reader, sent *kept, values map[string]secrets.Value) (content, error) {
	// A form of parts is not held a second time, with values in it: it is
	// written while it is sent, as it was here.
	form := c.coding == "" && c.parts()
	var whole []byte
	var length int64
	var err error
	if form {
		length, err = c.measure(b)
	} else {
		whole, err = c.whole(b)
	}
	switch {
	case err != nil:
		return content{}, err
	case c.digest && b.changed():
		return content{}, &Refusal{Reason: policy.UninspectableBody, Message: "a digest covers the body in which a placeholder stands"}
	case (c.coding != "" || c.parts()) && !b.changed():
		err = c.asCame(b, src, sent, values)
		return content{sent.open, sent.size()}, err
	case form:
		return content{func() (io.ReadCloser, error) { return c.anew(b.plan, sent, values) }, length}, c.rest(src)
	case c.coding != "":
		whole, err = c.again(b, whole)
	}
	return content{func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }, int64(len(whole))}, err
}

// whole reads all of a changed body, at most c.max bytes and what values add.
func (c *bodyCheck) whole(b *bodyReader) ([]byte, error) {
	whole, err := b.plan.readHeld(b, c.max+growth+1)
	if err != nil {
		return nil, err
	}
	return whole, c.fits(int64(len(whole)))
}

// measure is whole for a body of which only the length is kept.
func (c *bodyCheck) measure(b *bodyReader) (int64, error) {
	n, err := io.Copy(io.Discard, io.LimitReader(b, c.max+growth+1))
	if err != nil {
		return 0, err
	}
	return n, c.fits(n)
}

func (c *bodyCheck) fits(n int64) error {
	if n > c.max+growth {
		return &Refusal{Reason: policy.BodyTooLarge, Message: "the body is larger than the gateway holds of a body in which a credential may stand"}
	}
	return nil
}

// anew is a form of parts that has been judged, with values in it. What is
// found in it is on record.
func (c *bodyCheck) anew(p *Plan, sent *kept, values map[string]secrets.Value) (io.ReadCloser, error) {
	src, err := sent.open()
	if err != nil {
		return nil, err
	}
	b, err := c.reader(p, src, values)
	if err != nil {
		return nil, err
	}
	b.known = true
	return b, nil
}

// again returns a body compressed anew.
func (c *bodyCheck) again(b *bodyReader, whole []byte) ([]byte, error) {
	r, err := encode(c.coding, bytes.NewReader(whole), b.plan.room)
	if err != nil {
		return nil, err
	}
	return b.plan.readHeld(r, math.MaxInt64)
}

// rest reads what a reader of the body has left unread.
func (c *bodyCheck) rest(src io.Reader) error {
	_, err := io.Copy(io.Discard, io.LimitReader(src, c.max))
	return err
}

// asCame judges a body without a value in it, which goes out as it was sent.
func (c *bodyCheck) asCame(b *bodyReader, src io.Reader, sent *kept, values map[string]secrets.Value) error {
	if err := c.rest(src); err != nil || !c.parts() {
		return err
	}
	return c.around(b, sent, values)
}

// around judges what is before, between and behind the parts of a form in
// which nothing was found: no placeholder stands there.
func (c *bodyCheck) around(b *bodyReader, sent *kept, values map[string]secrets.Value) error {
	came, err := sent.open()
	if err != nil {
		return err
	}
	src := io.Reader(came)
	if c.coding != "" {
		if src, err = c.decoded(b.plan, src, values); err != nil {
			return err
		}
	}
	if len(b.text.scan.uses) > 0 { // what was found may pass
		_, err := io.Copy(io.Discard, src)
		return err
	}
	b.text.begin(place{kind: inBody, fixed: true}, verbatim)
	buf := make([]byte, bodyChunk)
	for {
		n, err := src.Read(buf)
		b.text.plain(buf[:n])
		b.out.Reset()
		if refusal := b.text.flush(&b.out, err == io.EOF); refusal != nil {
			b.plan.record(Unsent(b.text.scan.uses))
			return refusal
		}
		if err == io.EOF {
			b.plan.record(b.text.scan.uses)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// tee reads from one and closes another.
type tee struct {
	io.Reader
	io.Closer
}

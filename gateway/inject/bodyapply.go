package inject

import (
	"bytes"
	"io"
	"math"
	"net/http"

	"sallyport/policy"
	"sallyport/secrets"
)

// apply makes out's body the one with values in it. A body whose length was
// announced (at most c.max bytes) is read and changed at once, so that the new
// length is announced; any other is changed while it is sent, and ends with a
// *Refusal when a placeholder stands where it must not. A compressed body is
// compressed anew, and a form of parts written anew; where the length was
// announced, only if a value is in it.
func (c *bodyCheck) apply(p *Plan, out *http.Request, values map[string]secrets.Value) error {
	src := out.Body
	var sent bytes.Buffer // as it came, when it is held and goes out as other bytes
	if (c.coding != "" || c.parts()) && out.ContentLength >= 0 {
		if err := p.hold(out.ContentLength); err != nil {
			return err
		}
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
			r, err := encode(c.coding, b)
			if err != nil {
				return err
			}
			out.Body = tee{r, b}
		}
		return nil
	}
	whole, err := c.whole(b)
	if err != nil {
		return err
	}
	if c.digest && b.changed() {
		return &Refusal{Reason: policy.UninspectableBody, Message: "a digest covers the body in which a placeholder stands"}
	}
	if c.coding != "" || c.parts() {
		if !b.changed() {
			whole, err = c.asCame(b, src, &sent, values)
		} else if c.coding != "" {
			whole, err = c.again(b, whole)
		}
		if err != nil {
			return err
		}
	}
	if err := b.Close(); err != nil {
		return err
	}
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(whole)), int64(len(whole))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
	if out.Header.Get("Content-Length") != "" {
		out.Header.Del("Content-Length") // net/http writes it from the field
	}
	return nil
}

// whole reads all of a changed body, at most c.max bytes and what values add.
func (c *bodyCheck) whole(b *bodyReader) ([]byte, error) {
	// Values can be longer than what stands for them.
	const growth = 1 << 20
	whole, err := b.plan.readHeld(b, c.max+growth+1)
	if err != nil {
		return nil, err
	}
	if int64(len(whole)) > c.max+growth {
		return nil, &Refusal{Reason: policy.BodyTooLarge, Message: "the body is larger than the gateway holds of a body in which a credential may stand"}
	}
	return whole, nil
}

// again returns a body compressed anew.
func (c *bodyCheck) again(b *bodyReader, whole []byte) ([]byte, error) {
	r, err := encode(c.coding, bytes.NewReader(whole))
	if err != nil {
		return nil, err
	}
	return b.plan.readHeld(r, math.MaxInt64)
}

// asCame returns a body without a value in it as it was sent.
func (c *bodyCheck) asCame(b *bodyReader, src io.Reader, sent *bytes.Buffer, values map[string]secrets.Value) ([]byte, error) {
	// What reads it may leave its end unread.
	if _, err := io.Copy(io.Discard, io.LimitReader(src, c.max)); err != nil {
		return nil, err
	}
	if c.parts() {
		if err := c.around(b, sent.Bytes(), values); err != nil {
			return nil, err
		}
	}
	return sent.Bytes(), nil
}

// around judges what is before, between and behind the parts of a form in
// which nothing was found: no placeholder stands there.
func (c *bodyCheck) around(b *bodyReader, sent []byte, values map[string]secrets.Value) error {
	var src io.Reader = bytes.NewReader(sent)
	if c.coding != "" {
		var err error
		if src, err = c.decoded(src, values); err != nil {
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

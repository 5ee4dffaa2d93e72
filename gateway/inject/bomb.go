package inject

import (
	"errors"
	"io"

	"sallyport/policy"
	"sallyport/secrets"
)

const (
	// bombRatio is how many bytes one byte of a compressed request body may
	// stand for.
	bombRatio = 200
	// bombFree is how many bytes any body may stand for.
	bombFree = 1 << 20
)

// decoded is what a compressed body stands for. Reading ends with a *Refusal
// when it stands for far more than was sent, is damaged, or holds a real
// value.
func (c *bodyCheck) decoded(p *Plan, src io.Reader, values map[string]secrets.Value) (io.Reader, error) {
	codec, err := codecOf(c.coding)
	if err != nil {
		return nil, err
	}
	in := &counter{src: src}
	plain := &bombReader{src: &lazyDecoder{src: in, codec: codec, lease: lease{room: p.room}}, in: in}
	held := make([]secrets.Held, 0, len(values))
	for name, v := range values {
		for _, part := range v.Parts() {
			held = append(held, secrets.Held{Name: name, Value: part})
		}
	}
	return NewGuard(held).Body(plain, "body"), nil
}

// counter counts what is read, and keeps the error with which it ended.
type counter struct {
	src io.Reader
	n   int64
	err error
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.src.Read(b)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// bombReader bounds what a decoder gives.
type bombReader struct {
	src io.Reader
	in  *counter
	n   int64
}

func (r *bombReader) Read(b []byte) (int, error) {
	n, err := r.src.Read(b)
	r.n += int64(n)
	if r.n > bombFree && r.n/bombRatio > r.in.n {
		return 0, &Refusal{Reason: policy.BodyTooLarge, Message: "the body is compressed so much that the gateway does not look into it"}
	}
	var refused *Refusal
	if err != nil && err != io.EOF && r.in.err == nil && !errors.As(err, &refused) {
		err = &Refusal{Reason: policy.UninspectableBody, Message: "the body is not in the coding that it says"}
	}
	return n, err
}

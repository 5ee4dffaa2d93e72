package inject

import (
	"io"
	"slices"

	"sallyport/policy"
)

// Hold has Apply ask take before it holds n bytes more of the body, and refuse
// the request when it says no; fewer than 0 are given back. They are held until the request has ended.
func (p *Plan) Hold(take func(n int64) bool) {
	if p.body != nil || p.form != nil || p.resigned != nil { // no other plan holds any, and the empty one is shared
		p.take = take
	}
}

// hold asks for n bytes more.
func (p *Plan) hold(n int64) error {
	if p.take == nil || p.take(n) {
		return nil
	}
	return &Refusal{Reason: policy.RateLimited, Message: "too many requests are under way whose bodies the gateway holds for a credential in them; send fewer at once"}
}

// readHeld is io.ReadAll of at most so many bytes, for which it asks as they
// come: a client may leave any number of bodies unfinished.
func (p *Plan) readHeld(src io.Reader, most int64) ([]byte, error) {
	const first = 4 << 10
	var out []byte
	asked := int64(0)
	for int64(len(out)) < most {
		if int64(len(out)) == asked {
			more := min(max(asked, first), most-asked)
			if err := p.hold(more); err != nil {
				return nil, err
			}
			asked += more
			out = slices.Grow(out, int(more))
		}
		n, err := src.Read(out[len(out):asked])
		out = out[:len(out)+n]
		switch err {
		case nil:
		case io.EOF:
			if p.take != nil {
				p.take(int64(len(out)) - asked) // gives back
			}
			return out, nil
		default:
			return out, err
		}
	}
	return out, nil
}

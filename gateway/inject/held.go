package inject

import (
	"bytes"
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

// Within has what decompresses the body, and compresses it anew, take its
// memory from room.
func (p *Plan) Within(room Room) {
	if p.body != nil { // likewise
		p.room = room
	}
}

// hold asks for n bytes more.
func (p *Plan) hold(n int64) error {
	if p.take == nil || p.take(n) {
		return nil
	}
	return &Refusal{Reason: policy.RateLimited, Message: "too many requests are under way whose bodies the gateway holds for a credential in them; send fewer at once"}
}

// firstHeld is what is asked for first, in bytes.
const firstHeld = 4 << 10

// readHeld is io.ReadAll of at most so many bytes, for which it asks as they
// come: a client may leave any number of bodies unfinished.
func (p *Plan) readHeld(src io.Reader, most int64) ([]byte, error) {
	var out []byte
	asked := int64(0)
	for int64(len(out)) < most {
		if int64(len(out)) == asked {
			more := min(max(asked, firstHeld), most-asked)
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

// kept holds what is written to it, once: in pieces, for which it asks as they
// are needed.
type kept struct {
	hold   func(n int64) error
	most   int64 // is to come
	asked  int64
	pieces [][]byte
}

// Write keeps b, or as much of it as may be held.
func (k *kept) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		last := len(k.pieces) - 1
		if last < 0 || len(k.pieces[last]) == cap(k.pieces[last]) {
			more := min(max(k.asked, firstHeld), k.most-k.asked)
			if more <= 0 { // longer than announced
				more = firstHeld
			}
			if err := k.hold(more); err != nil {
				return done, err
			}
			k.asked += more
			k.pieces = append(k.pieces, make([]byte, 0, more))
			last++
		}
		piece := k.pieces[last]
		n := copy(piece[len(piece):cap(piece)], b[done:])
		k.pieces[last] = piece[:len(piece)+n]
		done += n
	}
	return done, nil
}

func (k *kept) size() int64 {
	n := 0
	for _, p := range k.pieces {
		n += len(p)
	}
	return int64(n)
}

// open returns what is kept, from its beginning. Its error is nil.
func (k *kept) open() (io.ReadCloser, error) {
	list := make([]io.Reader, len(k.pieces))
	for i, p := range k.pieces {
		list[i] = bytes.NewReader(p)
	}
	return io.NopCloser(io.MultiReader(list...)), nil
}

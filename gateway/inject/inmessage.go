package inject

import "io"

// Messages returns src, which is what the upstream of a WebSocket sends after
// the handshake, with values covered in its messages and control frames. It
// holds nothing of a message back once the message has ended. Frames that are
// masked, which none of a server's may be (RFC 6455, section 5.1), end it, and
// more than maxBehind bytes of frames behind what is held.
func (m *Masker) Messages(src io.Reader, hit func(name string)) io.Reader {
	r := &maskedMessages{m: m, is: m, src: src, hit: hit, buf: make([]byte, bodyChunk)}
	r.all, r.end = true, func() { r.cover(r.control, r.controlAt, len(r.control)) }
	return r
}

// maskedMessages covers values in what the frames of a server hold.
type maskedMessages struct {
	frames
	m   *Masker
	is  *Masker // the latest of m
	src io.Reader
	hit func(name string)
	buf []byte
	err error

	ready []byte // may go out
}

func (r *maskedMessages) Read(b []byte) (int, error) {
	for len(r.ready) == 0 && r.err == nil && len(b) > 0 {
		n, err := r.src.Read(r.buf)
		r.is = r.m.latest() // the value that has come may be new
		r.blind = len(r.is.names) == 0
		r.take(r.buf[:n])
		if r.masked {
			r.err = malformed("WebSocket frame")
			break
		}
		r.err = err
		keep := len(r.plain)
		if err == nil {
			keep = r.is.seek.open(r.plain)
		}
		r.cover(r.plain, r.at, keep)
		r.ready = r.release(keep, keep, err != nil)
		if len(r.raw) > r.is.seek.longest+maxBehind {
			r.err = malformed("WebSocket message")
		}
	}
	if len(r.ready) > 0 {
		n := copy(b, r.ready)
		r.ready = r.ready[n:]
		return n, nil
	}
	return 0, r.err
}

// cover covers the values that begin in plain before keep. What begins behind
// is found again when more has come.
func (r *maskedMessages) cover(plain []byte, at []int, keep int) {
	each(r.is.seek, plain, func(owner, start, end int) {
		if start >= keep {
			return
		}
		r.hit(r.is.names[owner])
		for _, i := range at[start:end] {
			r.raw[i] = filler
		}
	})
}

package inject

import "io"

// Body is WatchBody of the values that g knows.
func (g *Guard) Body(src io.Reader, place string) io.Reader {
	if g.out.text == nil {
		return src
	}
	return WatchBody(src, place, func() *Guard { return g })
}

// WatchBody returns src, from which reading ends with a *Refusal when a value
// that is held when it is read, or an encoding of it, comes; what is before it,
// and the first three quarters of it, may have been read. Place is the place
// that is recorded. Bytes are held back, until more comes, only once three
// quarters of a value have come: a sandbox that could see that less is held back
// would learn a value that it does not have, bit by bit. One that has all of it
// is what the guard is there for. Now returns what knows the values in force,
// the same one when nothing has changed.
func WatchBody(src io.Reader, place string, now func() *Guard) io.Reader {
	return &watchedBody{src: src, now: now, o: now().out, place: place}
}

// watchedBody is what WatchBody returns.
type watchedBody struct {
	src   io.Reader
	now   func() *Guard
	o     *outgoing // of the latest
	place string
	held  []byte // may be the beginning of a value
	given int    // how many bytes of held have been read
	ready []byte
	buf   []byte // for a caller whose buffer is too small
	err   error
}

// inPlace is how many bytes behind what is held a caller's buffer has at least
// that is read into itself.
const inPlace = 2 << 10

func (w *watchedBody) Read(b []byte) (int, error) {
	for len(w.ready) == 0 && w.err == nil && len(b) > 0 {
		into := b
		if w.o.text != nil && len(b) < len(w.held)+inPlace {
			if size := len(w.held) + w.o.text.longest + minBuffer; len(w.buf) < size {
				w.buf = make([]byte, size)
			}
			into = w.buf
		}
		n := copy(into, w.held)
		k, err := w.src.Read(into[n:])
		w.o, w.err = w.now().out, err // the value that has come may be new
		if refusal := w.judge(into[:n+k], err != nil); refusal != nil {
			w.err, w.held = refusal, nil
			return 0, w.err
		}
	}
	if len(w.ready) > 0 {
		n := copy(b, w.ready)
		w.ready = w.ready[n:]
		return n, nil
	}
	return 0, w.err
}

// judge looks at text, which begins with what was held, and says what of it
// may go out.
func (w *watchedBody) judge(text []byte, last bool) error {
	if w.o.text == nil {
		w.held, w.ready, w.given = nil, text[w.given:], 0
		return nil
	}
	var u uses
	each(w.o.text, text, func(owner, _, _ int) {
		u.add(Use{Name: w.o.names[owner], Place: w.place, Action: Withheld})
	})
	if refusal := exfiltration(u); refusal != nil {
		return refusal
	}
	keep, from, give := len(text), w.given, len(text)
	if !last {
		keep = w.o.text.open(text)
		give = max(from, w.o.text.grave(text, keep))
	}
	w.held, w.given = append(w.held[:0], text[keep:]...), give-keep
	w.ready = text[from:give]
	return nil
}

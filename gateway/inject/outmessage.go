package inject

import "io"

// Messages is WatchMessages of the values that g knows.
func (g *Guard) Messages(src io.Reader) io.Reader {
	if g.out.text == nil {
		return src
	}
	return WatchMessages(src, func() *Guard { return g })
}

// WatchMessages returns src, which is what the client of a WebSocket sends after
// the handshake, from which reading ends with a *Refusal when a message
// holds a value that is held when it is read, or an encoding of it. The bytes
// stay as they are; those of a message that may be the beginning of a value are
// held back until more of it comes, or it ends, once three quarters of the value
// have come (see WatchBody); more than maxBehind bytes of frames behind them end
// it. Compressed messages are not looked into. Now returns what knows the values
// in force, the same one when nothing has changed.
func WatchMessages(src io.Reader, now func() *Guard) io.Reader {
	w := &watchedMessages{src: src, now: now}
	w.blind = now().out.text == nil
	w.end = func() { w.note(w.control) }
	return w
}

// watchedMessages looks at what the frames of a client hold.
type watchedMessages struct {
	frames
	src  io.Reader
	now  func() *Guard
	o    *outgoing // of the latest
	buf  []byte    // nil: nothing was looked for yet
	err  error
	uses uses // of values

	ready []byte // may go out
}

func (w *watchedMessages) Read(b []byte) (int, error) {
	for len(w.ready) == 0 && w.err == nil && len(b) > 0 {
		into := b // nothing is looked for, so nothing is held
		if !w.blind || len(w.raw) > 0 {
			if w.buf == nil {
				w.buf = make([]byte, bodyChunk)
			}
			into = w.buf
		}
		n, err := w.src.Read(into)
		w.o = w.now().out // the value that has come may be new
		w.blind = w.o.text == nil
		w.take(into[:n])
		if refusal := w.judge(err != nil); refusal != nil {
			w.ready, w.err = nil, refusal
			break
		}
		w.err = err
	}
	if len(w.ready) > 0 {
		n := copy(b, w.ready)
		w.ready = w.ready[n:]
		return n, nil
	}
	return 0, w.err
}

// note keeps the values in text.
func (w *watchedMessages) note(text []byte) {
	if w.o.text == nil {
		return
	}
	each(w.o.text, text, func(owner, _, _ int) {
		w.uses.add(Use{Name: w.o.names[owner], Place: "message", Action: Withheld})
	})
}

// judge looks at what has come and says what may go out.
func (w *watchedMessages) judge(last bool) error {
	w.note(w.plain)
	if refusal := exfiltration(w.uses); refusal != nil {
		return refusal
	}
	keep, give := len(w.plain), len(w.plain)
	if !last && w.o.text != nil {
		keep = w.o.text.open(w.plain)
		give = w.o.text.grave(w.plain, keep)
	}
	w.ready = w.release(keep, give, last)
	if w.o.text != nil && len(w.raw) > w.o.text.longest+maxBehind {
		return malformed("WebSocket message")
	}
	return nil
}

package inject

import (
	"encoding/binary"
	"io"
)

// Messages returns src, which is what the client of a WebSocket sends after
// the handshake, from which reading ends with a *Refusal when a message
// holds a value that is held, or an encoding of it. The bytes stay as they
// are; those of a message that may be the beginning of a value are held back
// until more of it comes. Compressed messages are not looked into.
func (g *Guard) Messages(src io.Reader) io.Reader {
	if g.out.text == nil {
		return src
	}
	return &watchedMessages{src: src, o: g.out, buf: make([]byte, bodyChunk)}
}

// watchedMessages goes along with the frames of a client (RFC 6455, section
// 5.2), which are masked, and looks at what they hold.
type watchedMessages struct {
	src io.Reader
	o   *outgoing
	buf []byte
	err error

	ready []byte // may go out
	raw   []byte // not judged yet
	plain []byte // payload in raw
	at    []int  // of each byte of plain: where in raw it stands

	head   []byte // of the frame that begins, as far as it has come
	left   uint64 // of the payload of the frame under way, in bytes
	mask   [4]byte
	phase  int
	look   bool // the frame is of a message that can be looked into
	fin    bool
	packed bool // the message under way is compressed
}

func (w *watchedMessages) Read(b []byte) (int, error) {
	for len(w.ready) == 0 && w.err == nil && len(b) > 0 {
		n, err := w.src.Read(w.buf)
		w.take(w.buf[:n])
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

// take goes through bytes as they come.
func (w *watchedMessages) take(b []byte) {
	for len(b) > 0 {
		if w.left == 0 {
			w.raw, w.head = append(w.raw, b[0]), append(w.head, b[0])
			b = b[1:]
			w.frame()
			continue
		}
		n := int(min(w.left, uint64(len(b))))
		if w.look {
			for i, c := range b[:n] {
				w.plain, w.at = append(w.plain, c^w.mask[w.phase&3]), append(w.at, len(w.raw)+i)
				w.phase++
			}
		}
		w.raw, b = append(w.raw, b[:n]...), b[n:]
		if w.left -= uint64(n); w.left == 0 {
			w.over()
		}
	}
}

// frame reads the head of a frame when it is whole.
func (w *watchedMessages) frame() {
	need := 2
	if len(w.head) < need {
		return
	}
	switch w.head[1] & 0x7f {
	case 126:
		need += 2
	case 127:
		need += 8
	}
	long := need
	masked := w.head[1]&0x80 != 0
	if masked {
		need += 4
	}
	if len(w.head) < need {
		return
	}
	switch w.left = uint64(w.head[1] & 0x7f); w.left {
	case 126:
		w.left = uint64(binary.BigEndian.Uint16(w.head[2:]))
	case 127:
		w.left = binary.BigEndian.Uint64(w.head[2:])
	}
	w.mask, w.phase = [4]byte{}, 0
	if masked {
		w.mask = [4]byte(w.head[long:need])
	}
	opcode := w.head[0] & 0x0f
	if opcode == opText || opcode == opBinary {
		w.packed = w.head[0]&0x70 != 0
	}
	w.look = opcode < opControl && !w.packed
	w.fin = opcode < opControl && w.head[0]&0x80 != 0
	w.head = w.head[:0]
	if w.left == 0 {
		w.over()
	}
}

// over notes the end of a frame. What ends a message ends what may be the
// beginning of a value.
func (w *watchedMessages) over() {
	if w.fin {
		w.plain, w.at = append(w.plain, boundary), append(w.at, len(w.raw))
	}
}

// boundary stands between two messages. No form of a value has it.
const boundary = 0

// judge looks at what has come and says what may go out.
func (w *watchedMessages) judge(last bool) error {
	var u uses
	each(w.o.text, w.plain, func(p, _ int) {
		u.add(Use{Name: w.o.names[w.o.text.owner[p]], Place: "message", Action: Withheld})
	})
	if refusal := exfiltration(u); refusal != nil {
		return refusal
	}
	keep, cut := len(w.plain), len(w.raw)
	if !last {
		if keep = w.o.text.open(w.plain); keep < len(w.plain) {
			cut = w.at[keep]
		}
	}
	w.ready = append(w.ready[:0:0], w.raw[:cut]...)
	w.raw = append(w.raw[:0], w.raw[cut:]...)
	w.plain = append(w.plain[:0], w.plain[keep:]...)
	w.at = append(w.at[:0], w.at[keep:]...)
	for i := range w.at {
		w.at[i] -= cut
	}
	return nil
}

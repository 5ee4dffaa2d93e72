package inject

import "encoding/binary"

// frames goes along with the frames of a WebSocket (RFC 6455, section 5.2)
// and tells what they hold from how it is framed. It changes nothing.
type frames struct {
	raw   []byte // as it came, and has not gone out
	plain []byte // payload of messages in raw, and what is kept of it
	at    []int  // of each byte of plain: where in raw it stands; below 0: it has gone out

	control   []byte // payload of the control frame under way
	controlAt []int  // like at
	begins    int    // where in raw the frame under way begins

	head   []byte // of the frame that begins, as far as it has come
	left   uint64 // of the payload of the frame under way, in bytes
	mask   [4]byte
	masked bool // some frame was
	phase  int
	look   bool // the frame is of a message that can be looked into
	fin    bool
	packed bool // the message under way is compressed
	all    bool // compressed messages are looked into as they are
	aside  bool // the frame under way is a control frame
	blind  bool // nothing is looked for at the moment, so no payload is kept

	// end is called when a control frame with payload is whole.
	end func()
}

// boundary stands between two messages. No form of a value has it.
const boundary = 1

// maxControl is the most that a control frame holds (RFC 6455, section 5.5),
// in bytes.
const maxControl = 125

// maxBehind is how much may wait behind payload that is held, in bytes. Frames
// without payload, and control frames, can be sent there for ever.
const maxBehind = 64 << 10

// take goes through bytes as they come.
func (f *frames) take(b []byte) {
	for len(b) > 0 {
		if f.left == 0 {
			if len(f.head) == 0 {
				f.begins = len(f.raw)
			}
			f.raw, f.head = append(f.raw, b[0]), append(f.head, b[0])
			b = b[1:]
			f.frame()
			continue
		}
		n := int(min(f.left, uint64(len(b))))
		switch {
		case f.blind:
			f.phase += n
		case f.look:
			f.plain, f.at = f.payload(f.plain, f.at, b[:n])
		case f.aside:
			f.control, f.controlAt = f.payload(f.control, f.controlAt, b[:n])
		}
		f.raw, b = append(f.raw, b[:n]...), b[n:]
		if f.left -= uint64(n); f.left == 0 {
			f.over()
		}
	}
}

// payload appends a piece of payload that is about to be appended to raw.
func (f *frames) payload(plain []byte, at []int, b []byte) ([]byte, []int) {
	for i, c := range b {
		plain, at = append(plain, c^f.mask[f.phase&3]), append(at, len(f.raw)+i)
		f.phase++
	}
	return plain, at
}

// frame reads the head of a frame when it is whole.
func (f *frames) frame() {
	need := 2
	if len(f.head) < need {
		return
	}
	switch f.head[1] & 0x7f {
	case 126:
		need += 2
	case 127:
		need += 8
	}
	long := need
	masked := f.head[1]&0x80 != 0
	if masked {
		need += 4
	}
	if len(f.head) < need {
		return
	}
	switch f.left = uint64(f.head[1] & 0x7f); f.left {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		f.left = binary.BigEndian.Uint64(f.head[2:])
	}
	f.mask, f.phase = [4]byte{}, 0
	if masked {
		f.mask, f.masked = [4]byte(f.head[long:need]), true
	}
	opcode := f.head[0] & 0x0f
	if opcode == opText || opcode == opBinary {
		f.packed = f.head[0]&0x70 != 0
	}
	f.aside = opcode >= opControl && f.left <= maxControl
	f.look = !f.aside && (f.all || !f.packed)
	f.fin = !f.aside && f.head[0]&0x80 != 0
	f.head = f.head[:0]
	if f.left == 0 {
		f.over()
	}
}

// over notes the end of a frame. What ends a message ends what may be the
// beginning of a value.
func (f *frames) over() {
	if f.fin {
		f.plain, f.at = append(f.plain, boundary), append(f.at, len(f.raw))
	}
	if f.aside {
		f.end()
		f.aside, f.control, f.controlAt = false, f.control[:0], f.controlAt[:0]
	}
}

// release returns what may go out when the payload from give on may not, and
// forgets it, but for the payload from keep on.
func (f *frames) release(keep, give int, last bool) []byte {
	cut := len(f.raw)
	if give < len(f.plain) {
		cut = max(0, f.at[give])
	}
	if f.aside && !last {
		cut = min(cut, f.begins) // a control frame is judged when it is whole
	}
	out := append([]byte(nil), f.raw[:cut]...)
	f.raw = append(f.raw[:0], f.raw[cut:]...)
	f.plain = append(f.plain[:0], f.plain[keep:]...)
	f.at = append(f.at[:0], f.at[keep:]...)
	for i := range f.at {
		f.at[i] -= cut
	}
	for i := range f.controlAt {
		f.controlAt[i] -= cut
	}
	f.begins = max(0, f.begins-cut)
	return out
}

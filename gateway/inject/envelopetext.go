package inject

import (
	"encoding/binary"
	"errors"
	"io"
)

// textMessages is a stream of messages in base64, of which it reads the heads.
// It goes on as it came, up to a message that is compressed.
type textMessages struct {
	src io.Reader

	group  [4]byte // of base64
	digits int     // of them have come
	head   [envelopeHead]byte
	heads  int    // bytes of head have come
	left   uint32 // of the message under way, in bytes
}

// errNoText ends a stream.
var errNoText = errors.New("response: messages in base64 are not what they say")

func (t *textMessages) Read(b []byte) (int, error) {
	n, err := t.src.Read(b)
	for _, c := range b[:n] {
		if c == '\r' || c == '\n' {
			continue
		}
		t.group[t.digits] = c
		if t.digits++; t.digits == len(t.group) {
			if bad := t.whole(); bad != nil {
				return 0, bad
			}
			t.digits = 0
		}
	}
	return n, err
}

// whole goes through a group. What ends in padding may be followed by another.
func (t *textMessages) whole() error {
	bits, n := uint32(0), 3
	for i, c := range t.group {
		d, ok := sixBits(c)
		switch {
		case ok && n == 3:
		case c == '=' && i >= 2:
			n--
		default:
			return errNoText
		}
		bits = bits<<6 | uint32(d)
	}
	for i := range n {
		if err := t.take(byte(bits >> (16 - 8*i))); err != nil {
			return err
		}
	}
	return nil
}

// take goes over a byte of a message or its head.
func (t *textMessages) take(c byte) error {
	if t.left > 0 {
		t.left--
		return nil
	}
	t.head[t.heads] = c
	if t.heads++; t.heads < len(t.head) {
		return nil
	}
	t.heads, t.left = 0, binary.BigEndian.Uint32(t.head[1:])
	if t.head[0]&1 != 0 {
		return errUnnamed
	}
	return nil
}

// sixBits returns what a digit of base64 stands for, in either alphabet.
func sixBits(c byte) (d byte, ok bool) {
	switch {
	case c-'A' < 26:
		return c - 'A', true
	case c-'a' < 26:
		return c - 'a' + 26, true
	case c-'0' < 10:
		return c - '0' + 52, true
	case c == '+' || c == '-':
		return 62, true
	case c == '/' || c == '_':
		return 63, true
	}
	return 0, false
}

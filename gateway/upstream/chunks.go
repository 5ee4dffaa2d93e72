package upstream

import (
	"math"
	"strconv"
)

// judge looks at b, which is of chunks (RFC 9112, section 7.1). It makes a
// chunk that has not come whole one of what is there, and returns how long a
// line is that it put before b for that, and how much of b is to be delivered.
// What is behind that is kept. There is room for the line before b.
func (a *clearConn) judge(b []byte) (frame, end int) {
	if a.part == inChunks && a.left > 0 && len(b) > 0 { // in a chunk of which something was delivered
		end = int(min(a.left, int64(len(b))))
		frame = a.frame(b, end)
		a.took(end)
	}
	for end < len(b) {
		n, ok := a.next(b[end:])
		switch {
		case !ok:
			a.lost, a.part, a.left = true, inBody, -1
			return frame, len(b)
		case n == 0:
			a.held = append(a.held, b[end:]...)
			return frame, end
		}
		if end += n; a.part == inHead {
			if end < len(b) {
				a.unread(b[end:])
			}
			a.answered()
			return frame, end
		}
	}
	return frame, end
}

// took notes that so much of a chunk is delivered.
func (a *clearConn) took(n int) {
	if a.left -= int64(n); a.left == 0 {
		a.part = inChunkEnd
	}
}

// next returns how much of b is to be delivered next; 0 is nothing before more
// has come. It is not ok if b is not understood.
func (a *clearConn) next(b []byte) (n int, ok bool) {
	switch a.part {
	case inChunkEnd:
		if len(b) < 2 {
			return 0, b[0] == '\r'
		}
		a.part = inChunks
		return 2, b[0] == '\r' && b[1] == '\n'
	case inTrailers:
		n, ended := a.emptyLine(b)
		if ended {
			a.part = inHead
		}
		return n, true
	}
	size, digits, line, ok := chunkSize(b)
	switch {
	case !ok:
		return 0, false
	case line == 0:
		return 0, len(b) <= maxChunkLine
	case size == 0:
		a.part = inTrailers
		return line, true
	case line == len(b):
		return 0, true
	}
	have := int(min(size, int64(len(b)-line)))
	if int64(have) < size {
		hexDigits(b[:digits], have)
	}
	a.left = size
	a.took(have)
	return line + have, true
}

// chunkSize reads the line at the start of b. Its length is 0 if it has not
// come whole; it is not ok if it is not one that net/http takes.
func chunkSize(b []byte) (size int64, digits, line int, ok bool) {
	for ; digits < len(b); digits++ {
		c := b[digits] | 0x20 // lower case
		switch {
		case '0' <= b[digits] && b[digits] <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			if digits > 0 {
				line, ok = lineEnd(b, digits)
			}
			return size, digits, line, ok
		}
		if size > math.MaxInt64>>4 {
			return 0, 0, 0, false
		}
		size = size<<4 | int64(c)
	}
	return 0, 0, 0, true
}

// lineEnd finds the end of a line, of which so much is a size.
func lineEnd(b []byte, digits int) (line int, ok bool) {
	for i, c := range b[digits:] {
		if c == '\n' {
			i += digits
			return i + 1, i < maxChunkLine && b[i-1] == '\r'
		}
	}
	return 0, true
}

// frame writes the start of a chunk of n bytes before b, and before that the end
// of the one that was delivered.
func (a *clearConn) frame(b []byte, n int) int {
	f := append(make([]byte, 0, frameRoom), "\r\n"...)
	f = append(strconv.AppendInt(f, int64(n), 16), "\r\n"...)
	copy((*a.buf)[frameRoom-len(f):frameRoom], f)
	return len(f)
}

// hexDigits writes n, which has no more digits, with zeros before it.
func hexDigits(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}

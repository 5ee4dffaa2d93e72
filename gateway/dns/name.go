package dns

import "errors"

// Bounds of RFC 1035 section 2.3.4, in bytes.
const (
	maxLabel = 63
	maxName  = 255 // as on the wire, with length bytes and the root
)

// headerLen is the length of a DNS header (RFC 1035 section 4.1.1). Bytes.
const headerLen = 12

var (
	errRootName = errors.New("name is the root")
	errOddBytes = errors.New("name has bytes that no host name has")
	errLiteral  = errors.New("name is an address")
)

// skipQuestionName returns where the question's name ends. A question is the
// first name of its message, so there is nothing a compression pointer could
// mean: one is refused, never followed (RFC 9267 section 2).
func skipQuestionName(msg []byte) (end int, ok bool) {
	for off := headerLen; off < len(msg); {
		l := int(msg[off])
		if l > maxLabel {
			return 0, false
		}
		off += 1 + l
		if off-headerLen > maxName {
			return 0, false
		}
		if l == 0 {
			return off, true
		}
	}
	return 0, false
}

// skipName returns where the name at off ends, in a record that is going to be
// skipped. A pointer ends it and is not followed.
func skipName(msg []byte, off int) (end int, ok bool) {
	for start := off; off < len(msg); {
		l := int(msg[off])
		switch {
		case l == 0:
			return off + 1, true
		case l&0xC0 == 0xC0:
			return off + 2, off+2 <= len(msg)
		case l > maxLabel:
			return 0, false
		}
		off += 1 + l
		if off-start >= maxName {
			return 0, false
		}
	}
	return 0, false
}

// presentation returns the presentation form of the wire name w, which ends
// with the root label, and whether every byte stands for itself. A byte that
// does not is written \DDD or after a backslash, so that a dot inside a label
// can never pass for a border between two (RFC 4343 section 2.1).
func presentation(w []byte) (name string, plain bool) {
	if len(w) <= 1 {
		return ".", true
	}
	var stack [maxName]byte
	buf, plain := stack[:0], true
	for off := 0; w[off] != 0; {
		l := int(w[off])
		if off > 0 {
			buf = append(buf, '.')
		}
		for _, c := range w[off+1 : off+1+l] {
			if isOrdinary(c) {
				buf = append(buf, c)
				continue
			}
			plain = false
			buf = appendEscaped(buf, c)
		}
		off += 1 + l
	}
	return string(buf), plain
}

// isOrdinary reports whether c stands for itself in presentation form.
func isOrdinary(c byte) bool {
	switch c {
	case '.', '\'', '@', ';', '(', ')', '"', '\\':
		return false
	}
	return c > ' ' && c <= '~'
}

func appendEscaped(b []byte, c byte) []byte {
	if c > ' ' && c <= '~' {
		return append(b, '\\', c)
	}
	return append(b, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
}

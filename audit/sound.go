package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
)

// sound reports whether a line surely has the form of a record: the head, and
// JSON to its end, as the log writes them. It is for lines that are not decoded,
// and costs a tenth of that; it is a hot path. DecodeLine says what is wrong
// with one that is not sound, if anything is.
func sound(line []byte) bool {
	if len(line) > maxLine || !stamped(line) {
		return false
	}
	c := checker{line: line, at: len(headTime) + timeLen}
	head := c.word(headID) && c.plain(idLen) && c.word(headSeq) && c.number() &&
		c.word(headInstance) && c.plain(idLen) && c.word(headPrev) && c.plain(hex.EncodedLen(sha256.Size)) && c.word(`"`)
	return head && c.members(0) && c.at == len(line)
}

// stamped reports whether a line begins as a record does, with a time.
func stamped(line []byte) bool {
	if len(line) < len(headTime)+timeLen || string(line[:len(headTime)]) != headTime {
		return false
	}
	const least, most = "0000-01-01T00:00:00.000000000Z", "9999-12-31T23:59:59.999999999Z"
	stamp := line[len(headTime) : len(headTime)+timeLen]
	for i, ch := range stamp {
		if ch != least[i] && (ch < '0' || ch > '9' || least[i] < '0' || least[i] > '9') {
			return false
		}
	}
	for _, at := range [...]int{5, 8, 11, 14, 17} { // month to second
		if v := string(stamp[at : at+2]); v < least[at:at+2] || v > most[at:at+2] {
			return false
		}
	}
	return true
}

// maxDepth is how deep values of a record are nested, and more.
const maxDepth = 16

// checker reads JSON without white space.
type checker struct {
	line []byte
	at   int // where the next value begins
}

// next is the next byte, 0 at the end.
func (c *checker) next() byte {
	if c.at == len(c.line) {
		return 0
	}
	return c.line[c.at]
}

// value takes a value.
func (c *checker) value(depth int) bool {
	switch ch := c.next(); {
	case depth > maxDepth:
		return false
	case ch == '"':
		return c.text()
	case ch == '{':
		c.at++
		return c.object(depth)
	case ch == '[':
		c.at++
		return c.array(depth)
	case ch == 't':
		return c.word("true")
	case ch == 'f':
		return c.word("false")
	case ch == 'n':
		return c.word("null")
	}
	return c.number()
}

// object takes what is after an opening brace.
func (c *checker) object(depth int) bool {
	if c.next() == '}' {
		c.at++
		return true
	}
	return c.member(depth) && c.members(depth)
}

// members takes what is after a member, and the closing brace.
func (c *checker) members(depth int) bool {
	for c.next() == ',' {
		c.at++
		if !c.member(depth) {
			return false
		}
	}
	return c.word("}")
}

// member takes a name and its value.
func (c *checker) member(depth int) bool {
	return c.text() && c.word(":") && c.value(depth+1)
}

// array takes what is after an opening bracket.
func (c *checker) array(depth int) bool {
	if c.next() == ']' {
		c.at++
		return true
	}
	for c.value(depth + 1) {
		if c.next() != ',' {
			return c.word("]")
		}
		c.at++
	}
	return false
}

// word takes what is given.
func (c *checker) word(w string) bool {
	if len(c.line)-c.at < len(w) || string(c.line[c.at:c.at+len(w)]) != w {
		return false
	}
	c.at += len(w)
	return true
}

// plain takes n bytes of a string that stand for themselves.
func (c *checker) plain(n int) bool {
	if len(c.line)-c.at < n || special(c.line[c.at:c.at+n]) < n {
		return false
	}
	c.at += n
	return true
}

// text takes a string.
func (c *checker) text() bool {
	if c.next() != '"' {
		return false
	}
	c.at++
	for {
		n := special(c.line[c.at:])
		c.at += n
		switch c.next() {
		case '"':
			c.at++
			return true
		case '\\':
			if n = escapeLen(c.line[c.at:]); n == 0 {
				return false
			}
			c.at += n
		default:
			return false
		}
	}
}

// special is the length of what b begins with that stands for itself in a
// string: no quote, backslash or control character. It looks at eight bytes at
// once: a byte that is looked for, and none before it, borrows into its high bit.
func special(b []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		q, e := v^(ones*'"'), v^(ones*'\\')
		if m := ((q-ones)&^q | (e-ones)&^e | (v-ones*' ')&^v) & high; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' '; i++ {
	}
	return i
}

// escapeLen is the length of the escape at the front of b, 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, ch := range b[2:6] {
			if (ch < '0' || ch > '9') && (ch < 'a' || ch > 'f') && (ch < 'A' || ch > 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// number takes a number without an exponent, as the log writes them.
func (c *checker) number() bool {
	if c.next() == '-' {
		c.at++
	}
	first, n := c.next(), c.digits()
	if n == 0 || n > 1 && first == '0' {
		return false
	}
	if c.next() != '.' {
		return true
	}
	c.at++
	return c.digits() > 0
}

// digits takes them and returns how many there were.
func (c *checker) digits() int {
	from := c.at
	for '0' <= c.next() && c.next() <= '9' {
		c.at++
	}
	return c.at - from
}

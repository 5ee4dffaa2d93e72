package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"strconv"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// cutMarkRoom is the most that appendCutMark adds: "...[" + 20 digits +
// " bytes sha256:" + 16 hex digits + "]".
const cutMarkRoom = 4 + 20 + 14 + 16 + 1

// plain reports whether c stands for itself inside a JSON string of the log:
// printable ASCII without the quote and the backslash.
func plain(c byte) bool {
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'
}

// appendString appends s as a JSON string of printable ASCII, at most limit
// bytes between the quotes. Controls and everything beyond ASCII become \u
// escapes, a byte that is no UTF-8 becomes the text \xNN, so that two
// different hostile strings stay different. What does not fit is cut and
// marked with the whole length and the first half of its SHA-256.
func appendString(dst []byte, s string, limit int) []byte {
	dst = append(dst, '"')
	n := plainPrefix(s)
	switch {
	case n == len(s) && n <= limit:
		dst = append(dst, s...)
	case len(s) > limit/6: // one byte takes six at most
		dst = appendCapped(dst, s, limit)
	default:
		for n < len(s) {
			dst = append(dst, s[:n]...)
			var taken int
			dst, taken = appendEscaped(dst, s[n:])
			s = s[n+taken:]
			n = plainPrefix(s)
		}
		dst = append(dst, s...)
	}
	return append(dst, '"')
}

// plainPrefix returns how many bytes at the front of s are plain. It looks at
// eight bytes at a time: the lowest high bit that is set in the mask is of the
// first byte that is not plain.
func plainPrefix(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		bad := x | (x - 0x20*ones) | (x + ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)
		if bad &= high; bad != 0 {
			return i + bits.TrailingZeros64(bad)/8
		}
	}
	for ; i < len(s) && plain(s[i]); i++ {
	}
	return i
}

// appendCapped is appendString without the quotes for a string that may have
// to be cut.
func appendCapped(dst []byte, s string, limit int) []byte {
	limit = max(limit, cutMarkRoom)
	start, fits := len(dst), len(dst)
	for i := 0; i < len(s); {
		n := 1
		if plain(s[i]) {
			dst = append(dst, s[i])
		} else {
			dst, n = appendEscaped(dst, s[i:])
		}
		i += n
		if len(dst)-start <= limit-cutMarkRoom {
			fits = len(dst)
		}
		if len(dst)-start > limit {
			return appendCutMark(dst[:fits], s)
		}
	}
	return dst
}

// appendCutMark says how long s was and which it was. It needs no escaping.
func appendCutMark(dst []byte, s string) []byte {
	sum := sha256.Sum256([]byte(s))
	dst = append(dst, "...["...)
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	dst = append(dst, " bytes sha256:"...)
	dst = hex.AppendEncode(dst, sum[:8])
	return append(dst, ']')
}

// appendEscaped appends the escape of the first character of s and returns
// how many bytes of s it took.
func appendEscaped(dst []byte, s string) ([]byte, int) {
	c := s[0]
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c), 1
	case c == '\n':
		return append(dst, `\n`...), 1
	case c == '\r':
		return append(dst, `\r`...), 1
	case c == '\t':
		return append(dst, `\t`...), 1
	case c < utf8.RuneSelf:
		return appendUnit(dst, uint16(c)), 1
	}
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n <= 1:
		return append(dst, '\\', '\\', 'x', hexDigits[c>>4], hexDigits[c&15]), 1
	case r > 0xffff:
		r -= 0x10000
		dst = appendUnit(dst, uint16(0xd800+r>>10))
		return appendUnit(dst, uint16(0xdc00+r&0x3ff)), n
	}
	return appendUnit(dst, uint16(r)), n
}

// appendUnit appends one UTF-16 unit as \uXXXX.
func appendUnit(dst []byte, u uint16) []byte {
	return append(dst, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// Escape returns s in a form that is safe to print on a terminal and in a
// chat message: one line, at most limit characters, no control or escape
// sequence, nothing that turns the direction of text or hides, no invalid
// UTF-8. Letters of other scripts stay readable. What is escaped is written
// as in a Go string (\n, \x1b, \u202e) and so is the backslash itself, so that
// no input can pass for the escape of another.
func Escape(s string, limit int) string {
	if limit <= 0 {
		limit = 256
	}
	if len(s) <= limit && printableASCII(s) {
		return s
	}
	out := make([]byte, 0, min(len(s), limit)+8)
	runes := 0
	for i := 0; i < len(s); {
		var piece [10]byte
		p, n := appendVisible(piece[:0], s[i:])
		width := utf8.RuneCount(p)
		rest := limit - runes - width
		if rest < 0 || (rest < 1 && i+n < len(s)) {
			return string(out) + "…"
		}
		out = append(out, p...)
		runes += width
		i += n
	}
	return string(out)
}

// printableASCII reports whether nothing in s needs an escape.
func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e || s[i] == '\\' {
			return false
		}
	}
	return true
}

// appendVisible appends the first character of s as Escape shows it and
// returns how many bytes of s it took.
func appendVisible(dst []byte, s string) ([]byte, int) {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n <= 1:
		return append(dst, '\\', 'x', hexDigits[s[0]>>4], hexDigits[s[0]&15]), 1
	case r == '\\':
		return append(dst, `\\`...), 1
	case r == '\n':
		return append(dst, `\n`...), 1
	case r == '\r':
		return append(dst, `\r`...), 1
	case r == '\t':
		return append(dst, `\t`...), 1
	case r < 0x20 || r == 0x7f:
		return append(dst, '\\', 'x', hexDigits[r>>4], hexDigits[r&15]), n
	case r == ' ' || visible(r):
		return append(dst, s[:n]...), n
	case r > 0xffff:
		dst = append(dst, '\\', 'U', '0', '0')
		return appendHex(dst, uint32(r), 6), n
	}
	return appendHex(append(dst, '\\', 'u'), uint32(r), 4), n
}

// visible reports whether r has a shape of its own and leaves its neighbours
// alone: letters, digits, punctuation and symbols, but no combining marks (a
// heap of them draws over other lines), no spaces but U+0020, no format,
// private or unassigned characters.
func visible(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && r != 0x3164 && r != 0x115f && r != 0x1160 && r != 0xffa0 && r != 0x2800 && r != utf8.RuneError
}

// appendHex appends the low digits of v.
func appendHex(dst []byte, v uint32, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, hexDigits[v>>(4*i)&15])
	}
	return dst
}

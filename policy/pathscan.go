package policy

import "unicode/utf8"

// segmentScan looks for everything in a segment that an origin might read in
// another way than it is matched.
type segmentScan struct {
	slash  bool // holds an encoded slash
	params bool // holds a semicolon

	dots   int  // dots so far in the part that an origin might resolve by itself
	other  bool // something else than dots in that part
	ended  bool // the part has met its semicolon
	nested int  // length of a possible escape in the decoded text: "%", "%4"
	runes  [utf8.UTFMax]byte
	n      int // bytes of an unfinished rune
}

// scan reports whether the segment has one reading, apart from encoded
// slashes.
func (s *segmentScan) scan(seg string) bool {
	if seg == "" {
		return false
	}
	for seg != "" {
		c, rest, escaped, ok := nextByte(seg)
		if !ok || !s.byteFits(c, escaped) || !s.runeFits(c) || s.escapesAgain(c) {
			return false
		}
		switch {
		case c == '/': // encoded, else it would have divided
			s.slash = true
			if !s.partFits() {
				return false
			}
			s.dots, s.other, s.ended = 0, false, false
		case c == ';' && !s.ended:
			s.params = true
			if !s.partFits() {
				return false
			}
			s.ended = true
		case s.ended:
		case c == '.':
			s.dots++
		default:
			s.other = true
		}
		seg = rest
	}
	return s.n == 0 && s.partFits()
}

// byteFits refuses bytes that are dropped, turned into a slash or taken for
// the end somewhere, and dots that somebody took the trouble to escape.
func (s *segmentScan) byteFits(c byte, escaped bool) bool {
	switch {
	case c < ' ', c == 0x7f, c == '\\':
		return false
	case escaped:
		return c != '.'
	}
	return c != ' ' && c != '#' && c != '?'
}

// partFits refuses a part that is empty or a dot segment. After a semicolon
// the part has been judged already.
func (s *segmentScan) partFits() bool {
	return s.ended || s.other || s.dots > 2
}

// escapesAgain reports whether the decoded bytes so far end in an escape.
func (s *segmentScan) escapesAgain(c byte) bool {
	switch {
	case c == '%':
		s.nested = 1
	case s.nested > 0 && isHex(c):
		s.nested++
	default:
		s.nested = 0
	}
	return s.nested == 3
}

// runeFits refuses what is not UTF-8, among it the overlong forms of a slash
// or dot that some servers decode.
func (s *segmentScan) runeFits(c byte) bool {
	if s.n == 0 && c < utf8.RuneSelf {
		return true
	}
	s.runes[s.n] = c
	s.n++
	if !utf8.FullRune(s.runes[:s.n]) {
		return true
	}
	r, size := utf8.DecodeRune(s.runes[:s.n])
	s.n = 0
	return r != utf8.RuneError || size > 1
}

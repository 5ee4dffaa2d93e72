package inject

// holdFrom is how much of a pattern of n bytes has to stand at the end of a
// text for it to be held back, in bytes. A peer can see that bytes are held
// back, and so that they begin a value: of less than this it is not told.
func holdFrom(n int) int { return max(minRaw, (3*n+3)/4) }

// grave returns where in text a pattern may have begun that goes on behind
// its end, and of which holdFrom of its bytes have come; len(text) when none
// has. It is not before from, which is what open has returned.
func (s *seeker) grave(text []byte, from int) int {
	for i := from; i < len(text); i++ {
		n := len(text) - i
		for _, p := range s.first[text[i]] {
			if pattern := s.patterns[p]; len(pattern) > n && n >= holdFrom(len(pattern)) && pattern[:n] == string(text[i:]) {
				return i
			}
		}
		if s.loose != nil && s.loose.grave(text, i) {
			return i
		}
	}
	return len(text)
}

// grave says whether a value has begun at text[i] of which holdFrom of its
// bytes have come.
func (l *loose) grave(text []byte, i int) bool {
	c := text[i]
	if l.graveWith(text, i, c) {
		return true
	}
	if !isEscape(c) {
		return false
	}
	u := unescapeAt(text, i)
	return u.size > 0 && u.b[0] != c && l.graveWith(text, i, u.b[0])
}

// graveWith is grave for the values whose first byte is c.
func (l *loose) graveWith(text []byte, i int, c byte) bool {
	for _, v := range l.starts[c] {
		value := &l.values[v]
		if a := follow(text, i, value, 0); a.part && a.reached >= holdFrom(len(value.text)) {
			return true
		}
	}
	return false
}

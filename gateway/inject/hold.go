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
	if isEscape(c) {
		if u := unescapeAt(text, i); u.size > 0 {
			c = u.b[0]
		}
	}
	for _, v := range l.starts[c] {
		value := &l.values[v]
		if _, k, fate := follow(text, i, value, 0); (fate == part || fate == perhaps) && k >= holdFrom(len(value.text)) {
			return true
		}
	}
	return false
}

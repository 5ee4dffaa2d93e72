package inject

import "bytes"

// seeker finds any of many patterns in a text (Wu and Manber's method): it
// looks at the last bytes of a window as long as the shortest pattern, and
// most of the time those stand in no pattern, so that the window moves by
// nearly its length.
type seeker struct {
	patterns []string
	owner    []int              // of each pattern: an index of the caller's
	shortest int                // length of the shortest pattern, in bytes
	exactly  int                // and of the longest
	longest  int                // of anything that is found
	shift    []uint8            // by hash of a block: how far the window may move
	mask     uint32             // of the hash; len(shift)-1
	ends     map[uint32][]int32 // by hash of a block: patterns whose window ends with it
	first    [256][]int32       // by first byte: patterns
	loose    *loose             // what is found escaped and broken into lines; nil: nothing
}

// block is how many bytes are hashed; no pattern is shorter.
const block = 3

func newSeeker(patterns []string, owner []int) *seeker {
	s := &seeker{patterns: patterns, owner: owner, shortest: 1 << 30}
	blocks := 0
	for i, p := range patterns {
		s.shortest, s.exactly = min(s.shortest, len(p)), max(s.exactly, len(p))
		s.first[p[0]] = append(s.first[p[0]], int32(i))
	}
	s.longest = s.exactly
	blocks = len(patterns) * s.shortest
	size := uint32(1 << 12)
	for int(size) < 16*blocks && size < 1<<20 {
		size <<= 1
	}
	s.mask = size - 1
	s.shift, s.ends = make([]uint8, size), make(map[uint32][]int32)
	far := uint8(min(s.shortest-block+1, 255))
	for i := range s.shift {
		s.shift[i] = far
	}
	for i, p := range patterns {
		for end := block; end <= s.shortest; end++ {
			h := s.hash(p[end-3], p[end-2], p[end-1])
			s.shift[h] = min(s.shift[h], uint8(min(s.shortest-end, 255)))
			if end == s.shortest {
				s.ends[h] = append(s.ends[h], int32(i))
			}
		}
	}
	return s
}

// beside adds values that are found loosely.
func (s *seeker) beside(values []looseValue) {
	if len(values) > 0 {
		s.loose = newLoose(values)
		s.longest = max(s.longest, s.loose.longest)
	}
}

func (s *seeker) hash(a, b, c byte) uint32 {
	return (uint32(a) | uint32(b)<<8 | uint32(c)<<16) * 0x9e3779b1 >> 10 & s.mask
}

// each calls found for every pattern of s at every place of text where it
// stands, in the order of places, and then for what stands there loosely.
func each[T string | []byte](s *seeker, text T, found func(owner, start, end int)) {
	shift, mask := s.shift, s.mask
	for i := s.shortest - 1; i < len(text); {
		h := (uint32(text[i-2]) | uint32(text[i-1])<<8 | uint32(text[i])<<16) * 0x9e3779b1 >> 10 & mask
		if n := shift[h]; n > 0 {
			i += int(n)
			continue
		}
		start := i - s.shortest + 1
		for _, p := range s.ends[h] {
			if pattern := s.patterns[p]; len(pattern) <= len(text)-start && string(text[start:start+len(pattern)]) == pattern {
				found(s.owner[p], start, start+len(pattern))
			}
		}
		i++
	}
	if s.loose != nil && len(text) >= s.loose.least {
		eachLoose(s.loose, text, found)
	}
}

// open returns where in text a pattern may have begun that goes on behind
// its end; len(text) when none has.
func (s *seeker) open(text []byte) int {
	i, _ := s.opened(text)
	return i
}

// opened is open, and whose the pattern is; below 0: it cannot be told.
func (s *seeker) opened(text []byte) (start, owner int) {
	start, owner = s.exact(text)
	if s.loose != nil {
		if i, o := s.loose.open(text); i < start {
			return i, o
		}
	}
	return start, owner
}

// exact is opened of the patterns as they are.
func (s *seeker) exact(text []byte) (start, owner int) {
	for i := max(0, len(text)-s.exactly+1); i < len(text); i++ {
		for _, p := range s.first[text[i]] {
			if pattern := s.patterns[p]; len(pattern) > len(text)-i && bytes.HasPrefix([]byte(pattern[:len(text)-i]), text[i:]) {
				return i, s.owner[p]
			}
		}
	}
	return len(text), -1
}

// slightMost is the most bytes of a value that may go out before it is known
// whether the rest of it follows. A stream in which a peer waits for the last
// bytes of the other's message often stops at such a piece; at a longer one by
// chance it does not. In bytes.
const slightMost = 3

// slightOf is the shortest value of which that is little, in bytes.
const slightOf = 16

// slight says whether the beginnings of patterns in piece, which is the end
// of a text from where open says, tell nothing of worth.
func (s *seeker) slight(piece []byte) bool {
	if len(piece) > slightMost {
		return false
	}
	for i := range piece {
		if s.loose != nil && s.loose.least < slightOf && isEscape(piece[i]) {
			return false
		}
		for _, p := range s.first[piece[i]] {
			pattern, n := s.patterns[p], len(piece)-i
			if len(pattern) > n && len(pattern) < slightOf && pattern[:n] == string(piece[i:]) {
				return false
			}
		}
	}
	return true
}

package inject

import (
	"bytes"
	"strings"
)

// loose finds values of which some bytes, or all, stand in a text escaped,
// each in a way of its own, and encodings that lines are broken in. What a
// seeker finds, as it is, it does not.
//
// It looks at escapes and line breaks alone: one that a value goes over is
// preceded by the beginning of that value, up to the first of them as it is.
type loose struct {
	values  []looseValue
	starts  [256][]int32       // by byte: values that begin with it
	pairs   map[[2]byte][]spot // by two bytes: where in values the second stands behind the first
	begin   [256]bool          // bytes that begin a value or an escape
	early   [256]bool          // bytes with which the first line of a wrapped value may end that is too short to be known by
	wrapped bool               // some value is broken into lines
	tri     [1 << 10]uint64
	longest int // of all forms, in bytes
	near    int // likewise, where no escape of HTML stands
	least   int // length of the shortest value
}

type looseValue struct {
	text    string
	owner   int
	wrapped bool // lines may be broken in it
	odd     bool // some byte of it begins escapes, or breaks lines
}

// spot is a place in a value.
type spot struct{ value, k int32 }

const (
	// lineLeast is the shortest line that is broken, in bytes, but for the
	// first.
	lineLeast = 16
	// maxBreak is the longest break of a line, in bytes that may be escaped.
	maxBreak = 2
)

// most is how long a value is at most, when escapes are of so many bytes.
func (v *looseValue) most(escape int) int {
	return escape * (len(v.text) + maxBreak*(len(v.text)/lineLeast+2))
}

func newLoose(values []looseValue) *loose {
	l := &loose{values: values, pairs: make(map[[2]byte][]spot), least: 1 << 30}
	for c := range l.begin {
		l.begin[c] = isEscape(byte(c))
	}
	for i, v := range values {
		values[i].odd = strings.ContainsAny(v.text, "%\\&\r\n")
		l.longest = max(l.longest, v.most(maxEscape))
		l.near = max(l.near, v.most(maxPlain))
		l.least = min(l.least, len(v.text))
		l.starts[v.text[0]] = append(l.starts[v.text[0]], int32(i))
		l.begin[v.text[0]] = true
		for k := 1; k < len(v.text); k++ {
			pair := [2]byte{v.text[k-1], v.text[k]}
			l.pairs[pair] = append(l.pairs[pair], spot{int32(i), int32(k)})
		}
		if v.wrapped {
			l.wrapped = true
			l.early[v.text[0]], l.early[v.text[1]] = true, true
			for k := 0; k+3 <= len(v.text); k++ {
				h := trigram(v.text[k], v.text[k+1], v.text[k+2])
				l.tri[h>>6] |= 1 << (h & 63)
			}
		}
	}
	return l
}

func trigram(a, b, c byte) uint16 {
	return uint16((uint32(a) | uint32(b)<<8 | uint32(c)<<16) * 0x9e3779b1 >> 16)
}

func (l *loose) seen(a, b, c byte) bool {
	h := trigram(a, b, c)
	return l.tri[h>>6]>>(h&63)&1 == 1
}

// index returns where in text c stands first from from on; len(text) when it
// does not.
func index[T string | []byte](text T, from int, c byte) int {
	i := -1
	switch t := any(text).(type) {
	case string:
		i = strings.IndexByte(t[from:], c)
	case []byte:
		i = bytes.IndexByte(t[from:], c)
	}
	if i < 0 {
		return len(text)
	}
	return from + i
}

// eachLoose calls found for every value of l in text, in the order of the
// first escape or line break of each.
func eachLoose[T string | []byte](l *loose, text T, found func(owner, start, end int)) {
	triggers := [...]byte{'%', '\\', '&', '\n'}
	var next [len(triggers)]int
	for t, c := range triggers {
		next[t] = index(text, 0, c)
	}
	if !l.wrapped {
		next[3] = len(text)
	}
	for {
		t := 0
		for u := range next {
			if next[u] < next[t] {
				t = u
			}
		}
		i := next[t]
		if i == len(text) {
			return
		}
		next[t] = index(text, i+1, triggers[t])
		around(l, text, i, found)
	}
}

// around finds the values whose first escape or line break begins at text[i].
func around[T string | []byte](l *loose, text T, i int, found func(owner, start, end int)) {
	u := unit{b: [4]byte{'\n'}, n: 1, size: 1}
	if text[i] != '\n' {
		if u = unescapeAt(text, i); u.size == 0 {
			return
		}
	}
	eachSpot(l, text, i, u.b[0], 0, found)
	if !l.wrapped || u.n != 1 || u.b[0] != '\n' && u.b[0] != '\r' {
		return
	}
	if text[i] == '\n' && i > 0 && text[i-1] == '\r' {
		i--
	}
	if i == 0 || i >= 3 && !l.early[text[i-1]] && !l.seen(text[i-3], text[i-2], text[i-1]) {
		return
	}
	eachSpot(l, text, i, text[i-1], 1, found)
}

// eachSpot finds the values that have the byte c and go on, with it or, where
// past is 1, with a line break and the byte behind it, as text does at i.
func eachSpot[T string | []byte](l *loose, text T, i int, c byte, past int, found func(owner, start, end int)) {
	a := ahead{next: i}
	for _, v := range l.starts[c] {
		goesOver(l, text, i, spot{v, 0}, past, &a, found)
	}
	if i > past {
		for _, s := range l.pairs[[2]byte{text[i-past-1], c}] {
			goesOver(l, text, i, s, past, &a, found)
		}
	}
}

// goesOver calls found if a value whose first bytes, up to past behind s, stand
// before text[i] goes on there, which a reads, to its end.
func goesOver[T string | []byte](l *loose, text T, i int, s spot, past int, a *ahead, found func(owner, start, end int)) {
	v, k := &l.values[s.value], int(s.k)+past
	if past > 0 && (!v.wrapped || k == len(v.text)) {
		return
	}
	if i < k || string(text[i-k:i]) != v.text[:k] || !mayGoOn(text, a, v, k) {
		return
	}
	if f := follow(text, i, v, k); f.whole {
		found(v.owner, i-k, f.end)
	}
}

// open returns where in text a value may have begun that goes on behind its
// end, and whose it is; len(text) when none has. Where no more than an escape
// has begun, the owner is below 0.
func (l *loose) open(text []byte) (start, owner int) {
	from := max(0, len(text)-l.longest+1)
	if near := len(text) - l.near + 1; near > from && index(text, from, '&') == len(text) {
		from = near
	}
	for i := from; i < len(text); i++ {
		c, u := text[i], unit{}
		if !l.begin[c] {
			continue
		}
		if isEscape(c) {
			if u = unescapeAt(text, i); u.cut {
				return i, -1
			}
		}
		if owner, ok := l.begins(text, i, c); ok {
			return i, owner
		}
		// What begins an escape may stand for itself as well.
		if u.size > 0 && u.b[0] != c {
			if owner, ok := l.begins(text, i, u.b[0]); ok {
				return i, owner
			}
		}
	}
	return len(text), -1
}

// begins says whether a value whose first byte is c may begin at text[i] and go
// on behind the end of text, and whose it is.
func (l *loose) begins(text []byte, i int, c byte) (owner int, ok bool) {
	a := ahead{next: i}
	for _, n := range l.starts[c] {
		v := &l.values[n]
		if mayGoOn(text, &a, v, 0) && follow(text, i, v, 0).part {
			return v.owner, true
		}
	}
	return -1, false
}

// remainder says whether b may be what is left of an escape.
func remainder(b []byte) bool {
	for i, c := range b {
		if unhex(c) > 15 && !(i == 0 && (c == 'u' || c == 'x' || c == '#')) && !(c == 'x' && i == 1 && b[0] == '#') && !(c == ';' && i == len(b)-1) {
			return false
		}
	}
	return true
}

// tail returns how much of the beginning of text is the end of a value, of
// minRaw bytes and more, and whether all of it is inside one, and whose it is.
// The first escape may be cut.
func (l *loose) tail(text []byte) (n int, inside bool, owner int) {
	for skip := 0; skip < min(maxEscape, len(text)) && (skip == 0 || remainder(text[:skip])); skip++ {
		for i := range l.values {
			v := &l.values[i]
			for k := 1; k < len(v.text); k++ {
				a := follow(text, skip, v, k)
				if a.part && (skip == 0 && a.at > 0 || a.at-skip >= minRaw) {
					inside, owner = true, v.owner
				}
				if a.whole && len(v.text)-k >= minRaw && a.end > n {
					n, owner = a.end, v.owner
				}
			}
		}
	}
	return n, inside, owner
}

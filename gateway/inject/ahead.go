package inject

// ahead is what a text goes on with, read without its escapes and line breaks,
// as far as somebody has asked. It tells in one comparison that a value does
// not go on there, where following it would read each escape for each value.
type ahead struct {
	b    [64]byte
	n    int  // how many bytes of b are known
	next int  // where in the text the next one stands
	end  bool // no more can be told: the text ends
}

// nearAhead is how many bytes are read first. Most texts differ in them.
const nearAhead = 8

// readAhead reads until n bytes are known, at most what b has room for.
func readAhead[T string | []byte](text T, a *ahead, n int) {
	for a.n < n && !a.end {
		if a.next >= len(text) {
			a.end = true
			return
		}
		u := unit{b: [4]byte{text[a.next]}, n: 1, size: 1}
		if isEscape(text[a.next]) {
			switch e := unescapeAt(text, a.next); {
			case e.cut:
				a.end = true
				return
			case e.size > 0:
				u = e
			}
		}
		a.next += u.size
		for _, c := range u.b[:u.n] {
			if c != '\n' && c != '\r' && a.n < len(a.b) {
				a.b[a.n] = c
				a.n++
			}
		}
	}
}

// mayGoOn says whether v.text[k:] may be what a reads. It says so of every
// value that has a byte of an escape or of a line break, which a text can be
// read in several ways with.
func mayGoOn[T string | []byte](text T, a *ahead, v *looseValue, k int) bool {
	for n := nearAhead; !v.odd; n = len(a.b) {
		readAhead(text, a, n)
		m := min(n, a.n, len(v.text)-k)
		if v.text[k:k+m] != string(a.b[:m]) {
			return false
		}
		if m < n || n == len(a.b) {
			break
		}
	}
	return true
}

package inject

// along says how far a text goes along with a value, in whichever way it is
// read: a byte that begins an escape may stand for itself.
type along struct {
	whole   bool // to the end of the value
	end     int  // of the longest such reading, in the text
	part    bool // to the end of the text, where it may go on
	at      int  // how far in the text the longest such reading goes
	reached int  // and how far in the value
}

// maxForks is how many readings of a text are followed.
const maxForks = 4096

// fork is where a text may be read in two ways: text[i] stands for the value's
// byte k-1, and what follows it is yet to be read.
type fork struct{ i, k int }

// follow says how far text goes along with v, from text[i] and v.text[k] on.
func follow[T string | []byte](text T, i int, v *looseValue, k int) (a along) {
	var forks []fork
	var known map[fork]bool
	follow1(text, i, k, v, &a, func(f fork) { forks = append(forks, f) })
	for len(forks) > 0 {
		f := forks[len(forks)-1]
		forks = forks[:len(forks)-1]
		if known == nil {
			known = make(map[fork]bool)
		}
		if known[f] || len(known) == maxForks {
			continue
		}
		known[f] = true
		follow1(text, f.i, f.k, v, &a, func(f fork) { forks = append(forks, f) })
	}
	return a
}

// follow1 follows one reading, in which escapes come first, and calls other
// for each place where a byte may as well stand for itself.
func follow1[T string | []byte](text T, i, k int, v *looseValue, a *along, other func(fork)) {
	line, breaks := lineLeast, 0 // bytes since the last break, and its length
	for k < len(v.text) {
		if i >= len(text) {
			a.partly(i, k)
			return
		}
		c, u := text[i], unit{}
		itself := c == v.text[k]
		if itself && k == len(v.text)-1 {
			i, k = i+1, k+1 // also where it begins an escape of itself
			break
		}
		if isEscape(c) {
			u = unescapeAt(text, i)
		}
		escaped := u.size > 0 && len(v.text)-k >= u.n && v.text[k:k+u.n] == string(u.b[:u.n])
		if u.cut {
			a.partly(i, k)
		}
		broken := v.wrapped && k > 0 && (line >= lineLeast || breaks == 1)
		switch {
		case escaped:
			if itself {
				other(fork{i + 1, k + 1})
			}
			i, k, line, breaks = i+u.size, k+u.n, line+1, 0
		case itself:
			i, k, line, breaks = i+1, k+1, line+1, 0
		case broken && (c == '\n' || c == '\r' && (i+1 == len(text) || text[i+1] == '\n')):
			i, line, breaks = i+1, 0, breaks+1
		case broken && u.n == 1 && (u.b[0] == '\r' || u.b[0] == '\n'):
			i, line, breaks = i+u.size, 0, breaks+1
		default:
			return
		}
	}
	a.whole, a.end = true, max(a.end, i)
}

// partly notes a reading in which the text ends at text[at], or in an escape
// that begins there.
func (a *along) partly(at, k int) {
	a.part, a.at, a.reached = true, max(a.at, at), max(a.reached, k)
}

package inject

import (
	"slices"
	"strings"

	"sallyport/secrets"
)

// finder finds placeholders in text. Its cost does not grow with the number
// of secrets: a byte that may begin one is looked for, and what stands there
// is looked up in a map.
type finder struct {
	names   map[string]*credential // of the $NAME grammar
	shapes  map[string][]shape     // by fixed prefix; longest placeholder first
	anchors map[anchor][]int       // first bytes of a prefix → lengths of prefixes, longest first
	first   [256]bool              // bytes that begin an anchor
	longest int                    // length of the longest prefix, in bytes
	dense   bool                   // a shape has no random part to look for
	key     []byte
}

// anchor is the first bytes of a shape's prefix.
type anchor [secrets.MinPrefix]byte

// shape is the form of shaped placeholders. fixed is the secret of a form
// without a random part.
type shape struct {
	template secrets.Template
	fixed    *credential
}

// hit is a placeholder that was found in a text.
type hit struct {
	start, end int
	cred       *credential // nil: of another sandbox, and unknown whose
	other      bool        // of another sandbox
}

func newFinder(creds map[string]*credential, key []byte) finder {
	f := finder{names: creds, key: key}
	for _, c := range creds {
		if c.template.IsZero() {
			continue
		}
		s := shape{template: c.template}
		if c.template.Rand == 0 {
			s.fixed, f.dense = c, true
		}
		f.add(s)
	}
	for prefix := range f.shapes {
		slices.SortFunc(f.shapes[prefix], func(a, b shape) int { return b.template.Len() - a.template.Len() })
	}
	for a := range f.anchors {
		slices.SortFunc(f.anchors[a], func(x, y int) int { return y - x })
		f.anchors[a] = slices.Compact(f.anchors[a])
	}
	return f
}

func (f *finder) add(s shape) {
	if f.shapes == nil {
		f.shapes, f.anchors = make(map[string][]shape), make(map[anchor][]int)
	}
	prefix := s.template.Prefix
	if slices.ContainsFunc(f.shapes[prefix], func(o shape) bool { return o.template == s.template }) {
		return
	}
	f.shapes[prefix] = append(f.shapes[prefix], s)
	a := anchor([]byte(prefix[:secrets.MinPrefix]))
	f.anchors[a] = append(f.anchors[a], len(prefix))
	f.first[prefix[0]] = true
	f.longest = max(f.longest, len(prefix))
}

// next returns the first placeholder of s that begins at or after from. own
// are the shaped placeholders of the sandbox that s comes from.
func (f *finder) next(s string, from int, own map[string]*credential) (hit, bool) {
	n, found := f.nextName(s, from)
	if f.shapes == nil {
		return n, found
	}
	end := len(s)
	if found {
		end = n.start + 1 // only one that begins before is of interest
	}
	if h, ok := f.nextShape(s, from, end, own); ok {
		return h, true
	}
	return n, found
}

// nextName finds $NAME and ${NAME}. The name is the longest run of letters,
// digits and underscores, so that $API_KEY is no part of $API_KEY_2.
func (f *finder) nextName(s string, from int) (hit, bool) {
	for from < len(s) {
		i := strings.IndexByte(s[from:], '$')
		if i < 0 {
			return hit{}, false
		}
		i += from
		if name, end := nameAt(s, i); name != "" {
			if c := f.names[name]; c != nil {
				return hit{start: i, end: end, cred: c}, true
			}
		}
		from = i + 1
	}
	return hit{}, false
}

// nameAt returns the name of a placeholder whose dollar sign is s[i], and
// where it ends; "" when there is none.
func nameAt(s string, i int) (name string, end int) {
	begin := i + 1
	braced := begin < len(s) && s[begin] == '{'
	if braced {
		begin++
	}
	end = begin
	for end < len(s) && word(s[end]) {
		end++
	}
	name = s[begin:end]
	if !braced {
		return name, end
	}
	if end == len(s) || s[end] != '}' {
		return "", 0
	}
	return name, end + 1
}

func word(b byte) bool { return alnum(b) || b == '_' }

func alnum(b byte) bool {
	return b-'0' < 10 || (b|0x20)-'a' < 26
}

// nextShape finds a shaped placeholder that begins in s[from:end].
//
// A random part is a long run of letters and digits, so every MinRand-th byte
// is looked at until one stands in such a run, and only the run and what is
// before it are searched.
func (f *finder) nextShape(s string, from, end int, own map[string]*credential) (hit, bool) {
	if f.dense {
		return f.shapeIn(s, from, end, own)
	}
	searched := from
	for i := from + secrets.MinRand - 1; i < len(s); i += secrets.MinRand {
		if !alnum(s[i]) {
			continue
		}
		left, right := i, i+1
		for left > searched && alnum(s[left-1]) {
			left--
		}
		for right < len(s) && alnum(s[right]) {
			right++
		}
		if right-left >= secrets.MinRand {
			begin := max(searched, left-f.longest)
			if begin >= end {
				return hit{}, false
			}
			if h, ok := f.shapeIn(s, begin, min(right, end), own); ok {
				return h, true
			}
			searched = right
		}
		i = right
	}
	return hit{}, false
}

// shapeIn tries every byte of s[from:end] as the beginning of a shape.
func (f *finder) shapeIn(s string, from, end int, own map[string]*credential) (hit, bool) {
	for i := from; i < end && i+secrets.MinPrefix <= len(s); i++ {
		if !f.first[s[i]] {
			continue
		}
		for _, n := range f.anchors[anchor([]byte(s[i:i+secrets.MinPrefix]))] {
			if i+n > len(s) {
				continue
			}
			for _, sh := range f.shapes[s[i:i+n]] {
				if h, ok := f.shapeAt(s, i, sh, own); ok {
					return h, true
				}
			}
		}
	}
	return hit{}, false
}

func (f *finder) shapeAt(s string, i int, sh shape, own map[string]*credential) (hit, bool) {
	end := i + sh.template.Len()
	if end > len(s) {
		return hit{}, false
	}
	if sh.fixed != nil {
		inWord := i > 0 && word(s[i-1]) || end < len(s) && word(s[end])
		return hit{start: i, end: end, cred: sh.fixed}, !inWord
	}
	text := s[i:end]
	if c := own[text]; c != nil {
		return hit{start: i, end: end, cred: c}, true
	}
	begin := i + len(sh.template.Prefix)
	for j := begin; j < begin+sh.template.Rand; j++ {
		if !alnum(s[j]) {
			return hit{}, false
		}
	}
	if !sh.template.Genuine(text, f.key) {
		return hit{}, false
	}
	return hit{start: i, end: end, other: true}, true
}

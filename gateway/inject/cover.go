package inject

import "strings"

// Cover returns a text of a sandbox as it may be recorded: with the values
// that are held, and their encodings, covered. A text that shows one when its
// escapes are read is covered as a whole.
func (g *Guard) Cover(text string) string {
	s := g.out.text
	if s == nil || len(text) < s.shortest {
		return text
	}
	var b []byte
	each(s, text, func(_, start, end int) {
		if b == nil {
			b = []byte(text)
		}
		fill(b[start:end])
	})
	if b != nil {
		text = string(b)
	}
	if plain := unescape(text); plain != text {
		found := false
		each(s, plain, func(int, int, int) { found = true })
		if found {
			return strings.Repeat(string(filler), len(text))
		}
	}
	return text
}

// CoverName is Cover for a name, in which a value may also stand in another
// case and spread over labels. The last two labels stay, if they show nothing.
func (g *Guard) CoverName(name string) string {
	if g.Name(name) == nil {
		return g.Cover(name)
	}
	labels := strings.Split(name, ".")
	if kept := strings.Join(labels[max(0, len(labels)-2):], "."); len(labels) > 2 && g.Name(kept) == nil {
		return "***." + kept
	}
	return "***"
}

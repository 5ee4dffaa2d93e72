package secrets

import "strings"

// coverFrom is the length from which a value is known wherever it stands, in
// bytes: a shorter one stands in texts by chance.
const coverFrom = 8

// Cover returns a text with every value in it covered that is held, where it
// stands as it is. Lengths stay.
func (s *Store) Cover(text string) string {
	covered := []byte(text)
	for _, h := range s.Held() {
		v := h.Value.Reveal()
		if len(v) < coverFrom {
			continue
		}
		for from := 0; ; from += len(v) {
			i := strings.Index(text[from:], v)
			if i < 0 {
				break
			}
			from += i
			copy(covered[from:], strings.Repeat("*", len(v)))
		}
	}
	return string(covered)
}

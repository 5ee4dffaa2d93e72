package http1

import (
	"strings"
)

// escapeStray writes %25 for each percent sign that begins no escape.
func escapeStray(s string) string {
	path, query, hasQuery := strings.Cut(s, "?")
	if !stray(path) {
		return s
	}
	var b strings.Builder
	for i := range len(path) {
		b.WriteByte(path[i])
		if path[i] == '%' && !(i+2 < len(path) && hex(path[i+1]) && hex(path[i+2])) {
			b.WriteString("25")
		}
	}
	if hasQuery {
		b.WriteByte('?')
		b.WriteString(query)
	}
	return b.String()
}

func stray(path string) bool {
	for i := range len(path) {
		if path[i] == '%' && !(i+2 < len(path) && hex(path[i+1]) && hex(path[i+2])) {
			return true
		}
	}
	return false
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

package audit

import (
	"bytes"
	"encoding/json"
)

// members calls fn for each member of the object that b is, as far as it is
// one, until fn returns false. It takes the compact form that the log writes;
// names and values are as they stand there. It reports whether b was read to its
// end.
func members(b []byte, fn func(name, value []byte) bool) bool {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return false
	}
	return inner(b[1:len(b)-1], fn)
}

// body calls fn for each member of a line that does not belong to its head.
func body(line []byte, fn func(name, value []byte) bool) bool {
	at := bytes.Index(line[:min(len(line), headRoom)], []byte(`,"kind":`))
	if at < 0 || line[len(line)-1] != '}' {
		return members(line, fn)
	}
	return inner(line[at+1:len(line)-1], fn)
}

// inner calls fn for each member of what stands between braces.
func inner(b []byte, fn func(name, value []byte) bool) bool {
	for len(b) > 0 {
		n := stringLen(b)
		if n < 2 || n >= len(b) || b[n] != ':' {
			return false
		}
		name := b[1 : n-1]
		b = b[n+1:]
		n = valueLen(b)
		if n <= 0 || !fn(name, b[:n]) {
			return false
		}
		b = b[n:]
		if len(b) > 0 {
			if b[0] != ',' || len(b) == 1 {
				return false
			}
			b = b[1:]
		}
	}
	return true
}

// stringLen is the length of the JSON string at the front of b with its
// quotes, 0 if there is none.
func stringLen(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		i += n + 1
		escapes := 0
		for j := i - 2; j > 0 && b[j] == '\\'; j-- {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
	return 0
}

// valueLen is the length of the JSON value at the front of b, 0 if there is
// none.
func valueLen(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		return stringLen(b)
	case '{', '[':
		depth := 0
		for i := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				n := stringLen(b[i:])
				if n == 0 {
					return 0
				}
				i += n - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		return 0
	}
	n := bytes.IndexAny(b, ",}]")
	if n < 0 {
		return len(b)
	}
	return n
}

// text is the string that the JSON value b is, "" if it is none.
func text(b []byte) string {
	if n := len(b); n >= 2 && b[0] == '"' && bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : n-1])
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		return ""
	}
	return s
}

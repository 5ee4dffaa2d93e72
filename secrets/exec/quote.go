package exec

import (
	"bytes"
	"strconv"
	"strings"
)

const (
	maxQuoted = 200 // bytes of standard error in an error, before escaping
	minKey    = 20  // letters and digits in a row that may be a key
	minWord   = 4   // bytes of a word of the output that is kept out
	ellipsis  = "…" // stands for what is left out
)

// quote returns the last line of a failed command's standard error for its
// error message, escaped and capped. A word that the command also wrote to
// its output, and a run of characters long enough to be a key, are left out,
// so that a command that traces itself gives nothing away.
func quote(stderr, stdout []byte) string {
	line := string(bytes.TrimSpace(stderr))
	if i := strings.LastIndexAny(line, "\r\n"); i >= 0 {
		line = line[i+1:]
	}
	if line == "" {
		return ""
	}
	for _, word := range strings.FieldsFunc(string(stdout), func(r rune) bool {
		return r <= ' ' || strings.ContainsRune(`"'{}:,`, r)
	}) {
		if len(word) >= minWord {
			line = strings.ReplaceAll(line, word, ellipsis)
		}
	}
	line = hideKeys(line)
	if len(line) > maxQuoted {
		line = strings.ToValidUTF8(line[:maxQuoted], "") + ellipsis
	}
	text := strings.Trim(strconv.QuoteToASCII(line), `"`)
	return ": " + strings.ReplaceAll(text, `\u2026`, ellipsis)
}

// hideKeys replaces every run of minKey and more letters, digits, '-', '_',
// '+' and '=' that holds a digit.
func hideKeys(line string) string {
	var b strings.Builder
	for i := 0; i < len(line); {
		end, digit := i, false
		for end < len(line) && keyByte(line[end]) {
			digit = digit || line[end] >= '0' && line[end] <= '9'
			end++
		}
		switch {
		case end-i >= minKey && digit:
			b.WriteString(ellipsis)
		case end == i:
			end++
			b.WriteString(line[i:end])
		default:
			b.WriteString(line[i:end])
		}
		i = end
	}
	return b.String()
}

func keyByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("-_+=", c) >= 0
}

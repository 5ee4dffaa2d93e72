package inject

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"slices"
	"strings"
)

const (
	// minRaw is the shortest value that is looked for, in bytes: a shorter one
	// would be found everywhere.
	minRaw = 4
	// minEncoded is the shortest encoded form that is looked for, in bytes.
	minEncoded = 8
)

// encodings returns the forms in which a value shows: as it is, in base64 at
// each of the three places in a group where it can begin, in hexadecimal,
// and escaped for URLs, JSON and HTML in the ways that differ from it.
func encodings(value string) []string {
	if len(value) < minRaw {
		return nil
	}
	out := []string{value}
	add := func(form string) {
		if len(form) >= minEncoded && !slices.Contains(out, form) {
			out = append(out, form)
		}
	}
	for phase := range 3 {
		form := base64Phase(value, phase)
		add(form)
		add(strings.NewReplacer("+", "-", "/", "_").Replace(form))
	}
	add(hex.EncodeToString([]byte(value)))
	add(strings.ToUpper(hex.EncodeToString([]byte(value))))
	for _, form := range []string{escape(value), url.QueryEscape(value), url.PathEscape(value)} {
		add(form)
		add(lowerHex(form))
	}
	plain := jsonEscape(value)
	add(plain)
	add(strings.ReplaceAll(plain, "/", `\/`))
	add(strings.NewReplacer("&", `\u0026`, "<", `\u003c`, ">", `\u003e`).Replace(plain))
	add(strings.NewReplacer("&", `\u0026`, "<", `\u003C`, ">", `\u003E`, "'", `\u0027`).Replace(plain))
	add(jsonASCII(plain))
	add(html.EscapeString(value))
	add(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;").Replace(value))
	add(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(value))
	return out
}

// base64Phase returns what of the base64 of a longer text in which value
// begins phase bytes after the beginning of a group depends on value alone.
func base64Phase(value string, phase int) string {
	enc := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", phase) + value))
	// Each digit holds 6 bits: the first whole one after the 8·phase bits
	// before, and the last whole one.
	first := (8*phase + 5) / 6
	last := 8 * (phase + len(value)) / 6
	return enc[first:last]
}

// lowerHex returns a percent-encoded text with its escapes in lower case.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

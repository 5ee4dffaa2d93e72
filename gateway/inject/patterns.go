package inject

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// minRaw is the shortest value that is looked for, in bytes: a shorter one
	// would be found everywhere.
	minRaw = 4
	// maxLoose is the longest value that is looked for escaped, in bytes.
	maxLoose = 8 << 10
)

// encodings returns the forms in which a value shows as they are: itself, its
// base64 at each of the three places in a group where it can begin, its
// hexadecimal, and itself in UTF-16 and in a form with pluses for spaces. What
// is escaped, or broken into lines, looseForms has.
func encodings(value string) []string {
	if len(value) < minRaw {
		return nil
	}
	out := []string{value}
	add := func(form string) {
		if len(form) >= minRaw && !slices.Contains(out, form) {
			out = append(out, form)
		}
	}
	for _, form := range base64Forms(value) {
		add(form)
	}
	add(hex.EncodeToString([]byte(value)))
	add(strings.ToUpper(hex.EncodeToString([]byte(value))))
	if strings.Contains(value, " ") {
		form := url.QueryEscape(value)
		add(form)
		add(lowerHex(form))
	}
	if wide := utf16Form(value); wide != "" {
		add(wide)
	}
	return out
}

// looseForms returns the forms of a value that are found when bytes of them
// are escaped: itself and its base64, which may also be broken into lines.
func looseForms(value string, owner int) []looseValue {
	if len(value) < minRaw || len(value) > maxLoose {
		return nil
	}
	out := []looseValue{{text: value, owner: owner}}
	for _, form := range base64Forms(value) {
		if len(form) >= minRaw {
			out = append(out, looseValue{text: form, owner: owner, wrapped: true})
		}
	}
	return out
}

// utf16Form returns a value of ASCII in UTF-16, what of it is the same in both
// orders of bytes; "" for other values.
func utf16Form(value string) string {
	b := make([]byte, 0, 2*len(value))
	for i := range len(value) {
		if value[i] >= utf8.RuneSelf {
			return ""
		}
		b = append(b, value[i], 0)
	}
	return string(b[:len(b)-1])
}

// base64Forms returns the base64 of a value in both alphabets.
func base64Forms(value string) []string {
	var out []string
	for phase := range 3 {
		form := base64Phase(value, phase)
		for _, f := range []string{form, strings.NewReplacer("+", "-", "/", "_").Replace(form)} {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
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

package inject

import (
	"strings"
	"unicode/utf8"
)

// unit is what an escape in a text stands for.
type unit struct {
	b    [utf8.UTFMax]byte
	n    int  // how many bytes of b
	size int  // how many bytes of the text; 0: there is no escape
	cut  bool // the text ends inside what may be an escape, or a longer one than size says
}

const (
	// maxEscape is the longest escape of a byte that is known, in bytes: a
	// number in HTML may begin with zeros.
	maxEscape = 32
	// maxNamed is the longest such escape by a name, in bytes.
	maxNamed = len("&DiacriticalGrave;")
	// maxPlain is the longest escape that is none of HTML, in bytes of text for
	// a byte of what it stands for.
	maxPlain = len(`\u002b`)
)

// isEscape says whether a byte begins escapes.
func isEscape(c byte) bool { return c == '%' || c == '\\' || c == '&' }

// unescapeAt reads the escape that begins at text[i], as URLs (%2B), JSON and
// its like (\u002b, \x2b, \/) and HTML (&#43;, &#x2b;, &plus;) have them, in
// any case.
func unescapeAt[T string | []byte](text T, i int) unit {
	switch text[i] {
	case '%':
		return hexUnit(text, i, 1, 2, true)
	case '\\':
		return backslash(text, i)
	case '&':
		return entity(text, i)
	}
	return unit{}
}

// hexUnit reads digits hexadecimal digits behind the lead bytes of an escape:
// a byte, or a character.
func hexUnit[T string | []byte](text T, i, lead, digits int, isByte bool) unit {
	value := 0
	for k := range digits {
		at := i + lead + k
		if at >= len(text) {
			return unit{cut: true}
		}
		d := unhex(text[at])
		if d > 15 {
			return unit{}
		}
		value = value<<4 | int(d)
	}
	u := unit{size: lead + digits}
	if isByte {
		u.b[0], u.n = byte(value), 1
		return u
	}
	return u.character(rune(value))
}

func (u unit) character(r rune) unit {
	u.n = utf8.EncodeRune(u.b[:], r)
	return u
}

func backslash[T string | []byte](text T, i int) unit {
	if i+1 >= len(text) {
		return unit{cut: true}
	}
	c := text[i+1]
	switch c {
	case '/', '"', '\\', '\'':
		return unit{b: [4]byte{c}, n: 1, size: 2}
	case 'n':
		return unit{b: [4]byte{'\n'}, n: 1, size: 2}
	case 'r':
		return unit{b: [4]byte{'\r'}, n: 1, size: 2}
	case 't':
		return unit{b: [4]byte{'\t'}, n: 1, size: 2}
	case 'x':
		return hexUnit(text, i, 2, 2, false)
	case 'u':
		u := hexUnit(text, i, 2, 4, false)
		if u.size > 0 && text[i+2]|0x20 == 'd' && unhex(text[i+3]) >= 8 {
			return surrogates(text, i)
		}
		return u
	}
	return unit{}
}

// surrogates reads a character of JSON that takes two escapes (RFC 8259,
// section 7).
func surrogates[T string | []byte](text T, i int) unit {
	r := rune(0)
	for k := range 12 {
		if i+k >= len(text) {
			return unit{cut: true}
		}
		c := text[i+k]
		switch k % 6 {
		case 0:
			if c != '\\' {
				return unit{}
			}
		case 1:
			if c != 'u' {
				return unit{}
			}
		default:
			if unhex(c) > 15 {
				return unit{}
			}
			r = r<<4 | rune(unhex(c))
		}
	}
	high, low := r>>16, r&0xffff
	if high < 0xd800 || high > 0xdbff || low < 0xdc00 || low > 0xdfff {
		return unit{}
	}
	return unit{size: 12}.character(0x10000 + (high-0xd800)<<10 + low - 0xdc00)
}

// entity reads a character reference of HTML: by name with its semicolon, by
// number with or without.
func entity[T string | []byte](text T, i int) unit {
	if i+1 < len(text) && text[i+1] == '#' {
		return numbered(text, i)
	}
	end := i + 1
	for ; end < len(text) && end-i < maxNamed && text[end] != ';'; end++ {
		if !alnum(text[end]) {
			return unit{}
		}
	}
	if end == len(text) && end-i < maxNamed {
		return unit{cut: beginsName(string(text[i+1:]))}
	}
	if end >= len(text) || text[end] != ';' || end == i+1 {
		return unit{}
	}
	c := named(string(text[i+1 : end]))
	if c == "" {
		return unit{}
	}
	u := unit{n: len(c), size: end + 1 - i}
	copy(u.b[:], c)
	return u
}

// numbered reads a reference by number. One that the text ends with may go on:
// it is cut, and stands for a character all the same if nothing follows.
func numbered[T string | []byte](text T, i int) unit {
	from, base := i+2, rune(10)
	if from < len(text) && text[from]|0x20 == 'x' {
		from, base = from+1, 16
	}
	r, at := rune(0), from
	for ; at < len(text) && at-i < maxEscape; at++ {
		d := rune(unhex(text[at]))
		if d >= base {
			break
		}
		r = min(r*base+d, utf8.MaxRune+1)
	}
	if at-i == maxEscape || r > utf8.MaxRune {
		return unit{}
	}
	u := unit{cut: at == len(text)}
	if from == at || r == 0 {
		return u
	}
	if !u.cut && text[at] == ';' {
		at++
	}
	u.size = at - i
	return u.character(r)
}

// beginsName says whether a name of named may begin so. Only the long ones are
// told from other words: text is held back for them.
func beginsName(text string) bool {
	const short = len("NewLine")
	return len(text) <= short || strings.HasPrefix("UnderBar", text) || strings.HasPrefix("VerticalLine", text) || strings.HasPrefix("DiacriticalGrave", text)
}

// named returns what a name of HTML stands for that is of ASCII; "" for other
// names.
func named(name string) string {
	switch name {
	case "amp", "AMP":
		return "&"
	case "lt", "LT":
		return "<"
	case "gt", "GT":
		return ">"
	case "quot", "QUOT":
		return `"`
	case "apos":
		return "'"
	case "plus":
		return "+"
	case "sol":
		return "/"
	case "equals":
		return "="
	case "num":
		return "#"
	case "excl":
		return "!"
	case "dollar":
		return "$"
	case "percnt":
		return "%"
	case "lpar":
		return "("
	case "rpar":
		return ")"
	case "ast", "midast":
		return "*"
	case "comma":
		return ","
	case "period":
		return "."
	case "colon":
		return ":"
	case "semi":
		return ";"
	case "quest":
		return "?"
	case "commat":
		return "@"
	case "lsqb", "lbrack":
		return "["
	case "bsol":
		return `\`
	case "rsqb", "rbrack":
		return "]"
	case "Hat":
		return "^"
	case "lowbar", "UnderBar":
		return "_"
	case "grave", "DiacriticalGrave":
		return "`"
	case "lcub", "lbrace":
		return "{"
	case "verbar", "vert", "VerticalLine":
		return "|"
	case "rcub", "rbrace":
		return "}"
	case "Tab":
		return "\t"
	case "NewLine":
		return "\n"
	case "fjlig":
		return "fj"
	}
	return ""
}

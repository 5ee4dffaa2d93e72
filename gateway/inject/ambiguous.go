package inject

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// Why a placeholder may stand in another field than the gateway reads.
const (
	doubtCharset     = "the charset of the body is neither UTF-8 nor US-ASCII"
	doubtHeader      = "a header of its part can be read in two ways"
	doubtDisposition = "the Content-Disposition of its part can be read in two ways; it takes name, and nothing else"
	doubtType        = "the Content-Type of its part can be read in two ways, or is one that has parts or another charset"
	doubtNested      = "a part of the body is multipart itself"
	doubtDelimiter   = "a line before it begins like the delimiter of the parts"
	doubtSemicolon   = "a semicolon stands before it, where some servers take the value to end; write it as %3B"
)

// param is a parameter of a header.
type param struct{ name, value string } // the name in lower case

// plainParams returns the parameters of a Content-Type or Content-Disposition
// (RFC 2045, section 5.1). It is not ok what servers may read otherwise: names
// in pieces or in another charset (RFC 2231), a name twice, a name within
// another parameter, backslashes in quotes, and whatever breaks the grammar.
func plainParams(text string) (list []param, ok bool) { return plainParamsBut(text, "") }

// plainParamsBut is plainParams that takes one more name, in lower case, which
// may say that its value is in another charset.
func plainParamsBut(text, starred string) (list []param, ok bool) {
	media, rest, more := strings.Cut(text, ";")
	first, second, _ := strings.Cut(strings.Trim(media, " \t"), "/")
	if !isToken(first) || second != "" && !isToken(second) || strings.HasSuffix(strings.Trim(media, " \t"), "/") {
		return nil, false
	}
	for more {
		if rest = strings.Trim(rest, " \t"); rest == "" {
			break // a semicolon at the end
		}
		var p param
		if p, rest, ok = plainParam(rest, starred); !ok {
			return nil, false
		}
		for _, o := range list {
			if o.name == p.name || holds(o, p.name) || holds(p, o.name) {
				return nil, false
			}
		}
		list = append(list, p)
		rest = strings.TrimLeft(rest, " \t")
		if more = rest != ""; more && rest[0] != ';' {
			return nil, false
		}
		rest = strings.TrimPrefix(rest, ";")
	}
	return list, true
}

// plainParam reads a parameter from the beginning of a text.
func plainParam(text, starred string) (p param, rest string, ok bool) {
	name, rest, ok := strings.Cut(text, "=")
	p.name = strings.ToLower(name)
	if !ok || !isToken(name) || strings.IndexByte(name, '*') >= 0 && p.name != starred {
		return param{}, "", false
	}
	if quoted, found := strings.CutPrefix(rest, `"`); found {
		p.value, rest, ok = strings.Cut(quoted, `"`)
		return p, rest, ok && strings.IndexByte(p.value, '\\') < 0 && !controls(p.value)
	}
	n := strings.IndexAny(rest, "; \t")
	if n < 0 {
		n = len(rest)
	}
	p.value = rest[:n]
	return p, rest[n:], isToken(p.value)
}

// holds says whether a server that searches the header for a parameter may
// find it in p, which is another one.
func holds(p param, name string) bool {
	switch name {
	case "boundary", "charset":
		return strings.Contains(p.name, name) || strings.Contains(strings.ToLower(p.value), name)
	}
	return false // a part's name has no other beside it than "filename", see partDoubt
}

// isToken says whether s is a token of RFC 2045.
func isToken(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' || strings.IndexByte(`()<>@,;:\"/[]?=`, s[i]) >= 0 {
			return false
		}
	}
	return s != ""
}

// controls says whether a text has control characters.
func controls(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// plainType says whether the type of a body can be read in one way only.
func plainType(h http.Header) bool {
	lines := h["Content-Type"]
	if len(lines) != 1 {
		return len(lines) == 0
	}
	_, ok := plainParams(lines[0])
	return ok
}

// partDoubt says why the part with these headers may be read otherwise than
// as the field that the gateway takes it for; "" if it is that to everybody.
func partDoubt(h textproto.MIMEHeader) string { return partDoubtBut(h, "") }

// partDoubtBut is partDoubt where a parameter of Content-Disposition that is in
// another charset is no doubt.
func partDoubtBut(h textproto.MIMEHeader, starred string) string {
	for name, lines := range h {
		if !isToken(name) || name[0] == '-' || len(lines) > 1 || controls(strings.ReplaceAll(lines[0], "\t", " ")) {
			return doubtHeader
		}
	}
	if text := h.Get("Content-Disposition"); text != "" {
		list, ok := plainParamsBut(text, starred)
		for _, p := range list {
			ok = ok && (p.name == "name" || p.name == "filename" || p.name == starred)
		}
		if !ok {
			return doubtDisposition
		}
	}
	text := h.Get("Content-Type")
	if text == "" {
		return ""
	}
	list, ok := plainParams(text)
	for _, p := range list {
		ok = ok && (p.name != "charset" || unicodeCharset(p.value))
	}
	if lower := strings.ToLower(text); !ok || strings.HasPrefix(lower, "multipart/") || strings.HasPrefix(lower, "message/") {
		return doubtType
	}
	return ""
}

// nests says whether a part has parts of its own, in which servers may read on
// beyond its end.
func nests(h textproto.MIMEHeader) bool {
	for name, lines := range h {
		if strings.HasPrefix(strings.ToLower(name), "content-type") && strings.Contains(strings.ToLower(strings.Join(lines, ",")), "multipart") {
			return true
		}
	}
	return false
}

// unicodeCharset says whether a charset is UTF-8, by its name or the one that
// the WHATWG's Encoding Standard has beside it, or a part of it.
func unicodeCharset(charset string) bool {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii":
		return true
	}
	return false
}

// delimiterLine finds a line that begins like a delimiter of parts in a text
// that comes in pieces.
type delimiterLine struct {
	delimiter []byte // "--" and the boundary
	seen      []byte // the end of what came before, as long as the delimiter
}

// begin starts a text.
func (d *delimiterLine) begin() { d.seen = append(d.seen[:0], '\n') }

// find returns where in a piece the first such line's delimiter ends, -1 if
// there is none. A line ends with whatever is not printable ASCII.
func (d *delimiterLine) find(piece []byte) int {
	before := len(d.seen)
	text := append(d.seen, piece...)
	defer func() { d.seen = append(d.seen[:0], text[max(0, len(text)-len(d.delimiter)):]...) }()
	for from := 1; from < len(text); {
		i := bytes.Index(text[from:], d.delimiter)
		if i < 0 {
			return -1
		}
		if at := from + i; text[at-1] < ' ' || text[at-1] > '~' {
			return at + len(d.delimiter) - before
		}
		from += i + 1
	}
	return -1
}

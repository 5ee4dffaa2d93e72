package policy

import (
	"strings"
)

// Path is the normal form of a request's path, in which it is matched: its
// segments, percent-decoded once, without one trailing slash. It refers to
// the text as sent, which is never changed. The zero value is "/".
type Path struct {
	raw      string // as sent, between the first slash and one trailing slash
	asterisk bool   // the target of OPTIONS *
	slash    bool   // some segment holds an encoded slash
	params   bool   // some segment holds a semicolon
}

// NormalPath reads a path as it was sent: escaped, without the query.
//
// A path is ambiguous when an origin might read it differently: a dot segment
// (also in front of a semicolon), an encoded dot, a backslash or an encoded
// one, "//", an encoded slash, a control character or an encoded one, an
// escape that is none, one that decodes to another escape, or bytes that are
// not UTF-8. A path whose only fault is an encoded slash is ambiguous and its
// EncodedSlash is true; any other ambiguous path is the zero Path.
func NormalPath(raw string) (p Path, ambiguous bool) {
	switch raw {
	case "*":
		return Path{asterisk: true}, false
	case "", "/":
		return Path{}, false
	}
	if raw[0] != '/' || raw == "//" {
		return Path{}, true
	}
	p.raw = strings.TrimSuffix(raw[1:], "/")
	for w := p.walk(false, false); w.more; {
		sc := segmentScan{}
		if !sc.scan(w.next()) {
			return Path{}, true
		}
		p.slash = p.slash || sc.slash
		p.params = p.params || sc.params
	}
	return p, p.slash
}

// EncodedSlash reports whether a segment holds an encoded slash.
func (p Path) EncodedSlash() bool { return p.slash }

// String returns the normal form as text: each segment with only those bytes
// escaped that must be.
func (p Path) String() string {
	if p.asterisk {
		return "*"
	}
	if p.raw == "" {
		return "/"
	}
	var b strings.Builder
	for w := p.walk(false, false); w.more; {
		b.WriteByte('/')
		for seg := w.next(); seg != ""; {
			var c byte
			c, seg, _, _ = nextByte(seg)
			if c <= ' ' || c >= 0x7f || strings.IndexByte("\"#%/<>?[]^{|}`", c) >= 0 {
				const hex = "0123456789ABCDEF"
				b.Write([]byte{'%', hex[c>>4], hex[c&15]})
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}

// segments walks over the raw segments of a path.
type segments struct {
	rest  string
	more  bool // next has another segment
	split bool // an encoded slash divides as a plain one does
	strip bool // a segment ends at its semicolon, where some servers read parameters
}

func (p Path) walk(split, strip bool) segments {
	return segments{rest: p.raw, more: p.raw != "", split: split, strip: strip}
}

// next returns the next segment, still escaped. It must not be called when
// more is false.
func (w *segments) next() string {
	seg, skip := w.rest, 0
	for i := range len(w.rest) {
		c := w.rest[i]
		if c == '/' {
			skip = 1
		} else if c == '%' && w.split && escapes(w.rest[i:], '/') {
			skip = 3
		}
		if skip > 0 {
			seg = w.rest[:i]
			w.rest = w.rest[i+skip:]
			break
		}
	}
	w.more = skip > 0
	if w.strip {
		for i := range len(seg) {
			if seg[i] == ';' || seg[i] == '%' && escapes(seg[i:], ';') {
				return seg[:i]
			}
		}
	}
	return seg
}

// nextByte takes one decoded byte from the front of an escaped segment, which
// is not empty. ok is false for an escape that is none.
func nextByte(seg string) (c byte, rest string, escaped, ok bool) {
	if seg[0] != '%' {
		return seg[0], seg[1:], false, true
	}
	if len(seg) < 3 || !isHex(seg[1]) || !isHex(seg[2]) {
		return '%', seg[1:], false, false
	}
	return unhex(seg[1])<<4 | unhex(seg[2]), seg[3:], true, true
}

// escapes reports whether s begins with the escape of c.
func escapes(s string, c byte) bool {
	got, _, escaped, ok := nextByte(s)
	return ok && escaped && got == c
}

// sameSegment reports whether an escaped segment decodes to want.
func sameSegment(seg, want string) bool {
	for seg != "" {
		if want == "" {
			return false
		}
		var c byte
		if c, seg, _, _ = nextByte(seg); c != want[0] {
			return false
		}
		want = want[1:]
	}
	return want == ""
}

// decodeSegment returns a segment that has been scanned without escapes.
func decodeSegment(seg string) string {
	if strings.IndexByte(seg, '%') < 0 {
		return seg
	}
	b := make([]byte, 0, len(seg))
	for seg != "" {
		var c byte
		c, seg, _, _ = nextByte(seg)
		b = append(b, c)
	}
	return string(b)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

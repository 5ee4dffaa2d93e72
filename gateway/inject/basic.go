package inject

import (
	"encoding/base64"
	"strings"
)

// basic is a decoded Basic credential (RFC 7617).
type basic struct {
	scheme     string // as sent
	user, pass string
	colon      bool // without one the whole is user
}

// isBasic says whether the value of a header is of the Basic scheme, and
// returns the scheme as sent and the encoded credential.
func isBasic(value string) (scheme, encoded string, ok bool) {
	const name = "basic"
	if len(value) <= len(name) || value[0]|0x20 != 'b' || !strings.EqualFold(value[:len(name)], name) {
		return "", "", false
	}
	rest := value[len(name):]
	if rest[0] != ' ' && rest[0] != '\t' {
		return "", "", false
	}
	return value[:len(name)], strings.Trim(rest, " \t"), true
}

// decodeBasic decodes a Basic credential, with or without padding and in
// either alphabet. ok is false when it is not base64.
func decodeBasic(scheme, encoded string) (basic, bool) {
	b, err := alphabet(encoded).DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return basic{}, false
	}
	d := basic{scheme: scheme}
	d.user, d.pass, d.colon = strings.Cut(string(b), ":")
	return d, true
}

func alphabet(encoded string) *base64.Encoding {
	if strings.ContainsAny(encoded, "-_") {
		return base64.RawURLEncoding
	}
	return base64.RawStdEncoding
}

// String returns the header value that says b.
func (b basic) String() string {
	text := b.user
	if b.colon {
		text += ":" + b.pass
	}
	return b.scheme + " " + base64.StdEncoding.EncodeToString([]byte(text))
}

// alignments decodes what is not quite base64 as a lenient reader might: what
// is no digit of the alphabet is passed over, and decoding begins at each of
// the four digits that can begin a group.
func alignments(encoded string) [4]string {
	digits := strings.Map(func(r rune) rune {
		switch {
		case r == '-':
			return '+'
		case r == '_':
			return '/'
		case r < 0x80 && alnum(byte(r)), r == '+', r == '/':
			return r
		}
		return -1
	}, encoded)
	var out [4]string
	for i := range out {
		if i < len(digits) {
			part := digits[i:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			b, _ := base64.RawStdEncoding.DecodeString(part)
			out[i] = string(b)
		}
	}
	return out
}

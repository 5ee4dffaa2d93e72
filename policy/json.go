package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// jsonKind is what a JSON value is.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonBool
	jsonNumber
	jsonString
	jsonArray
	jsonObject
)

// jsonValue is a JSON value. Of numbers and booleans only the kind is kept, and
// of what lies deeper than anybody looks too: the list of a batch, and the
// members of a message and of its params.
type jsonValue struct {
	kind    jsonKind
	text    string // of a string, decoded
	list    []jsonValue
	members []jsonMember
}

type jsonMember struct {
	key   string
	value jsonValue
}

// maxJSONDepth bounds how deep values may be nested: parsers differ in what
// they take.
const maxJSONDepth = 100

// readJSON reads one JSON text (RFC 8259) that every parser reads alike. What
// two of them could take for different values is an error: bytes that are not
// UTF-8, halves of surrogate pairs, a key that an object has twice, anything
// behind the value.
func readJSON(data []byte) (jsonValue, error) {
	switch {
	case !utf8.Valid(data):
		return jsonValue{}, errors.New("is not UTF-8")
	case strings.HasPrefix(string(data[:min(3, len(data))]), "\ufeff"):
		return jsonValue{}, errors.New("begins with a byte order mark")
	}
	r := jsonReader{text: string(data)}
	r.blank()
	if r.text == "" {
		return jsonValue{}, errors.New("is empty")
	}
	v, err := r.value(0)
	if err != nil {
		return jsonValue{}, err
	}
	if r.blank(); r.text != "" {
		return jsonValue{}, errors.New("has something behind its JSON value")
	}
	return v, nil
}

// jsonReader holds what is left to be read.
type jsonReader struct{ text string }

var errNoJSON = errors.New("is not JSON")

func (r *jsonReader) blank() { r.text = strings.TrimLeft(r.text, " \t\r\n") }

// next takes a byte if it is c.
func (r *jsonReader) next(c byte) bool {
	if r.text == "" || r.text[0] != c {
		return false
	}
	r.text = r.text[1:]
	return true
}

func (r *jsonReader) value(depth int) (jsonValue, error) {
	if depth > maxJSONDepth {
		return jsonValue{}, fmt.Errorf("is nested deeper than %d levels", maxJSONDepth)
	}
	if r.text == "" {
		return jsonValue{}, errNoJSON
	}
	switch c := r.text[0]; {
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.array(depth)
	case c == '"':
		s, err := r.str()
		return jsonValue{kind: jsonString, text: s}, err
	case c == '-' || isDigit(c):
		return jsonValue{kind: jsonNumber}, r.number()
	}
	for word, kind := range map[string]jsonKind{"null": jsonNull, "true": jsonBool, "false": jsonBool} {
		if rest, ok := strings.CutPrefix(r.text, word); ok {
			r.text = rest
			return jsonValue{kind: kind}, nil
		}
	}
	return jsonValue{}, errNoJSON
}

func (r *jsonReader) object(depth int) (jsonValue, error) {
	v := jsonValue{kind: jsonObject}
	seen := map[string]bool{}
	r.next('{')
	r.blank()
	for first := true; !r.next('}'); first = false {
		if !first && !r.next(',') {
			return v, errNoJSON
		}
		r.blank()
		key, err := r.str()
		if err != nil {
			return v, err
		}
		if seen[key] {
			return v, fmt.Errorf("has the key %s twice", shownWord(key))
		}
		seen[key] = true
		r.blank()
		if !r.next(':') {
			return v, errNoJSON
		}
		r.blank()
		x, err := r.value(depth + 1)
		if err != nil {
			return v, err
		}
		if depth <= 2 {
			v.members = append(v.members, jsonMember{key, x})
		}
		r.blank()
	}
	return v, nil
}

func (r *jsonReader) array(depth int) (jsonValue, error) {
	v := jsonValue{kind: jsonArray}
	r.next('[')
	r.blank()
	for first := true; !r.next(']'); first = false {
		if !first && !r.next(',') {
			return v, errNoJSON
		}
		r.blank()
		x, err := r.value(depth + 1)
		if err != nil {
			return v, err
		}
		if depth == 0 {
			if len(v.list) == maxBodyItems {
				return v, errManyItems
			}
			v.list = append(v.list, x)
		}
		r.blank()
	}
	return v, nil
}

// number reads a number by the letter: parsers differ in what they take
// besides.
func (r *jsonReader) number() error {
	r.next('-')
	if !r.next('0') && !r.digits() {
		return errNoJSON
	}
	if r.next('.') && !r.digits() {
		return errNoJSON
	}
	if r.next('e') || r.next('E') {
		if !r.next('+') {
			r.next('-')
		}
		if !r.digits() {
			return errNoJSON
		}
	}
	return nil
}

func (r *jsonReader) digits() bool {
	n := 0
	for n < len(r.text) && isDigit(r.text[n]) {
		n++
	}
	r.text = r.text[n:]
	return n > 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// str reads a string and undoes its escapes.
func (r *jsonReader) str() (string, error) {
	if !r.next('"') {
		return "", errNoJSON
	}
	var b strings.Builder
	for {
		i := strings.IndexFunc(r.text, func(c rune) bool { return c == '"' || c == '\\' || c < ' ' })
		if i < 0 {
			return "", errNoJSON
		}
		b.WriteString(r.text[:i])
		c := r.text[i]
		r.text = r.text[i+1:]
		switch c {
		case '"':
			return b.String(), nil
		case '\\':
			x, err := r.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(x)
		default:
			return "", errors.New("has a control character in a string")
		}
	}
}

// escape reads what follows a backslash.
func (r *jsonReader) escape() (rune, error) {
	if r.text == "" {
		return 0, errNoJSON
	}
	c := r.text[0]
	r.text = r.text[1:]
	if c != 'u' {
		i := strings.IndexByte(`"\/bfnrt`, c)
		if i < 0 {
			return 0, errNoJSON
		}
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	x, ok := r.unit()
	if !ok {
		return 0, errNoJSON
	}
	if x < 0xd800 || x > 0xdfff {
		return x, nil
	}
	if x > 0xdbff || !strings.HasPrefix(r.text, `\u`) {
		return 0, errHalf
	}
	r.text = r.text[2:]
	y, ok := r.unit()
	if !ok || y < 0xdc00 || y > 0xdfff {
		return 0, errHalf
	}
	return 0x10000 + (x-0xd800)<<10 + (y - 0xdc00), nil
}

var errHalf = errors.New("has half of a surrogate pair in a string")

// unit reads four hexadecimal digits.
func (r *jsonReader) unit() (rune, bool) {
	if len(r.text) < 4 {
		return 0, false
	}
	var x rune
	for i := range 4 {
		if !isHex(r.text[i]) {
			return 0, false
		}
		x = x<<4 | rune(unhex(r.text[i]))
	}
	r.text = r.text[4:]
	return x, true
}

// member returns the value of a key. A key that some parser takes for it,
// because it does not look at case, is an error.
func (v *jsonValue) member(key string) (value *jsonValue, err error) {
	for i := range v.members {
		switch m := &v.members[i]; {
		case m.key == key:
			value = &m.value
		case strings.EqualFold(m.key, key):
			return nil, fmt.Errorf("has the key %s, which some read as %q", shownWord(m.key), key)
		}
	}
	return value, nil
}

// maxShownWord is how much of a word from a body a message repeats.
const maxShownWord = 64

// shownWord quotes a word from a body, so that it can stand in a message and
// a log.
func shownWord(s string) string {
	if len(s) > maxShownWord {
		s = s[:maxShownWord] + "..."
	}
	return fmt.Sprintf("%+q", s)
}

package inject

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxDepth = 512  // of nesting
	maxField = 1024 // bytes of a name that is looked at; a longer one is no field of a secret
)

// jsonBody goes through JSON texts (RFC 8259), one after another, and holds
// them to the grammar of structure and strings, so that a reader cannot see
// other fields in them than it does.
type jsonBody struct {
	src   *bufio.Reader
	text  *texter
	stack []byte   // '{' or '['
	names []string // of the value that comes next, one for each '{' of stack
	state jsonState
}

type jsonState uint8

const (
	wantValue jsonState = iota
	wantValueOrEnd
	wantNameOrEnd
	wantName
	wantColon
	wantCommaOrEnd
	inValueString
)

func newJSONBody(src io.Reader, t *texter) *jsonBody {
	return &jsonBody{src: bufio.NewReaderSize(src, bodyChunk), text: t}
}

func (j *jsonBody) next(out *bytes.Buffer) error {
	for out.Len() < bodyChunk {
		if j.state == inValueString {
			if err := j.value(out); err != nil {
				return err
			}
			continue
		}
		c, err := j.src.ReadByte()
		if err == io.EOF {
			if len(j.stack) > 0 {
				return malformed("JSON")
			}
			return io.EOF
		}
		if err != nil {
			return err
		}
		if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
			out.WriteByte(c)
			continue
		}
		if err := j.token(c, out); err != nil {
			return err
		}
	}
	return nil
}

// token takes a byte that begins a token.
func (j *jsonBody) token(c byte, out *bytes.Buffer) error {
	switch {
	case c == '"' && (j.state == wantName || j.state == wantNameOrEnd):
		return j.name(out)
	case c == '"' && (j.state == wantValue || j.state == wantValueOrEnd):
		out.WriteByte(c)
		j.text.begin(place{kind: inBody, media: j.text.media, field: j.names}, jsonEscape)
		j.state = inValueString
		return nil
	case (c == '{' || c == '[') && (j.state == wantValue || j.state == wantValueOrEnd):
		if len(j.stack) == maxDepth {
			return malformed("JSON: it is nested too deep")
		}
		j.stack = append(j.stack, c)
		j.state = wantValueOrEnd
		if c == '{' {
			j.names = append(j.names, "")
			j.state = wantNameOrEnd
		}
	case c == '}' && (j.state == wantNameOrEnd || j.state == wantCommaOrEnd) && j.top() == '{':
		j.names = j.names[:len(j.names)-1]
		j.stack = j.stack[:len(j.stack)-1]
		j.done()
	case c == ']' && (j.state == wantValueOrEnd || j.state == wantCommaOrEnd) && j.top() == '[':
		j.stack = j.stack[:len(j.stack)-1]
		j.done()
	case c == ':' && j.state == wantColon:
		j.state = wantValue
	case c == ',' && j.state == wantCommaOrEnd:
		j.state = wantValue
		if j.top() == '{' {
			j.state = wantName
		}
	case (alnum(c) || c == '-') && (j.state == wantValue || j.state == wantValueOrEnd):
		return j.literal(c, out)
	default:
		return malformed("JSON")
	}
	out.WriteByte(c)
	return nil
}

func (j *jsonBody) top() byte {
	if len(j.stack) == 0 {
		return 0
	}
	return j.stack[len(j.stack)-1]
}

// done ends a value.
func (j *jsonBody) done() {
	j.state = wantCommaOrEnd
	if len(j.stack) == 0 {
		j.state = wantValue // another text may follow
	}
}

// literal copies a number, true, false or null.
func (j *jsonBody) literal(c byte, out *bytes.Buffer) error {
	const longest = 1024
	for range longest {
		out.WriteByte(c)
		next, err := j.src.ReadByte()
		if err == io.EOF {
			j.done()
			return nil
		}
		if err != nil {
			return err
		}
		if !alnum(next) && next != '.' && next != '-' && next != '+' {
			j.done()
			return j.src.UnreadByte()
		}
		c = next
	}
	return malformed("JSON: a number is too long")
}

// name copies the name of a member and keeps it.
func (j *jsonBody) name(out *bytes.Buffer) error {
	j.text.begin(place{kind: inBody, fixed: true}, jsonEscape)
	name := make([]byte, 0, 32)
	out.WriteByte('"')
	for {
		raw, decoded, end, err := j.char()
		if err != nil {
			return err
		}
		if end {
			break
		}
		if len(name) <= maxField {
			name = append(name, decoded...)
		}
		j.text.add(raw, decoded...)
		if j.text.full() {
			if err := j.text.flush(out, false); err != nil {
				return err
			}
		}
	}
	if err := j.text.flush(out, true); err != nil {
		return err
	}
	out.WriteByte('"')
	j.names[len(j.names)-1] = string(name)
	j.state = wantColon
	return nil
}

// value copies a part of a string, or the rest of it.
func (j *jsonBody) value(out *bytes.Buffer) error {
	for !j.text.full() {
		if n := j.run(); n > 0 {
			text, _ := j.src.Peek(n)
			j.text.plain(text)
			_, _ = j.src.Discard(n)
			continue
		}
		raw, decoded, end, err := j.char()
		if err != nil {
			return err
		}
		if end {
			if err := j.text.flush(out, true); err != nil {
				return err
			}
			out.WriteByte('"')
			j.done()
			return nil
		}
		j.text.add(raw, decoded...)
	}
	return j.text.flush(out, false)
}

// run returns how many bytes that stand for themselves have come.
func (j *jsonBody) run() int {
	text, _ := j.src.Peek(j.src.Buffered())
	for i, c := range text {
		if c == '"' || c == '\\' || c < 0x20 {
			return i
		}
	}
	return len(text)
}

// char reads one character of a string: its bytes as they came and as UTF-8.
func (j *jsonBody) char() (raw, decoded []byte, end bool, err error) {
	c, err := j.src.ReadByte()
	if err != nil {
		return nil, nil, false, truncated(err)
	}
	switch {
	case c == '"':
		return nil, nil, true, nil
	case c < 0x20:
		return nil, nil, false, malformed("JSON")
	case c != '\\':
		one := []byte{c}
		return one, one, false, nil
	}
	c, err = j.src.ReadByte()
	if err != nil {
		return nil, nil, false, truncated(err)
	}
	if i := bytes.IndexByte([]byte(`"\/bfnrt`), c); i >= 0 {
		return []byte{'\\', c}, []byte{"\"\\/\b\f\n\r\t"[i]}, false, nil
	}
	if c != 'u' {
		return nil, nil, false, malformed("JSON")
	}
	return j.unicode()
}

// unicode reads what follows \u, and the second half of a surrogate pair.
func (j *jsonBody) unicode() (raw, decoded []byte, end bool, err error) {
	raw = []byte(`\u`)
	r, err := j.hex(&raw)
	if err != nil {
		return nil, nil, false, err
	}
	if utf16.IsSurrogate(r) {
		if peek, _ := j.src.Peek(2); string(peek) == `\u` {
			_, _ = j.src.Discard(2)
			raw = append(raw, `\u`...)
			low, err := j.hex(&raw)
			if err != nil {
				return nil, nil, false, err
			}
			r = utf16.DecodeRune(r, low)
		} else {
			r = utf8.RuneError
		}
	}
	return raw, utf8.AppendRune(nil, r), false, nil
}

func (j *jsonBody) hex(raw *[]byte) (rune, error) {
	var digits [4]byte
	if _, err := io.ReadFull(j.src, digits[:]); err != nil {
		return 0, truncated(err)
	}
	*raw = append(*raw, digits[:]...)
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		return 0, malformed("JSON")
	}
	return rune(n), nil
}

// truncated is the error of a body that ends, or fails, in a string.
func truncated(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return malformed("JSON")
	}
	return err
}

// jsonEscape returns s as it stands between the quotes of a JSON string.
func jsonEscape(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return string(bytes.TrimSuffix(b.Bytes()[1:], []byte("\"\n")))
}

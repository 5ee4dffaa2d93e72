package http1

import (
	"bytes"
	"strings"
)

// Violation is why a head is refused.
type Violation struct {
	TooLarge  bool   // over a bound (RFC 6585, section 5)
	Host      bool   // the Host field or an absolute target cannot be read as one authority
	Malformed bool   // wrong, but not in a way in which two servers could frame it differently
	Detail    string // for the record: what is wrong, without bytes of the request
}

// Error returns the detail.
func (v *Violation) Error() string { return v.Detail }

// Head is what the guard saw of one request.
type Head struct {
	Method string
	// Target is the origin-form path and query as sent, byte for byte; "*"
	// for the asterisk-form.
	Target string
	// Upgrade is set on the handshake of a WebSocket (RFC 6455, section 4.1).
	// Bytes after it are not read as HTTP: answer with 101, or close.
	Upgrade bool
	// Scheme and Authority are set when the target was in absolute-form.
	Scheme, Authority string
	// Violation is set on a head that was refused. The request which the
	// server then sees is a stand-in: answer it with an error and close.
	Violation *Violation
}

// checkLines refuses line ends other than CRLF (RFC 9112, section 2.2) and
// control characters, as soon as they arrive.
func checkLines(b []byte) *Violation {
	for i, c := range b {
		switch {
		case c == '\n':
			if i == 0 || b[i-1] != '\r' {
				return &Violation{Detail: "bare LF in the request head"}
			}
		case c == '\r':
			if i+1 < len(b) && b[i+1] != '\n' {
				return &Violation{Detail: "bare CR in the request head"}
			}
		case c < 0x20 && c != '\t' || c == 0x7f:
			return &Violation{Detail: "control character in the request head"}
		}
	}
	return nil
}

type framing struct {
	length             int64
	chunked            bool
	upgrade, websocket bool // named in Connection and in Upgrade
}

// parseHead reads one whole head, its empty line included, and returns the
// bytes that the server is to read in its place: the same, with the target in
// origin-form and with stray percent signs escaped, which net/url refuses.
func parseHead(b []byte, maxFields int) (Head, framing, []byte, *Violation) {
	lines := b
	first, rest, _ := bytes.Cut(lines, []byte("\r\n"))
	h, version, v := parseRequestLine(string(first))
	if v != nil {
		return Head{}, framing{}, nil, v
	}
	f, v := parseFields(rest[:len(rest)-2], version, maxFields)
	if v != nil {
		return Head{}, framing{}, nil, v
	}
	h.Upgrade = f.websocket && f.upgrade && h.Method == "GET"
	if h.Upgrade && (f.length > 0 || f.chunked) {
		return Head{}, framing{}, nil, &Violation{Detail: "WebSocket handshake with a body"}
	}
	if h.Method == "CONNECT" {
		// The server would read the target as an authority. It is refused
		// in any case; origin-form keeps the request parseable.
		h.Authority, h.Target = h.Target, "/"
	}
	shown := escapeStray(h.Target)
	deliver := make([]byte, 0, len(b)+len(shown)-len(h.Target)+8)
	deliver = append(deliver, h.Method...)
	if h.Method == "CONNECT" {
		deliver = append(deliver[:0], "GET"...)
	}
	deliver = append(deliver, ' ')
	deliver = append(deliver, shown...)
	deliver = append(deliver, " HTTP/1."...)
	deliver = append(deliver, byte('0'+version), '\r', '\n')
	deliver = append(deliver, rest...)
	return h, f, deliver, nil
}

// parseRequestLine reads method, target and version (RFC 9112, section 3).
func parseRequestLine(line string) (Head, int, *Violation) {
	bad := func(s string) (Head, int, *Violation) { return Head{}, 0, &Violation{Detail: s} }
	method, rest, ok := strings.Cut(line, " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !token(method) {
		return bad("malformed request line")
	}
	version := 0
	switch proto {
	case "HTTP/1.1":
		version = 1
	case "HTTP/1.0":
	default:
		return bad("request line names no version of HTTP/1")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return bad("illegal character in the request target")
		}
	}
	h := Head{Method: method, Target: target}
	switch {
	case target == "":
		return bad("empty request target")
	case method == "CONNECT":
	case target[0] == '/':
	case target == "*":
		if method != "OPTIONS" {
			return bad("asterisk target with a method other than OPTIONS")
		}
	default:
		scheme, after, ok := strings.Cut(target, "://")
		if !ok {
			return bad("request target is neither a path nor an absolute URL")
		}
		cut := strings.IndexAny(after, "/?")
		h.Scheme, h.Authority, h.Target = strings.ToLower(scheme), after, "/"
		if cut >= 0 {
			h.Authority, h.Target = after[:cut], after[cut:]
			if after[cut] == '?' {
				h.Target = "/" + h.Target
			}
		}
		if h.Authority == "" {
			return Head{}, 0, &Violation{Host: true, Detail: "absolute request target without an authority"}
		}
	}
	return h, version, nil
}

// token says whether s is an RFC 9110 token (section 5.6.2).
func token(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return true
}

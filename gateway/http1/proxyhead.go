package http1

import (
	"bytes"
	"strings"
)

// Peek returns the head of the request that is being served, as Next does,
// without forgetting it.
func (g *Guard) Peek() (Head, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.heads) == 0 {
		return Head{}, false
	}
	return g.heads[0], true
}

// Connect is the head of a CONNECT request to a proxy (RFC 9110, section
// 9.3.6).
type Connect struct {
	Target string // as sent
	fields []byte
}

// ParseConnect reads the head of a CONNECT request, from its method to its
// empty line, as strictly as a Guard reads every other head.
func ParseConnect(b []byte, maxFields int) (Connect, *Violation) {
	if end := bytes.Index(b, []byte("\r\n\r\n")); end < 0 || end != len(b)-4 {
		return Connect{}, &Violation{Malformed: true, Detail: "the request head has no end"}
	}
	if maxFields <= 0 {
		maxFields = DefaultMaxFields
	}
	if v := checkLines(b[:len(b)-2]); v != nil {
		return Connect{}, v
	}
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	h, version, v := parseRequestLine(string(line))
	if v != nil {
		return Connect{}, v
	}
	if h.Method != "CONNECT" {
		return Connect{}, &Violation{Malformed: true, Detail: "the request is no CONNECT"}
	}
	fields := rest[:max(0, len(rest)-2)]
	f, v := parseFields(fields, version, maxFields)
	if v != nil {
		return Connect{}, v
	}
	if f.length > 0 || f.chunked {
		return Connect{}, &Violation{Detail: "CONNECT with a body"}
	}
	return Connect{Target: h.Target, fields: fields}, nil
}

// Values returns the values of a field, whose name is given in lower case.
func (c Connect) Values(lower string) []string {
	var out []string
	for line := range bytes.SplitSeq(c.fields, []byte("\r\n")) {
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && equalFold(name, lower) {
			out = append(out, strings.Trim(string(value), " \t"))
		}
	}
	return out
}

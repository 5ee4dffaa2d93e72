package http1

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// parseFields reads the field lines of a head, each with its CRLF, and the
// framing that they announce (RFC 9112, section 6).
func parseFields(b []byte, version, maxFields int) (framing, *Violation) {
	var (
		f              framing
		hosts, lengths int
		codings        int
		n              int
	)
	bad := func(s string) (framing, *Violation) { return framing{}, &Violation{Detail: s} }
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\r\n"))
		b = rest
		if n++; n > maxFields {
			return framing{}, &Violation{TooLarge: true, Detail: fmt.Sprintf("request has over %d header fields", maxFields)}
		}
		if line[0] == ' ' || line[0] == '\t' {
			return bad("folded header line (RFC 9112, section 5.2)")
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !token(string(name)) {
			return bad("malformed header field name")
		}
		switch {
		case equalFold(name, "host"):
			hosts++
			if v := checkHost(string(bytes.Trim(value, " "))); v != nil {
				return framing{}, v
			}
		case equalFold(name, "content-length"):
			lengths++
			length, ok := parseLength(strings.Trim(string(value), " "))
			if !ok || lengths > 1 {
				return bad("Content-Length is repeated or not a number")
			}
			f.length = length
		case equalFold(name, "transfer-encoding"):
			codings++
			if codings > 1 || !equalFold(bytes.Trim(value, " "), "chunked") {
				return bad("Transfer-Encoding is not exactly chunked")
			}
			f.chunked = true
		case equalFold(name, "expect"):
			// net/http answers any other without asking a handler.
			if !equalFold(bytes.Trim(value, " \t"), "100-continue") {
				return framing{}, &Violation{Malformed: true, Detail: "Expect is not exactly 100-continue"}
			}
		case equalFold(name, "trailer"):
			if hasToken(value, "transfer-encoding") || hasToken(value, "content-length") || hasToken(value, "trailer") {
				return bad("a framing field is announced as a trailer")
			}
		case equalFold(name, "connection"):
			f.upgrade = f.upgrade || hasToken(value, "upgrade")
		case equalFold(name, "upgrade"):
			f.websocket = f.websocket || hasToken(value, "websocket")
		}
	}
	switch {
	case hosts > 1:
		return framing{}, &Violation{Host: true, Detail: "more than one Host field"}
	case hosts == 0 && version == 1:
		return framing{}, &Violation{Host: true, Detail: "no Host field"}
	case f.chunked && lengths > 0:
		return bad("both Content-Length and Transfer-Encoding")
	case f.chunked && version == 0:
		return bad("Transfer-Encoding in HTTP/1.0")
	}
	return f, nil
}

// checkHost refuses what net/http would refuse without asking a handler.
// What the name means is for the gateway to say.
func checkHost(s string) *Violation {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>@\\^`{|}/?#", c) >= 0 {
			return &Violation{Host: true, Detail: "illegal character in Host"}
		}
	}
	return nil
}

// PeekHost returns the value of the Host field in the first bytes of a
// request, "" if its line is not whole. It is for the record only: nothing
// about the request has been judged.
func PeekHost(b []byte) string {
	for {
		line, rest, whole := bytes.Cut(b, []byte("\r\n"))
		if !whole || len(line) == 0 {
			return ""
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && equalFold(name, "host") {
			return strings.Trim(string(value), " \t")
		}
		b = rest
	}
}

func parseLength(s string) (int64, bool) {
	if s == "" || len(s) > 19 || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// hasToken says whether a comma separated list has the token.
func hasToken(value []byte, lower string) bool {
	for part := range bytes.SplitSeq(value, []byte(",")) {
		if equalFold(bytes.Trim(part, " \t"), lower) {
			return true
		}
	}
	return false
}

func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

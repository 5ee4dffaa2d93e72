package differential

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// parse reads what the gateway wrote on one connection, by the grammar of RFC
// 9112 without a leniency, and shares no code with what it judges. A request
// that breaks off is the last.
func parse(b []byte) ([]request, error) {
	var out []request
	rest := string(b)
	for rest != "" {
		head, after, whole := strings.Cut(rest, "\r\n\r\n")
		if !whole {
			return out, nil // its host may not have come either
		}
		r, framing, err := parseHead(head)
		if err != nil {
			return out, err
		}
		body, after, err := framing.read(after)
		r.Body, rest = body, after
		if errors.Is(err, errBrokenOff) {
			r.partial = true
			return append(out, r), nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
	return out, nil
}

var errBrokenOff = errors.New("the body broke off")

// framing is how a body is delimited.
type framing struct {
	length  int
	chunked bool
}

func parseHead(head string) (request, framing, error) {
	lines := strings.Split(head, "\r\n")
	for _, l := range lines {
		if strings.ContainsAny(l, "\r\n\x00") {
			return request{}, framing{}, fmt.Errorf("a line has a stray control character: %q", l)
		}
	}
	first := strings.Split(lines[0], " ")
	if len(first) != 3 || first[2] != "HTTP/1.1" || !token(first[0]) || first[1] == "" {
		return request{}, framing{}, fmt.Errorf("request line %q", lines[0])
	}
	r, f := request{Method: first[0], Target: first[1]}, framing{length: -1}
	hosts := 0
	for _, l := range lines[1:] {
		name, value, ok := strings.Cut(l, ":")
		if !ok || !token(name) {
			return request{}, framing{}, fmt.Errorf("field %q", l)
		}
		value = strings.Trim(value, " \t")
		switch strings.ToLower(name) {
		case "host":
			r.Host = value
			hosts++
		case "content-length":
			n, err := strconv.Atoi(value)
			if err != nil || f.length >= 0 || strconv.Itoa(n) != value || n < 0 {
				return request{}, framing{}, fmt.Errorf("field %q", l)
			}
			f.length = n
		case "transfer-encoding":
			if f.chunked || value != "chunked" {
				return request{}, framing{}, fmt.Errorf("field %q", l)
			}
			f.chunked = true
		}
	}
	if hosts != 1 || f.chunked && f.length >= 0 {
		return request{}, framing{}, fmt.Errorf("%d hosts, framing %v", hosts, f)
	}
	return r, f, nil
}

// read takes a body off the front of s.
func (f framing) read(s string) (body, rest string, err error) {
	if !f.chunked {
		n := max(f.length, 0)
		if n > len(s) {
			return s, "", errBrokenOff
		}
		return s[:n], s[n:], nil
	}
	for {
		line, after, whole := strings.Cut(s, "\r\n")
		if !whole {
			return body, "", errBrokenOff
		}
		n, err := strconv.ParseUint(line, 16, 31)
		if err != nil {
			return body, "", fmt.Errorf("chunk size %q", line)
		}
		if n == 0 {
			return trailers(body, after)
		}
		if len(after) < int(n)+2 {
			return body + after[:min(len(after), int(n))], "", errBrokenOff
		}
		if after[n:n+2] != "\r\n" {
			return body, "", fmt.Errorf("chunk without its end: %q", after[n:n+2])
		}
		body, s = body+after[:n], after[n+2:]
	}
}

func trailers(body, s string) (string, string, error) {
	for {
		line, after, whole := strings.Cut(s, "\r\n")
		switch name, _, ok := strings.Cut(line, ":"); {
		case !whole:
			return body, "", errBrokenOff
		case line == "":
			return body, after, nil
		case !ok || !token(name):
			return body, "", fmt.Errorf("trailer %q", line)
		}
		s = after
	}
}

func token(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

package audit

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
)

// Dimensions of the index: the first byte of a term.
const (
	dimSandbox       = 's' // name or ID
	dimVerdict       = 'v'
	dimReason        = 'r' // also the spared one of report mode
	dimHost          = 'h'
	dimKind          = 'k'
	dimSandboxReason = 'p' // sandbox, newline, reason: what is asked for together most
	dimAlert         = 'a' // the alert's name or the severity of what alerts
)

// maxTerm is the longest value that stands in the index by itself; of a longer
// one it has the hash.
const maxTerm = 200

// term is the key of a value in a dimension. Terms of the index end in a zero
// byte, which no value has.
func term(dim byte, value string) string {
	if len(value) > maxTerm || strings.IndexByte(value, 0) >= 0 {
		sum := sha256.Sum256([]byte(value))
		value = "#" + string(sum[:])
		value = strings.ReplaceAll(value, "\x00", "\x01")
	}
	return string(dim) + value + "\x00"
}

// lineFacts are what of a line the index knows: JSON values, as they stand in
// it.
type lineFacts struct {
	kind, verdict, host []byte
	reason, spared      []byte
	name, id            []byte // of the sandbox
	alerts              bool
}

// read takes the facts from a line.
func (f *lineFacts) read(line []byte) {
	var asked []byte
	body(line, func(name, v []byte) bool {
		switch string(name) {
		case "kind":
			f.kind = v
			f.alerts = string(v) == `"`+string(KindAlert)+`"`
		case "verdict":
			f.verdict = v
		case "reason":
			f.reason = v
		case "would":
			f.spared = only(v, "reason")
		case "sandbox":
			f.name, f.id = only(v, "name"), only(v, "id")
		case "host":
			f.host = v
		case "dns":
			asked = only(v, "qname")
		case "severity":
			f.alerts = f.alerts || string(v) == `"`+string(High)+`"` || string(v) == `"`+string(Critical)+`"`
		case "tls", "http", "upstream", "rule", "policy": // what is asked for stands before them
			return false
		}
		return true
	})
	// In a value the quotes of it have a backslash each.
	f.alerts = f.alerts || bytes.Contains(line, []byte(`,"alert":"`))
	if f.host == nil {
		f.host = asked
	}
}

// only returns the member of object with the name.
func only(object []byte, name string) (value []byte) {
	members(object, func(n, v []byte) bool {
		if string(n) == name {
			value = v
		}
		return value == nil
	})
	return value
}

// termCounts counts the terms of lines. It makes no garbage for what it has
// seen.
type termCounts struct {
	counts map[string]*uint64
	buf    []byte
	facts  lineFacts
}

// line counts the terms of one line.
func (c *termCounts) line(line []byte) {
	c.facts = lineFacts{}
	f := &c.facts
	f.read(line)
	c.value(dimKind, f.kind)
	c.value(dimVerdict, f.verdict)
	c.value(dimHost, f.host)
	if f.alerts {
		c.add(append(c.buf[:0], dimAlert, 0))
	}
	for _, r := range [][]byte{f.reason, f.spared} {
		c.value(dimReason, r)
	}
	for _, s := range [][]byte{f.name, f.id} {
		c.value(dimSandbox, s)
		for _, r := range [][]byte{f.reason, f.spared} {
			c.pair(s, r)
		}
	}
}

// value counts the term of a value in a dimension, none if it is absent.
func (c *termCounts) value(dim byte, v []byte) {
	raw, ok := simple(v)
	if !ok || len(raw) > maxTerm {
		if s := text(v); s != "" {
			if dim == dimHost {
				s = strings.ToLower(s)
			}
			c.add([]byte(term(dim, s)))
		}
		return
	}
	if len(raw) == 0 {
		return
	}
	b := append(append(c.buf[:0], dim), raw...)
	if dim == dimHost {
		lower(b[1:])
	}
	c.add(append(b, 0))
}

// pair counts the term of a sandbox and a reason together.
func (c *termCounts) pair(sandbox, reason []byte) {
	s, simpleS := simple(sandbox)
	r, simpleR := simple(reason)
	if !simpleS || !simpleR || len(s)+len(r) >= maxTerm {
		if s, r := text(sandbox), text(reason); s != "" && r != "" {
			c.add([]byte(term(dimSandboxReason, s+"\n"+r)))
		}
		return
	}
	if len(s) > 0 && len(r) > 0 {
		b := append(append(c.buf[:0], dimSandboxReason), s...)
		c.add(append(append(append(b, '\n'), r...), 0))
	}
}

func (c *termCounts) add(term []byte) {
	if n := c.counts[string(term)]; n != nil {
		*n++
	} else {
		if c.counts == nil {
			c.counts = make(map[string]*uint64)
		}
		n := uint64(1)
		c.counts[string(term)] = &n
	}
	if cap(term) > cap(c.buf) {
		c.buf = term[:0]
	}
}

// simple returns what is between the quotes of a JSON string without escapes
// and characters beyond ASCII, and whether v is one. Absent is "".
func simple(v []byte) (raw []byte, ok bool) {
	if len(v) == 0 {
		return nil, true
	}
	if len(v) < 2 || v[0] != '"' {
		return nil, false
	}
	raw = v[1 : len(v)-1]
	for _, ch := range raw {
		if !plain(ch) {
			return nil, false
		}
	}
	return raw, true
}

// lower makes ASCII letters small.
func lower(b []byte) {
	for i, ch := range b {
		if 'A' <= ch && ch <= 'Z' {
			b[i] = ch + 'a' - 'A'
		}
	}
}

// terms are those that every event has that f takes. None means that the index
// is of no use.
func (f Filter) terms() []string {
	var list []string
	add := func(dim byte, value string) {
		if value != "" {
			list = append(list, term(dim, value))
		}
	}
	switch {
	case slices.Contains(ErrorClasses(), f.Reason): // classes of errors are not in the index
		add(dimSandbox, f.Sandbox)
	case f.Sandbox != "" && f.Reason != "":
		add(dimSandboxReason, f.Sandbox+"\n"+f.Reason)
	default:
		add(dimSandbox, f.Sandbox)
		add(dimReason, f.Reason)
	}
	add(dimVerdict, f.Verdict)
	add(dimKind, f.Kind)
	if f.Blocked {
		add(dimVerdict, "deny")
	}
	if f.Host != "" && !strings.ContainsAny(f.Host, "*?") {
		if host := strings.ToLower(f.Host); !strings.ContainsAny(host, ":") && strings.Trim(host, "0123456789.") != "" {
			add(dimHost, host)
		}
	}
	if f.Alerts {
		list = append(list, term(dimAlert, ""))
	}
	return list
}

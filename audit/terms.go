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
	asked               []byte // stands for the host if there is none
	alerts              bool
}

// read takes the facts from a line.
func (f *lineFacts) read(line []byte) {
	body(line, f.member)
	f.alerts = f.alerts || alertNamed(line)
	if f.host == nil {
		f.host = f.asked
	}
}

// member takes what it says from one member of a line, and reports whether more
// may follow.
func (f *lineFacts) member(name, v []byte) bool {
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
		f.asked = only(v, "qname")
	case "severity":
		f.alerts = f.alerts || string(v) == `"`+string(High)+`"` || string(v) == `"`+string(Critical)+`"`
	case "tls", "http", "upstream", "rule", "policy": // what is asked for stands before them
		return false
	}
	return true
}

// alertNamed reports whether a line has an alert's name. Most have not, and end
// in an object or a list and the members that follow the name.
func alertNamed(line []byte) bool {
	b := bytes.TrimSuffix(line, []byte{'}'})
	b = trimID(trimID(b, `,"req":"`), `,"conn":"`)
	b = trimNumber(trimNumber(b, `,"gateway_ms":`), `,"duration_ms":`)
	if n := len(b); n > 0 && (b[n-1] == '}' || b[n-1] == ']') {
		return false
	}
	// In a value the quotes of it have a backslash each.
	return bytes.Contains(line, []byte(`,"alert":"`))
}

// trimID cuts a member off the end of b whose value is an ID.
func trimID(b []byte, name string) []byte {
	at := len(b) - idLen - 1
	if at < len(name) || string(b[at-len(name):at]) != name {
		return b
	}
	return b[:at-len(name)]
}

// trimNumber cuts a member off the end of b whose value is a number.
func trimNumber(b []byte, name string) []byte {
	at := len(b)
	for at > 0 && (b[at-1] == '.' || '0' <= b[at-1] && b[at-1] <= '9') {
		at--
	}
	if at < len(name) || string(b[at-len(name):at]) != name {
		return b
	}
	return b[:at-len(name)]
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
	counts  map[string]*termCount
	counted []*termCount // those that are not 0
	buf     []byte
	facts   lineFacts

	beginnings map[string]*beginning
	last       [4]*beginning // of the lines before
	turn       int
}

// termCount is how many lines have a term since it was last looked at, and in
// which blocks of the group it was then: a bit for each, the lowest of the first.
type termCount struct{ n, blocks uint64 }

// mark notes that what was counted is of the block with that number in its
// group, and begins to count anew.
func (c *termCounts) mark(block int) {
	c.settle()
	for _, x := range c.counted {
		x.n, x.blocks = 0, x.blocks|1<<block
	}
	c.counted = c.counted[:0]
}

// line counts the terms of one line.
func (c *termCounts) line(line []byte) {
	if b, host := c.begins(line); b != nil {
		b.lines++
		c.value(dimHost, host, 1)
		if !b.facts.alerts && alertNamed(line) {
			c.add(append(c.buf[:0], dimAlert, 0), 1)
		}
		return
	}
	c.facts = lineFacts{}
	c.facts.read(line)
	c.value(dimHost, c.facts.host, 1)
	c.common(&c.facts, 1)
}

// common counts the terms of n lines but for that of the host.
func (c *termCounts) common(f *lineFacts, n uint64) {
	c.value(dimKind, f.kind, n)
	c.value(dimVerdict, f.verdict, n)
	if f.alerts {
		c.add(append(c.buf[:0], dimAlert, 0), n)
	}
	for _, r := range [][]byte{f.reason, f.spared} {
		c.value(dimReason, r, n)
	}
	for _, s := range [][]byte{f.name, f.id} {
		c.value(dimSandbox, s, n)
		for _, r := range [][]byte{f.reason, f.spared} {
			c.pair(s, r, n)
		}
	}
}

// value counts the term of a value in a dimension for n lines, none if it is
// absent.
func (c *termCounts) value(dim byte, v []byte, n uint64) {
	raw, ok := simple(v)
	if !ok || len(raw) > maxTerm {
		if s := text(v); s != "" {
			if dim == dimHost {
				s = strings.ToLower(s)
			}
			c.add([]byte(term(dim, s)), n)
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
	c.add(append(b, 0), n)
}

// pair counts the term of a sandbox and a reason together.
func (c *termCounts) pair(sandbox, reason []byte, n uint64) {
	s, simpleS := simple(sandbox)
	r, simpleR := simple(reason)
	if !simpleS || !simpleR || len(s)+len(r) >= maxTerm {
		if s, r := text(sandbox), text(reason); s != "" && r != "" {
			c.add([]byte(term(dimSandboxReason, s+"\n"+r)), n)
		}
		return
	}
	if len(s) > 0 && len(r) > 0 {
		b := append(append(c.buf[:0], dimSandboxReason), s...)
		c.add(append(append(append(b, '\n'), r...), 0), n)
	}
}

func (c *termCounts) add(term []byte, n uint64) {
	have := c.counts[string(term)]
	if have == nil {
		if c.counts == nil {
			c.counts = make(map[string]*termCount)
		}
		have = &termCount{}
		c.counts[string(term)] = have
	}
	if have.n == 0 {
		c.counted = append(c.counted, have)
	}
	have.n += n
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

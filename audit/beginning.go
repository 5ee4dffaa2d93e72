package audit

import "bytes"

// beginning is how lines begin that say nothing in free words and differ only in what follows: from the kind
// to the sandbox. Its facts are read once for all of them.
type beginning struct {
	text  []byte // with what follows it, srcOpens
	facts lineFacts
	lines uint64 // that are not counted yet
}

// srcOpens follows a beginning. In a value its quotes have a backslash each,
// and no member of a member has that name and is an object.
const (
	srcOpens  = `,"src":{`
	hostOpens = `,"host":"`
)

// begins returns the beginning of a line and its host, or nil if the line has
// not both.
func (c *termCounts) begins(line []byte) (*beginning, []byte) {
	rest := afterHead(line)
	b := c.beginning(rest)
	if b == nil {
		return nil, nil
	}
	rest = rest[len(b.text):]
	at := bytes.Index(rest, []byte(hostOpens))
	if at < 0 {
		return nil, nil
	}
	host := rest[at+len(hostOpens)-1:]
	n := stringLen(host)
	if n == 0 {
		return nil, nil
	}
	return b, host[:n]
}

// afterHead returns what follows the head of a line as the log writes it, none
// if it is another.
func afterHead(line []byte) []byte {
	const seq = len(headTime) + timeLen + len(headID) + idLen + len(headSeq)
	const kind = len(headInstance) + idLen + len(headPrev) + 64 + len(`",`)
	at := seq
	for at < len(line) && '0' <= line[at] && line[at] <= '9' {
		at++
	}
	if at += kind; at > len(line) || !bytes.HasPrefix(line[at:], []byte(`"kind":`)) {
		return nil
	}
	return line[at:]
}

// beginning returns that of what follows the head of a line, or nil if it has
// none.
func (c *termCounts) beginning(rest []byte) *beginning {
	for _, b := range c.last {
		if b != nil && bytes.HasPrefix(rest, b.text) {
			return b
		}
	}
	at := bytes.Index(rest, []byte(srcOpens))
	if at < 0 {
		return nil
	}
	text := rest[:at+len(srcOpens)]
	b := c.beginnings[string(text)]
	if b == nil {
		if bytes.Contains(text, []byte(`,"message":"`)) {
			return nil // it may be of this line alone
		}
		b = &beginning{text: bytes.Clone(text)}
		if !inner(b.text[:at], b.facts.member) {
			return nil
		}
		if c.beginnings == nil {
			c.beginnings = make(map[string]*beginning)
		}
		c.beginnings[string(b.text)] = b
	}
	c.last[c.turn%len(c.last)] = b
	c.turn++
	return b
}

// settle counts the terms of what lines began with. A beginning that none had is
// forgotten.
func (c *termCounts) settle() {
	for text, b := range c.beginnings {
		if b.lines == 0 {
			delete(c.beginnings, text)
			continue
		}
		c.common(&b.facts, b.lines)
		b.lines = 0
	}
	c.last = [len(c.last)]*beginning{}
}

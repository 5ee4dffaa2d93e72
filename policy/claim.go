package policy

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// claim is the match block of one sandbox.
type claim struct {
	sandbox string
	match   Match
}

// Claim returns the sandbox whose match block binds traffic that came in on
// an interface from an address and a MAC address, either of which may be
// unknown ("" and the zero Addr).
func (s *Set) Claim(iface string, addr netip.Addr, mac string) (sandbox string, ok bool) {
	addr = addr.Unmap().WithZone("")
	for i := range s.claims {
		if s.claims[i].match.holds(iface, addr, mac) {
			return s.claims[i].sandbox, true
		}
	}
	return "", false
}

func (m *Match) empty() bool {
	return len(m.CIDRs) == 0 && len(m.Interfaces) == 0 && len(m.MACs) == 0
}

func (m *Match) holds(iface string, addr netip.Addr, mac string) bool {
	if m.empty() {
		return false
	}
	if len(m.CIDRs) > 0 && !slices.ContainsFunc(m.CIDRs, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return false
	}
	if len(m.MACs) > 0 && !slices.ContainsFunc(m.MACs, func(s string) bool { return strings.EqualFold(s, mac) }) {
		return false
	}
	return len(m.Interfaces) == 0 || slices.ContainsFunc(m.Interfaces, func(glob string) bool {
		ok, err := path.Match(glob, iface)
		return ok && err == nil && iface != ""
	})
}

// readClaims checks all match blocks and returns those that bind something.
func (c *compiler) readClaims() []claim {
	var out []claim
	for _, name := range sortedNames(c.sandboxes) {
		src := c.sandboxes[name].src
		c.checkMatch(src)
		if !src.Match.empty() {
			out = append(out, claim{sandbox: name, match: src.Match})
		}
	}
	for i := range out {
		c.yield()
		for j := range i {
			if out[i].match.overlaps(&out[j].match) {
				c.overlap(c.sandboxes[out[i].sandbox].src, c.sandboxes[out[j].sandbox].src)
			}
		}
	}
	return out
}

func (c *compiler) overlap(a, b *Sandbox) {
	first, second := a, b
	if comparePos(matchPos(b), matchPos(a)) < 0 {
		first, second = b, a
	}
	c.report(Problem{
		Pos:     matchPos(second),
		Related: []Pos{matchPos(first)},
		Summary: fmt.Sprintf("sandbox %q: its match could hold for the same traffic as that of sandbox %q", second.Name, first.Name),
		Detail:  "Which sandbox a packet belongs to must never be in doubt.",
		Hint:    "make a list that both give disjoint: cidrs, interfaces or macs",
	})
}

func matchPos(s *Sandbox) Pos {
	if s.Match.Pos != (Pos{}) {
		return s.Match.Pos
	}
	return s.Pos
}

// checkMatch reports what cannot match and puts the lists into normal form.
func (c *compiler) checkMatch(s *Sandbox) {
	m := &s.Match
	title := fmt.Sprintf("sandbox %q: match", s.Name)
	cidrs := make([]netip.Prefix, 0, len(m.CIDRs))
	for _, p := range m.CIDRs {
		if !p.IsValid() || p.Addr().Is4In6() {
			c.errorf(matchPos(s), "%s: address range %s is not a usable one", title, p)
			continue
		}
		cidrs = append(cidrs, p.Masked())
	}
	m.CIDRs = cidrs
	for _, glob := range m.Interfaces {
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			c.errorf(matchPos(s), "%s: interface %q is not a usable pattern", title, glob)
		}
	}
	macs := make([]string, 0, len(m.MACs))
	for _, mac := range m.MACs {
		if !isMAC(mac) {
			c.errorf(matchPos(s), "%s: mac %q is not six bytes in hexadecimal with colons", title, mac)
			continue
		}
		macs = append(macs, strings.ToLower(mac))
	}
	m.MACs = macs
}

func isMAC(s string) bool {
	if len(s) != 17 {
		return false
	}
	for i := range len(s) {
		if i%3 == 2 && s[i] != ':' || i%3 != 2 && !isHex(s[i]) {
			return false
		}
	}
	return true
}

// overlaps reports whether some traffic could be bound by both. It errs
// towards true.
func (m *Match) overlaps(o *Match) bool {
	return listsMeet(m.CIDRs, o.CIDRs, netip.Prefix.Overlaps) &&
		listsMeet(m.MACs, o.MACs, strings.EqualFold) &&
		listsMeet(m.Interfaces, o.Interfaces, globsMeet)
}

// listsMeet reports whether two lists have values in common; a list that was
// not given holds for everything.
func listsMeet[T any](a, b []T, meet func(T, T) bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	for _, x := range a {
		for _, y := range b {
			if meet(x, y) {
				return true
			}
		}
	}
	return false
}

// globsMeet reports whether some name could match both patterns. A character
// class counts as any character, so it errs towards true.
func globsMeet(a, b string) bool {
	x, y := globTokens(a), globTokens(b)
	// reach[j]: the tokens of x so far and the first j of y can be used up by
	// the same text.
	reach := make([]bool, len(y)+1)
	reach[0] = true
	for j := range y {
		reach[j+1] = reach[j] && y[j] == '*'
	}
	for _, t := range x {
		next := make([]bool, len(y)+1)
		next[0] = reach[0] && t == '*'
		for j, u := range y {
			switch {
			case t == '*' || u == '*':
				next[j+1] = reach[j+1] || next[j]
			case t == '?' || u == '?' || t == u:
				next[j+1] = reach[j]
			}
		}
		reach = next
	}
	return reach[len(y)]
}

// globTokens reads a pattern of path.Match into bytes, '*' and '?', where '?'
// stands for a class too and escaped bytes that look special.
func globTokens(s string) []byte {
	var out []byte
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
			out = append(out, '?')
		case '[':
			for i++; i < len(s) && s[i] != ']'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			out = append(out, '?')
		default:
			out = append(out, s[i])
		}
	}
	return out
}

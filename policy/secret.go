package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// secret is a Secret whose hosts have been read.
type secret struct {
	src   *Secret
	hosts []HostPattern
	used  bool // some rule injects it
	bad   bool // its hosts have errors, so nothing is said about what they cover
}

// covers reports whether one of the secret's patterns covers p.
func (s *secret) covers(p HostPattern) bool {
	return slices.ContainsFunc(s.hosts, func(h HostPattern) bool { return h.Covers(p) })
}

func (s *secret) matches(host string) bool {
	return slices.ContainsFunc(s.hosts, func(h HostPattern) bool { return h.Match(host) })
}

// secretName reports whether s is [A-Z][A-Z0-9_]{2,63}.
func secretName(s string) bool {
	return len(s) >= 3 && len(s) <= 64 && 'A' <= s[0] && s[0] <= 'Z' &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

func (c *compiler) readSecrets() {
	for i := range c.doc.Secrets {
		src := c.doc.Secrets[i]
		title := fmt.Sprintf("secret %q", src.Name)
		if first, ok := c.secrets[src.Name]; ok {
			c.duplicate(title, src.Pos, first.src.Pos)
			continue
		}
		if !secretName(src.Name) {
			c.errorf(src.Pos, "%s: a name is 3 to 64 of A to Z, 0 to 9 and _, and begins with a letter", title)
		}
		s := &secret{src: &src}
		c.secrets[src.Name] = s
		c.secretHosts(s, title)
		c.secretPlaces(s, title)
	}
}

func (c *compiler) secretHosts(s *secret, title string) {
	if len(s.src.Hosts) == 0 {
		c.errorf(s.src.Pos, "%s: has no hosts, so it could be sent nowhere", title)
		s.bad = true
	}
	hosts := make([]string, 0, len(s.src.Hosts))
	for _, text := range s.src.Hosts {
		if text == "*" {
			s.bad = true
			c.report(Problem{Pos: s.src.Pos, Summary: title + `: its hosts hold "*"`, Detail: "A secret goes to named hosts only.", Hint: "name each host that the secret is for", Attr: "hosts", Value: text})
			continue
		}
		p, err := ParseHostPattern(text, HostOptions{PublicSuffix: c.hostOptions.PublicSuffix})
		if err != nil {
			s.bad = true
			c.report(Problem{Pos: s.src.Pos, Summary: fmt.Sprintf("%s: %v", title, err), Hint: hostHint(text), Attr: "hosts", Value: text})
			continue
		}
		s.hosts = append(s.hosts, p)
		hosts = append(hosts, p.String())
	}
	s.src.Hosts = hosts
}

func (c *compiler) secretPlaces(s *secret, title string) {
	for _, h := range s.src.Headers {
		if !isToken(h) {
			c.errorf(s.src.Pos, "%s: %q is not the name of a header", title, h)
		}
	}
	if slices.Contains(s.src.Query, "") {
		c.errorf(s.src.Pos, "%s: a query parameter has no name", title)
	}
	if s.src.Body != nil && s.src.Body.Max < 0 {
		c.errorf(s.src.Pos, "%s: max of body is negative", title)
	}
	if s.src.TTL < 0 {
		c.errorf(s.src.Pos, "%s: ttl is negative", title)
	}
	if err := checkPlaceholder(s.src.Placeholder); err != nil {
		c.report(Problem{Pos: s.src.Pos, Summary: fmt.Sprintf("%s: placeholder %v", title, err), Attr: "placeholder", Value: s.src.Placeholder})
	}
}

// checkPlaceholder checks a placeholder's template: visible ASCII, long
// enough not to be met by chance, and {rand:N} the only braces in it.
func checkPlaceholder(t string) error {
	if t == "" {
		return nil
	}
	for i := range len(t) {
		if t[i] <= ' ' || t[i] >= 0x7f {
			return errors.New("holds a character that no header carries")
		}
	}
	length := len(t)
	for rest := t; ; {
		_, after, ok := strings.Cut(rest, "{rand:")
		if !ok {
			break
		}
		digits, tail, closed := strings.Cut(after, "}")
		n, err := strconv.Atoi(digits)
		if !closed || err != nil || n < 1 || n > 256 {
			return errors.New("has a {rand:N} whose N is not 1 to 256")
		}
		length += n - len("{rand:}") - len(digits)
		rest = tail
	}
	if length < 8 {
		return errors.New("is shorter than 8 characters")
	}
	return nil
}

// checkPlaceholders reports two secrets that ask for themselves by the same
// text. What holds {rand:N} differs by name.
func (c *compiler) checkPlaceholders() {
	first := map[string]*Secret{}
	for _, name := range c.secretNames() {
		src := c.secrets[name].src
		text := src.Placeholder
		if text == "" {
			text = "$" + src.Name
		}
		if strings.Contains(text, "{rand:") {
			continue
		}
		if other, ok := first[text]; ok {
			c.report(Problem{
				Pos:     src.Pos,
				Related: []Pos{other.Pos},
				Summary: fmt.Sprintf("secret %q: has the placeholder of secret %q", src.Name, other.Name),
				Hint:    "put {rand:36} into one of them",
			})
			continue
		}
		first[text] = src
	}
}

func (c *compiler) secretNames() []string {
	names := make([]string, 0, len(c.secrets))
	for name := range c.secrets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// warnUnusedSecrets tells of secrets that nothing injects.
func (c *compiler) warnUnusedSecrets() {
	for _, name := range c.secretNames() {
		if s := c.secrets[name]; !s.used && !s.src.Sink {
			c.report(Problem{Pos: s.src.Pos, Severity: Warning, Summary: fmt.Sprintf("secret %q: no rule injects it", name)})
		}
	}
}

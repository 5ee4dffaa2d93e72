package policy

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// HostOptions are what an org file may permit in host patterns. The zero
// value permits neither.
type HostOptions struct {
	AnyHost      bool // the pattern "*"
	PublicSuffix bool // "*." in front of a public suffix, such as "*.com"
}

type hostKind uint8

const (
	hostNone   hostKind = iota // matches nothing
	hostExact                  // one name or IP literal
	hostSuffix                 // any name below name, at any depth, never name itself
	hostAny                    // any name, no IP literal
)

// HostPattern is a set of hosts: one host, all names below a name, or all
// names. The zero value matches nothing.
type HostPattern struct {
	kind hostKind
	name string // canonical; "" for hostAny
}

// ParseHostPattern reads a host pattern of the policy language. A star stands
// for any number of labels, at the front and alone in its label.
func ParseHostPattern(s string, o HostOptions) (HostPattern, error) {
	if s == "*" {
		if !o.AnyHost {
			return HostPattern{}, errors.New(`pattern "*" needs any_host = true in the org file`)
		}
		return HostPattern{kind: hostAny}, nil
	}
	if suffix, ok := strings.CutPrefix(s, "*."); ok && !strings.Contains(suffix, "*") {
		name, err := CanonicalHost(suffix)
		switch {
		case err != nil:
			return HostPattern{}, fmt.Errorf("pattern %q: %w", s, err)
		case IsIP(name):
			return HostPattern{}, fmt.Errorf("pattern %q: an IP address has no names below it", s)
		}
		if ps, _ := publicsuffix.PublicSuffix(name); ps == name && !o.PublicSuffix {
			return HostPattern{}, fmt.Errorf("pattern %q: %s is a public suffix, under which anybody can register; it needs public_suffix = true in the org file", s, name)
		}
		return HostPattern{kind: hostSuffix, name: name}, nil
	}
	if strings.Contains(s, "*") {
		return HostPattern{}, starError(s)
	}
	if rest, ok := strings.CutPrefix(s, "."); ok {
		if name, err := CanonicalHost(rest); err == nil {
			return HostPattern{}, fmt.Errorf("pattern %q begins with a dot; write %q", s, "*."+name)
		}
	}
	name, err := CanonicalHost(s)
	if err != nil {
		return HostPattern{}, fmt.Errorf("pattern %q: %w", s, err)
	}
	return HostPattern{kind: hostExact, name: name}, nil
}

// starError proposes the wildcard that was probably meant.
func starError(s string) error {
	rest := strings.TrimLeft(s[strings.LastIndexByte(s, '*')+1:], ".")
	if name, err := CanonicalHost(rest); err == nil && !IsIP(name) {
		return fmt.Errorf("pattern %q: a star stands alone in the first label; write %q", s, "*."+name)
	}
	return fmt.Errorf("pattern %q: a star stands alone in the first label, as in %q", s, "*.a.example")
}

// Match reports whether a canonical host is in the set.
func (p HostPattern) Match(host string) bool {
	switch p.kind {
	case hostExact:
		return host == p.name
	case hostSuffix:
		n := len(host) - len(p.name)
		return n > 1 && host[n-1] == '.' && host[n:] == p.name && !IsIP(host)
	case hostAny:
		return host != "" && !IsIP(host)
	}
	return false
}

// Covers reports whether every host of other is in the set.
func (p HostPattern) Covers(other HostPattern) bool {
	switch other.kind {
	case hostExact:
		return p.Match(other.name)
	case hostSuffix:
		return p.kind == hostAny ||
			p.kind == hostSuffix && (p.name == other.name || p.Match(other.name))
	case hostAny:
		return p.kind == hostAny
	}
	return false
}

// Overlaps reports whether some host is in both sets.
func (p HostPattern) Overlaps(other HostPattern) bool {
	return p.Covers(other) || other.Covers(p)
}

// String returns the pattern as the policy language writes it.
func (p HostPattern) String() string {
	switch p.kind {
	case hostExact:
		return p.name
	case hostSuffix:
		return "*." + p.name
	case hostAny:
		return "*"
	}
	return ""
}

// narrower reports whether p is the more exact of two patterns that match one
// host: a host before a wildcard, a long suffix before a short one.
func (p HostPattern) narrower(other HostPattern) bool {
	if p.kind != other.kind {
		return p.kind < other.kind
	}
	return len(p.name) > len(other.name)
}

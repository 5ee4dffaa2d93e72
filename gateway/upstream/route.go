package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Target is where a decided attempt wants to go.
type Target struct {
	Sandbox string // lifecycle ID; connections are never shared between two
	Host    string // canonical name or IP literal
	Port    uint16

	// Addresses are the ranges that the rule names. When there are any, they
	// are all that may be dialled: a rule that says where its service lives
	// does not also mean the rest of the internet. Without any, all public
	// addresses may be dialled and no other. Documentation ranges and the
	// gateway's own addresses must be named like private ones.
	Addresses []netip.Prefix
	// Metadata admits cloud metadata addresses that Addresses names as well.
	Metadata bool

	// Certificate is shown to an upstream that asks for one; nil is none.
	// Connections with one are not used for requests without it.
	Certificate *tls.Certificate
}

// Route is a target with addresses that were checked for it, in the order in
// which they are to be dialled. It comes from Upstream.Route.
type Route struct {
	Target
	Addrs []netip.Addr
}

// maxAddrs bounds how many addresses of a name are dialled; all are checked.
const maxAddrs = 16

// Refusal is why a target may not be dialled.
type Refusal struct {
	Reason  string     // of the audit log's closed list
	Host    string     //
	Addr    netip.Addr // the address that was refused, if it was one; not for the sandbox
	Message string     // for the sandbox: never an address
}

// Error returns the reason and the message.
func (r *Refusal) Error() string { return "upstream: " + r.Reason + ": " + r.Message }

// Route finds the addresses of a target and checks every one: a single bad
// address refuses the whole answer, with a *Refusal. An answer that could not
// be had is an *Error of class dns.
//
// before is called exactly once before a question leaves, and not at all for
// a literal, a static host, a name in the cache, a name that is being asked
// for already, and a name that is never asked for. If it returns an error
// nothing is asked and Route returns that error.
func (u *Upstream) Route(ctx context.Context, t Target, before func() error) (Route, error) {
	addrs, err := u.addresses(ctx, t, before)
	if err != nil {
		return Route{}, u.failed(t, err)
	}
	checked, err := u.check(t, addrs, u.self())
	if err != nil {
		return Route{}, u.failed(t, err)
	}
	return Route{Target: t, Addrs: interleave(checked)}, nil
}

func (u *Upstream) addresses(ctx context.Context, t Target, before func() error) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(t.Host); err == nil {
		return []netip.Addr{a}, nil
	}
	if !validName(t.Host) {
		return nil, &Refusal{Reason: "bad_hostname", Host: t.Host, Message: "the name is not a host name"}
	}
	if addrs, ok := u.hosts[t.Host]; ok {
		return addrs, nil
	}
	if r := neverAsked(t.Host); r != nil {
		return nil, r
	}
	return u.resolver.resolve(ctx, t.Sandbox, t.Host, before)
}

// check returns the addresses as they are to be dialled, or why the first bad
// one refuses them all. own are the gateway's.
func (u *Upstream) check(t Target, addrs, own []netip.Addr) ([]netip.Addr, error) {
	if len(addrs) == 0 {
		return nil, &Error{Class: "dns", Detail: "no address"}
	}
	out := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		// A mapped public address is dialled as what it is; any other mapped
		// one stays as it came and is judged as a form that embeds.
		if a.Is4In6() && a.Zone() == "" && Classify(a, u.nat64) == Public {
			a = a.Unmap()
		}
		if reason, what := u.admit(t, a, own); reason != "" {
			return nil, &Refusal{Reason: reason, Host: t.Host, Addr: a, Message: what}
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, nil
}

// Check says with a *Refusal why one of addrs may not be dialled for t, now
// that the rule may be another than when they were looked up.
func (u *Upstream) Check(t Target, addrs []netip.Addr) error {
	_, err := u.check(t, addrs, u.self())
	return err
}

// admit returns "" for an address that may be dialled, or the reason and the
// message of its refusal.
func (u *Upstream) admit(t Target, a netip.Addr, own []netip.Addr) (reason, message string) {
	class := Classify(a, u.nat64)
	named := within(a, t.Addresses) && !class.never()
	if class == Embedded {
		e, _ := embedded(a, u.nat64)
		named = named && e.named(t.Addresses, t.Metadata)
	}
	switch {
	case class.never():
		return class.Reason(), hasAddress(class)
	case class == Metadata && !(named && t.Metadata):
		return class.Reason(), hasAddress(class)
	case class != Loopback && !named && slices.Contains(own, a.Unmap()):
		return "resolves_self", "the name has an address of the gateway itself"
	case class == Embedded && !named:
		return class.Reason(), hasAddress(class)
	case len(t.Addresses) > 0 && !named:
		return "address_not_in_rule", "the name has an address outside of the ranges that the rule names"
	case class != Public && !named:
		return class.Reason(), hasAddress(class) + ", which no rule names"
	}
	return "", ""
}

func hasAddress(c Class) string { return fmt.Sprintf("the name has a %s address", c) }

// interleave orders addresses for dialling: families take turns, the first
// family of the answer first (RFC 8305, section 4).
func interleave(addrs []netip.Addr) []netip.Addr {
	if len(addrs) == 1 {
		return addrs
	}
	var first, second []netip.Addr
	for _, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	out := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			out = append(out, first[i])
		}
		if i < len(second) {
			out = append(out, second[i])
		}
	}
	return out[:min(len(out), maxAddrs)]
}

// neverAsked returns the refusal of a name that no resolver is asked for: it
// means this machine or this link (RFC 6761, RFC 6762) or must not be asked
// for in public (RFC 7686). An operator who means one writes it into the
// static hosts.
func neverAsked(host string) *Refusal {
	last := host[strings.LastIndexByte(host, '.')+1:]
	switch last {
	case "localhost":
		return &Refusal{Reason: "resolves_loopback", Host: host, Message: "the name means the gateway itself"}
	case "local", "onion", "invalid":
		return &Refusal{Reason: "resolve_failed", Host: host, Message: "names under ." + last + " are never asked for"}
	}
	return nil
}

// validName reports whether a canonical name may go to a resolver. What the
// last label must not be is a number in any spelling: C libraries read
// 127.1, 0x7f.1 and 2130706433 as addresses.
func validName(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	var last string
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
		last = label
	}
	return !number(last)
}

// number reports whether s is digits only, or 0x and hexadecimal digits.
func number(s string) bool {
	digits := "0123456789"
	if rest, ok := strings.CutPrefix(s, "0x"); ok {
		s, digits = rest, "0123456789abcdef"
	}
	return strings.Trim(s, digits) == ""
}

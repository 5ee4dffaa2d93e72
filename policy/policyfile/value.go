package policyfile

import (
	"fmt"
	"math"
	"math/big"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// choice decodes a string that is one of a few words.
func (d *decoder) choice(name string, e hclsyntax.Expression, words ...string) (string, bool) {
	s, ok := d.string(name, e)
	if !ok {
		return "", false
	}
	return s, d.oneOf(name, element{s, e.Range()}, words)
}

// oneOf reports a word that is not among words.
func (d *decoder) oneOf(name string, x element, words []string) bool {
	if slices.Contains(words, x.value) {
		return true
	}
	diag := Diagnostic{Summary: fmt.Sprintf("%s cannot be %s", name, quote(x.value)), Hint: didYouMean(x.value, words)}
	if len(words) <= 6 {
		diag.Detail = fmt.Sprintf("It is %s.", oneOf(words))
	}
	d.fail(diag, x.at)
	return false
}

// instant decodes a time: RFC 3339, or a day, which is its first instant in
// UTC.
func (d *decoder) instant(name string, e hclsyntax.Expression) (time.Time, bool) {
	s, ok := literalString(e)
	if !ok {
		d.mismatch(e, name, "a time in quotes", `write a day ("2026-12-31") or an instant ("2026-12-31T18:00:00Z")`)
		return time.Time{}, false
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil && !t.IsZero() {
			return t.UTC(), true
		}
	}
	d.fail(Diagnostic{
		Summary: fmt.Sprintf("%s: %s is not a time", name, quote(s)),
		Hint:    `write a day ("2026-12-31", which begins at 00:00 UTC) or an instant ("2026-12-31T18:00:00Z")`,
	}, e.Range())
	return time.Time{}, false
}

// duration decodes a duration over zero.
func (d *decoder) duration(name string, e hclsyntax.Expression) (time.Duration, bool) {
	s, ok := literalString(e)
	if !ok {
		d.mismatch(e, name, "a duration in quotes", `write a number and a unit, such as "90s", "50m", "12h" or "30d"`)
		return 0, false
	}
	v, err := parseDuration(s)
	switch {
	case err != nil:
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s: %s is not a duration", name, quote(s)),
			Hint:    `write a number and a unit, such as "90s", "50m", "12h" or "30d"`,
		}, e.Range())
		return 0, false
	case v <= 0:
		d.fail(Diagnostic{Summary: name + " must be longer than zero", Hint: "leave it out for its default"}, e.Range())
		return 0, false
	}
	return v, true
}

// parseDuration is time.ParseDuration with whole days.
func parseDuration(s string) (time.Duration, error) {
	days, ok := strings.CutSuffix(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || n > 36500 {
		return 0, strconv.ErrRange
	}
	return time.Duration(n) * 24 * time.Hour, nil
}

// units are the units of a size, in bytes.
func units() map[string]int64 {
	return map[string]int64{
		"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}
}

// size decodes a number of bytes over zero: a number, or a number and a unit
// in a string.
func (d *decoder) size(name string, e hclsyntax.Expression) (int64, bool) {
	if _, ok := literalNumber(e); ok {
		return d.int(name, e, 1, math.MaxInt64)
	}
	s, ok := literalString(e)
	if !ok {
		d.mismatch(e, name, `a size such as "1MiB"`, "")
		return 0, false
	}
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	n, err := strconv.ParseInt(s[:digits], 10, 64)
	unit := strings.TrimLeft(s[digits:], " ")
	factor, known := units()[unit]
	switch {
	case err != nil || !known:
		hint := `write a whole number and a unit, such as "512KiB", "1MiB" or "10MB"`
		if fixed := foldUnit(unit); err == nil && fixed != "" {
			hint = fmt.Sprintf("did you mean %q?", s[:digits]+fixed)
		}
		d.fail(Diagnostic{Summary: fmt.Sprintf("%s: %s is not a size", name, quote(s)), Hint: hint}, e.Range())
	case n == 0:
		d.fail(Diagnostic{Summary: name + " must be more than zero", Hint: "leave it out for its default"}, e.Range())
	case n > math.MaxInt64/factor:
		d.fail(Diagnostic{Summary: fmt.Sprintf("%s: %s is too large", name, quote(s))}, e.Range())
	default:
		return n * factor, true
	}
	return 0, false
}

// foldUnit returns the unit that is meant by one in the wrong case.
func foldUnit(s string) string {
	for _, u := range []string{"B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB"} {
		if strings.EqualFold(s, u) || strings.EqualFold(s, strings.TrimSuffix(u, "B")) && s != "" {
			return u
		}
	}
	return ""
}

// ports decodes a list of ports.
func (d *decoder) ports(name string, e hclsyntax.Expression) []uint16 {
	tuple, is := e.(*hclsyntax.TupleConsExpr)
	if !is {
		hint := ""
		if n, num := literalNumber(e); num {
			// Only a small number is written out: to print 1e999999999 in
			// full takes minutes.
			if port, acc := n.Int64(); acc == big.Exact && 0 < port && port <= 65535 {
				hint = fmt.Sprintf("put it in brackets: [%d]", port)
			}
		}
		d.mismatch(e, name, "a list of port numbers", hint)
		return nil
	}
	if len(tuple.Exprs) == 0 {
		d.empty(name, e)
		return nil
	}
	out := make([]uint16, 0, len(tuple.Exprs))
	for _, x := range tuple.Exprs {
		if _, is := literalNumber(x); !is {
			d.mismatch(x, name, "a list of port numbers", "")
			continue
		}
		if n, ok := d.int("a port", x, 1, 65535); ok {
			out = append(out, uint16(n))
		}
	}
	return out
}

// prefixes decodes a list of address ranges.
func (d *decoder) prefixes(name string, e hclsyntax.Expression) []netip.Prefix {
	list, _ := d.some(name, e)
	out := make([]netip.Prefix, 0, len(list))
	for _, x := range list {
		p, problem, hint := parsePrefix(x.value)
		if problem != "" {
			d.fail(Diagnostic{Summary: fmt.Sprintf("%s: %s %s", name, quote(x.value), problem), Hint: hint}, x.at)
			continue
		}
		out = append(out, p)
	}
	return out
}

// parsePrefix parses a CIDR or one address. Problem is "" when it is one.
func parsePrefix(s string) (p netip.Prefix, problem, hint string) {
	const form = `write a range such as "10.0.12.0/24" or "fd00:12::/64", or one address`
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		p = netip.PrefixFrom(a, a.BitLen())
	} else if p, err = netip.ParsePrefix(s); err != nil {
		return netip.Prefix{}, "is not an address range", form
	}
	if p.Addr().Is4In6() {
		return netip.Prefix{}, "is an IPv4 address written as IPv6", "write it as IPv4"
	}
	if p != p.Masked() {
		return netip.Prefix{}, "has bits set behind its prefix", fmt.Sprintf("did you mean %q?", p.Masked())
	}
	return p, "", ""
}

// macs decodes a list of hardware addresses to lower case with colons.
func (d *decoder) macs(name string, e hclsyntax.Expression) []string {
	list, _ := d.some(name, e)
	var out []string
	for _, x := range list {
		hw, err := net.ParseMAC(x.value)
		if err != nil || len(hw) != 6 {
			d.fail(Diagnostic{
				Summary: fmt.Sprintf("%s: %s is not a hardware address", name, quote(x.value)),
				Hint:    `write six bytes, such as "02:00:5e:10:00:01"`,
			}, x.at)
			continue
		}
		out = append(out, hw.String())
	}
	return out
}

// globs decodes a list of path.Match patterns.
func (d *decoder) globs(name string, e hclsyntax.Expression) []string {
	list, _ := d.some(name, e)
	var out []string
	for _, x := range list {
		if _, err := path.Match(x.value, ""); err != nil || x.value == "" {
			d.fail(Diagnostic{Summary: fmt.Sprintf("%s: %s is not a pattern", name, quote(x.value)), Hint: `write a name such as "tap0" or a pattern such as "tap*"`}, x.at)
			continue
		}
		out = append(out, x.value)
	}
	return out
}

// refs decodes a list of names that refer to declarations elsewhere.
func (d *decoder) refs(name string, e hclsyntax.Expression) []policy.Ref {
	list, _ := d.elements(name, e)
	if len(list) == 0 {
		return nil
	}
	out := make([]policy.Ref, 0, len(list))
	seen := make(map[string]hcl.Range, len(list))
	for _, x := range list {
		if first, dup := seen[x.value]; dup {
			d.fail(Diagnostic{
				Summary: fmt.Sprintf("%s lists %s twice", name, quote(x.value)),
				Related: []Note{note(first, "first listed here")},
			}, x.at)
			continue
		}
		seen[x.value] = x.at
		out = append(out, policy.Ref{Name: x.value, Pos: pos(x.at)})
	}
	return out
}

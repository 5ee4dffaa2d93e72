package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ruleBuilder turns one Rule as written into a rule. It reports every fault
// that it finds, not the first.
type ruleBuilder struct {
	c    *compiler
	out  shape
	at   HostPattern
	src  *Rule // a copy; normalised in place
	bad  bool
	deny bool
}

// build returns nil when the rule has an error. It keeps rules in room.
func (c *compiler) build(written Rule, by owner, room *[]rule) *rule {
	src := &written
	src.Owner = by.title
	b := ruleBuilder{c: c, src: src, deny: src.Action == ActionDeny}
	if src.Action > ActionGit {
		b.fault("rule of %s: unknown action", by.title)
		return nil
	}
	b.out.owner = by
	title := ruleTitle(src)
	b.host(title)
	b.endpoints(title)
	b.methods(title)
	b.paths(title)
	b.conditions(title)
	b.body(title)
	b.addresses(title)
	b.secrets(title)
	b.rest(title)
	if b.bad {
		return nil
	}
	*room = append(*room, rule{shape: c.shape(src, &b.out), host: b.at, line: src.Pos.Line, column: src.Pos.Column})
	return &(*room)[len(*room)-1]
}

// shape returns the one shape of all rules that are like src, which is built if
// it is the first of them.
func (c *compiler) shape(src *Rule, built *shape) *shape {
	c.key = src.appendShape(c.key[:0])
	have := c.shapes[string(c.key)]
	if have == nil {
		have = &shape{}
		*have = *built
		have.like = shapeOf(src)
		c.shapes[string(c.key)] = have
	}
	return have
}

func (b *ruleBuilder) fault(format string, args ...any) {
	b.report(Problem{Summary: fmt.Sprintf(format, args...)})
}

// faultIn reports what is wrong with a text in an attribute.
func (b *ruleBuilder) faultIn(attr, value, format string, args ...any) {
	b.report(Problem{Summary: fmt.Sprintf(format, args...), Attr: attr, Value: value})
}

func (b *ruleBuilder) report(p Problem) {
	if p.Pos == (Pos{}) {
		p.Pos = b.src.Pos
	}
	b.bad = true
	b.c.problems = append(b.c.problems, p)
}

func (b *ruleBuilder) host(title string) {
	text := b.src.Host
	switch b.src.Action {
	case ActionGit:
		if host, repo, ok := strings.Cut(text, "/"); ok && b.src.Repo == "" {
			text, b.src.Repo = host, repo
		}
	case ActionTCP:
		if host, portText, ok := splitHostPort(text); ok {
			port, err := parsePort(portText)
			if err != nil {
				b.fault("%s: %v", title, err)
			}
			text = host
			b.src.Ports = append(slices.Clone(b.src.Ports), port)
		}
	}
	o := b.c.hostOptions
	if b.deny {
		o = HostOptions{AnyHost: true, PublicSuffix: true} // a wide denial harms nobody
	}
	p, err := ParseHostPattern(text, o)
	if err != nil {
		b.report(Problem{Summary: fmt.Sprintf("%s: %v", title, err), Hint: hostHint(text)})
		return
	}
	b.at, b.src.Host = p, p.String()
}

// hostHint proposes what to write for a host that holds more than a host.
func hostHint(text string) string {
	if _, rest, ok := strings.Cut(text, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		return fmt.Sprintf("write the host alone: %q", host)
	}
	if host, port, ok := splitHostPort(text); ok {
		return fmt.Sprintf("write the host alone and ports = [%s]: %q", port, host)
	}
	if host, path, ok := strings.Cut(text, "/"); ok {
		return fmt.Sprintf("write the host alone and paths = [%q]: %q", "/"+path, host)
	}
	return ""
}

func (b *ruleBuilder) endpoints(title string) {
	schemes := b.schemes(title)
	for _, port := range b.src.Ports {
		if port == 0 {
			b.fault("%s: port 0 is no port", title)
		}
		b.out.ends.add(port, schemes)
	}
	if len(b.src.Ports) > 0 {
		return
	}
	switch {
	case b.deny:
		b.out.ends.everyone = schemes
	case b.src.Action == ActionTCP:
		b.report(Problem{Summary: title + ": names no port", Hint: fmt.Sprintf("write %q", b.src.Host+":5432")})
	default:
		if schemes.has(HTTPS) {
			b.out.ends.add(443, 1<<HTTPS)
		}
		if schemes.has(HTTP) {
			b.out.ends.add(80, 1<<HTTP)
		}
	}
}

func (b *ruleBuilder) schemes(title string) schemeSet {
	for _, s := range b.src.Schemes {
		if s != HTTPS && s != HTTP && !(b.deny && s == TCP) {
			b.fault(`%s: a scheme is "https" or "http"`, title)
		}
	}
	given := len(b.src.Schemes) > 0
	switch b.src.Action {
	case ActionTCP:
		if given {
			b.fault("%s: raw TCP has no schemes", title)
		}
		return allSchemes
	case ActionPassthrough, ActionGit:
		if given && schemesOf(b.src.Schemes) != 1<<HTTPS {
			b.fault("%s: the scheme is always https", title)
		}
		return 1 << HTTPS
	case ActionDeny:
		if !given {
			return allSchemes
		}
	case ActionAllow:
		if !given {
			return 1 << HTTPS
		}
	}
	return schemesOf(b.src.Schemes)
}

func (b *ruleBuilder) methods(title string) {
	b.out.methods = methodSet{any: true}
	access, list := b.src.Access, b.src.Methods
	if access != "" && access != "read" && access != "write" {
		b.report(Problem{Summary: fmt.Sprintf("%s: access %q is neither read nor write", title, access), Hint: didYouMean(access, []string{"read", "write"})})
	}
	opaque := b.src.Action == ActionTCP || b.src.Action == ActionPassthrough
	switch {
	case opaque && (access != "" || len(list) > 0):
		b.fault("%s: what is relayed unopened has no methods", title)
	case b.src.Action == ActionGit && len(list) > 0:
		b.report(Problem{Summary: title + ": a git rule has no methods", Hint: `access = "read" or "write"`})
	case access != "" && len(list) > 0:
		b.fault("%s: access and methods say the same thing twice; one of them", title)
	case b.src.Action == ActionGit:
		return
	case access == "read":
		b.out.methods = readMethods()
	}
	for _, m := range list {
		switch {
		case !isToken(m):
			b.faultIn("methods", m, "%s: method %q is not a token", title, m)
		case !b.deny && !forwardable(m):
			b.faultIn("methods", m, "%s: method %s is never forwarded", title, m)
		case m != strings.ToUpper(m) && standardMethod(strings.ToUpper(m)):
			b.report(Problem{Summary: fmt.Sprintf("%s: method %q is not %q; methods are case-sensitive", title, m, strings.ToUpper(m)), Hint: fmt.Sprintf("write %q", strings.ToUpper(m))})
		}
		b.out.methods.any = false
		b.out.methods.list = append(b.out.methods.list, m)
	}
}

func (b *ruleBuilder) paths(title string) {
	if b.src.Action == ActionGit {
		repo, err := parseGitRepo(b.src.Repo)
		if err != nil {
			b.fault("%s: %v", title, err)
			return
		}
		repo.write = b.src.Access == "write"
		b.out.git, b.src.Repo = repo, repo.String()
	}
	if len(b.src.Paths) > 0 && b.src.Action != ActionAllow && !b.deny {
		b.fault("%s: has paths, which only allow and deny rules have", title)
		return
	}
	for _, s := range b.src.Paths {
		// A denial takes every reading of a request's path, so its own
		// patterns may hold an encoded slash.
		g, err := parsePathGlob(s, b.src.EncodedSlash || b.deny)
		if err != nil {
			b.faultIn("paths", s, "%s: path %q %v", title, s, err)
			continue
		}
		b.out.paths = append(b.out.paths, g)
	}
}

func (b *ruleBuilder) conditions(title string) {
	if len(b.src.Query) == 0 && len(b.src.Headers) == 0 {
		return
	}
	if b.src.Action != ActionAllow {
		b.fault("%s: has conditions on query or header, which only allow rules have", title)
		return
	}
	conds, err := conditionsOf(b.src)
	if err != nil {
		b.fault("%s: %v", title, err)
	}
	b.out.conds = conds
}

// body reads what is asked of the body, which is that of a POST.
func (b *ruleBuilder) body(title string) {
	if b.src.GraphQL == nil && b.src.JSONRPC == nil {
		return
	}
	if b.src.Action != ActionAllow {
		b.fault("%s: has conditions on the body, which only allow rules have", title)
		return
	}
	c, err := bodyConditionOf(b.src)
	if err != nil {
		b.fault("%s: %v", title, err)
		return
	}
	if b.src.Access != "" || slices.ContainsFunc(b.src.Methods, func(m string) bool { return m != "POST" }) {
		b.report(Problem{Summary: fmt.Sprintf("%s: %s is decided from the body of a POST; the rule names other methods", title, c.form),
			Hint: `leave methods out, and write another rule for what has no body (MCP: methods = ["GET", "DELETE"])`})
		return
	}
	for _, cond := range b.out.conds {
		if !cond.header && slices.Contains([]string{"query", "variables", "operationName", "extensions"}, cond.name) {
			b.fault("%s: what is asked for must stand in the body, and %s would let it stand in the URL", title, &cond)
		}
	}
	b.out.body, b.out.methods = c, methodSet{list: []string{"POST"}}
}

func (b *ruleBuilder) addresses(title string) {
	masked := make([]netip.Prefix, 0, len(b.src.Addresses))
	for _, p := range b.src.Addresses {
		if !p.IsValid() || p.Addr().Is4In6() {
			b.fault("%s: address range %s is not a usable one", title, p)
			continue
		}
		masked = append(masked, p.Masked())
	}
	if len(masked) > 0 {
		b.src.Addresses = masked
	}
	if b.deny && len(b.src.Addresses) > 0 {
		b.fault("%s: a denial has no addresses", title)
	}
	if b.deny || b.at.kind != hostExact || !IsIP(b.at.name) {
		return
	}
	addr := netip.MustParseAddr(b.at.name)
	if !slices.ContainsFunc(masked, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		b.report(Problem{
			Summary: title + ": an IP literal needs addresses that hold it",
			Hint:    fmt.Sprintf("addresses = [%q]", netip.PrefixFrom(addr, addr.BitLen())),
		})
	}
}

func (b *ruleBuilder) rest(title string) {
	if b.deny && !b.src.Expires.IsZero() {
		b.report(Problem{
			Summary: title + ": a denial does not expire",
			Detail:  "What lapses by itself must leave less allowed, never more.",
			Hint:    "remove expires, or let the allow rules expire",
		})
	}
	if b.src.Foreign > ForeignPass {
		b.fault("%s: unknown treatment of foreign credentials", title)
	}
	if !b.src.Limits.valid() {
		b.fault("%s: a limit is negative", title)
	}
}

// valid reports whether no limit is negative.
func (l Limits) valid() bool {
	return min(l.RequestsPerMinute, l.BytesSentPerDay, l.BytesReceivedPerDay,
		l.Connections, l.MaxRequest, l.MaxResponse) >= 0
}

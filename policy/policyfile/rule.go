package policyfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// rule decodes an allow, deny, tcp, passthrough or git block and appends it
// to rules.
func (d *decoder) rule(rules []policy.Rule, b *hclsyntax.Block) []policy.Rule {
	d.opts.yield()
	r := policy.Rule{Pos: pos(b.TypeRange)}
	var s *shape
	example := "api.example.com"
	switch b.Type {
	case "allow":
		r.Action, s = policy.ActionAllow, &d.lang.allow
	case "deny":
		r.Action, s = policy.ActionDeny, &d.lang.deny
	case "tcp":
		r.Action, s, example = policy.ActionTCP, &d.lang.tcp, "db.example.com:5432"
	case "passthrough":
		r.Action, s = policy.ActionPassthrough, &d.lang.passthrough
	case "git":
		r.Action, s, example = policy.ActionGit, &d.lang.git, "github.com/acme/app"
	}
	target, at, ok := d.label(b, example)
	if ok {
		ok = d.target(&r, target, at)
	}
	first := d.once()
	d.body(b, s, func(a *hclsyntax.Attribute) {
		d.ruleAttr(&r, a)
	}, func(inner *hclsyntax.Block) {
		if !first(inner) {
			return
		}
		switch inner.Type {
		case "graphql":
			r.GraphQL = d.graphql(inner)
		case "jsonrpc":
			r.JSONRPC = d.jsonrpc(inner)
		default:
			r.Limits = d.limits(inner)
		}
	})
	if !ok {
		return rules
	}
	return append(rules, r)
}

// target sets what a rule is about from its label.
func (d *decoder) target(r *policy.Rule, label string, at hcl.Range) bool {
	if scheme, rest, is := strings.Cut(label, "://"); is {
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s is a URL and not a host", quote(label)),
			Hint:    urlHint(r.Action, scheme, rest),
		}, at)
		return false
	}
	switch r.Action {
	case policy.ActionTCP:
		return d.tcpTarget(r, label, at)
	case policy.ActionGit:
		return d.gitTarget(r, label, at)
	}
	r.Host = label
	return true
}

// urlHint says how the rule that a URL means is written.
func urlHint(a policy.Action, scheme, rest string) string {
	host, path, hasPath := strings.Cut(rest, "/")
	if a == policy.ActionGit {
		return fmt.Sprintf("write git %s", quote(strings.TrimSuffix(rest, ".git")))
	}
	hint := fmt.Sprintf("write %s %s", a, quote(host))
	if a == policy.ActionAllow && hasPath && path != "" {
		hint += fmt.Sprintf(" and paths = [%s]", quote("/"+path))
	}
	if scheme == "http" {
		hint += ` and schemes = ["http"]`
	}
	return hint
}

// tcpTarget splits "host:port".
func (d *decoder) tcpTarget(r *policy.Rule, label string, at hcl.Range) bool {
	i := strings.LastIndexByte(label, ':')
	host, port := label, ""
	if i >= 0 {
		host, port = label[:i], label[i+1:]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case i < 0 || host == "" || port == "" || strings.HasSuffix(host, ":"):
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s is not a host and a port", quote(label)),
			Hint:    fmt.Sprintf("write tcp %s", quote(strings.TrimRight(host, ":")+":5432")),
		}, at)
		return false
	case strings.Contains(host, ":") && !strings.HasPrefix(host, "["):
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s is not a host and a port", quote(label)),
			Hint:    `put an IPv6 address in brackets: "[2001:db8::1]:5432"`,
		}, at)
		return false
	case err != nil || n == 0 || port[0] == '0':
		d.fail(Diagnostic{Summary: fmt.Sprintf("port %s must be a whole number from 1 to 65535", quote(port))}, at)
		return false
	}
	r.Host, r.Ports = host, []uint16{uint16(n)}
	return true
}

// gitTarget splits "host/owner/repo". GitLab's groups within groups make the
// repository part longer.
func (d *decoder) gitTarget(r *policy.Rule, label string, at hcl.Range) bool {
	host, repo, _ := strings.Cut(label, "/")
	parts := strings.Split(repo, "/")
	bad := ""
	for _, p := range parts {
		switch {
		case p == "" || p == "." || p == ".." || len(parts) < 2 || host == "":
			bad = "is not a host, an owner and a repository"
		case strings.Contains(p, "*") && p != "*":
			bad = `has a "*" that is not a whole part`
		case strings.HasSuffix(p, ".git"):
			bad = `must not end in ".git"`
		case strings.IndexFunc(p, notRepo) >= 0:
			bad = "has a character that no repository has"
		}
	}
	if bad != "" {
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s %s", quote(label), bad),
			Hint:    `write git "github.com/acme/app", or git "github.com/acme/*" for every repository of an owner`,
		}, at)
		return false
	}
	r.Host, r.Repo = host, repo
	return true
}

// notRepo says whether a rune cannot be part of a repository's name.
func notRepo(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"#%&;<>?\^`+"`{|}@:", c)
}

// ruleAttr decodes one attribute of a rule. Which rules have which is in
// language.
func (d *decoder) ruleAttr(r *policy.Rule, a *hclsyntax.Attribute) {
	switch a.Name {
	case "methods":
		r.Methods = d.methods(a)
	case "paths":
		r.Paths = d.strings(a.Name, a.Expr)
	case "query":
		r.Query = d.conditions(a)
	case "headers":
		r.Headers = d.conditions(a)
	case "ports":
		r.Ports = d.ports(a.Name, a.Expr)
	case "schemes":
		r.Schemes = d.schemes(a)
	case "access":
		r.Access, _ = d.choice(a.Name, a.Expr, "read", "write")
	case "addresses":
		r.Addresses = d.prefixes(a.Name, a.Expr)
	case "inject":
		r.Inject = d.refs(a.Name, a.Expr)
	case "expires":
		r.Expires, _ = d.instant(a.Name, a.Expr)
	case "websocket":
		on, ok := d.bool(a.Name, a.Expr)
		r.NoWebSocket = ok && !on
	case "encoded_slash":
		r.EncodedSlash, _ = d.bool(a.Name, a.Expr)
	case "foreign":
		w, _ := d.choice(a.Name, a.Expr, "strip", "block", "pass")
		r.Foreign = map[string]policy.Foreign{"block": policy.ForeignBlock, "pass": policy.ForeignPass}[w]
	case "on_leak":
		w, _ := d.choice(a.Name, a.Expr, "block", "pass")
		r.OnLeakPass = w == "pass"
	case "scrub":
		on, ok := d.bool(a.Name, a.Expr)
		r.NoScrub = ok && !on
	case "ticket":
		r.Ticket, _ = d.line(a)
	case "reason":
		r.Reason, _ = d.prose(a)
	case "alert":
		r.Alert, _ = d.line(a)
	}
}

// conditions decodes a map of lists: for each name the values that it may
// have. One value may stand without its list.
func (d *decoder) conditions(a *hclsyntax.Attribute) map[string][]string {
	object, is := a.Expr.(*hclsyntax.ObjectConsExpr)
	if !is {
		d.mismatch(a.Expr, a.Name, "a map of lists of strings", "write "+a.Name+` = { name = ["value"] }, or "*" for any value`)
		return nil
	}
	if len(object.Items) == 0 {
		d.empty(a.Name, a.Expr)
	}
	out := make(map[string][]string, len(object.Items))
	for _, item := range object.Items {
		key, is := mapKey(item.KeyExpr)
		if !is {
			d.fail(Diagnostic{Summary: "a key of " + a.Name + " must be a word or a string"}, item.KeyExpr.Range())
			continue
		}
		if _, dup := out[key]; dup {
			d.fail(Diagnostic{Summary: fmt.Sprintf("key %s of %s is written twice", quote(key), a.Name)}, item.KeyExpr.Range())
			continue
		}
		if s, is := literalString(item.ValueExpr); is {
			out[key] = []string{s}
			continue
		}
		out[key] = d.strings(a.Name, item.ValueExpr)
	}
	return out
}

// methods decodes a list of methods and reports one that is in the wrong case.
func (d *decoder) methods(a *hclsyntax.Attribute) []string {
	list, _ := d.some(a.Name, a.Expr)
	for _, x := range list {
		up := strings.ToUpper(x.value)
		switch up {
		case "GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE":
			if up != x.value {
				d.fail(Diagnostic{
					Summary: fmt.Sprintf("%s is not a method", quote(x.value)),
					Detail:  "Methods are case-sensitive.",
					Hint:    fmt.Sprintf("did you mean %q?", up),
				}, x.at)
			}
		}
	}
	return values(list)
}

// schemes decodes a list of schemes.
func (d *decoder) schemes(a *hclsyntax.Attribute) []policy.Scheme {
	list, _ := d.some(a.Name, a.Expr)
	var out []policy.Scheme
	for _, x := range list {
		if !d.oneOf("a scheme", x, []string{"https", "http"}) {
			continue
		}
		scheme := policy.HTTPS
		if x.value == "http" {
			scheme = policy.HTTP
		}
		out = append(out, scheme)
	}
	return out
}

// line decodes a text of one line, at most 253 bytes.
func (d *decoder) line(a *hclsyntax.Attribute) (string, bool) {
	s, ok := d.string(a.Name, a.Expr)
	if ok && (s == "" || len(s) > 253 || !printable(s)) {
		d.fail(Diagnostic{Summary: a.Name + " must be one line of 1 to 253 bytes without control characters"}, a.Expr.Range())
		return "", false
	}
	return s, ok
}

// prose decodes a text for people: line breaks become blanks, so that it fits
// in a header and on a line of a log.
func (d *decoder) prose(a *hclsyntax.Attribute) (string, bool) {
	s, ok := d.string(a.Name, a.Expr)
	if !ok {
		return "", false
	}
	s = strings.Join(strings.Fields(s), " ")
	if s == "" || len(s) > 1000 || !printable(s) {
		d.fail(Diagnostic{Summary: a.Name + " must be a text of 1 to 1000 bytes without control characters"}, a.Expr.Range())
		return "", false
	}
	return s, true
}

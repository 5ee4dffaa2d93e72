package policyfile

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// The blocks of this file say nothing about what a sandbox may do: tests of
// the policy, alerts and where they go. A load checks their form, so that a
// slip is found where it was made.

// test checks a test block.
func (d *decoder) test(b *hclsyntax.Block) {
	name, at, ok := d.label(b, "ci reads GitHub")
	if ok {
		d.context = "test " + quote(name)
		if !printable(name) || len(name) > 253 {
			d.fail(Diagnostic{Summary: "the name of a test must be one line of at most 253 bytes"}, at)
		}
		d.declare(b, name)
	}
	first := d.once()
	blocks := map[string]bool{}
	d.body(b, &d.lang.test, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "sandbox":
			d.string(a.Name, a.Expr)
		case "now":
			d.instant(a.Name, a.Expr)
		default:
			d.requestLines(a)
		}
	}, func(inner *hclsyntax.Block) {
		blocks[inner.Type] = true
		switch {
		case !first(inner):
		case inner.Type == "request":
			d.request(inner)
		default:
			d.expect(inner)
		}
	})
	if blocks["request"] != blocks["expect"] {
		d.fail(Diagnostic{Summary: "a test with a request block needs an expect block, and the reverse"}, header(b))
	}
	attrs := b.Body.Attributes
	if len(blocks) == 0 && attrs["allow"] == nil && attrs["deny"] == nil {
		d.fail(Diagnostic{Summary: "test expects nothing", Hint: "add allow, deny, or a request with an expect block"}, header(b))
	}
}

// requestLines checks a list of "METHOD URL".
func (d *decoder) requestLines(a *hclsyntax.Attribute) {
	list, _ := d.some(a.Name, a.Expr)
	for _, x := range list {
		method, target, ok := strings.Cut(x.value, " ")
		if ok && token(method) && httpURL(target) {
			continue
		}
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s: %s is not a method and a URL", a.Name, quote(x.value)),
			Hint:    `write "GET https://api.example.com/v1/items"`,
		}, x.at)
	}
}

// httpURL says whether s is an absolute http or https URL.
func httpURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// request checks the request of a test.
func (d *decoder) request(b *hclsyntax.Block) {
	d.noLabel(b)
	d.body(b, &d.lang.request, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "method":
			if s, ok := d.string(a.Name, a.Expr); ok && !token(s) {
				d.fail(Diagnostic{Summary: fmt.Sprintf("%s is not a method", quote(s))}, a.Expr.Range())
			}
		case "url":
			if s, ok := d.string(a.Name, a.Expr); ok && !httpURL(s) {
				d.fail(Diagnostic{Summary: fmt.Sprintf("%s is not a URL", quote(s)), Hint: `write "https://api.example.com/"`}, a.Expr.Range())
			}
		case "headers":
			d.stringMap(a.Name, a.Expr)
		case "body":
			d.string(a.Name, a.Expr)
		}
	}, nil)
}

// expect checks what a test expects.
func (d *decoder) expect(b *hclsyntax.Block) {
	d.noLabel(b)
	d.body(b, &d.lang.expect, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "verdict":
			d.choice(a.Name, a.Expr, "allow", "deny")
		case "reason":
			d.choice(a.Name, a.Expr, reasons()...)
		case "inject":
			d.refs(a.Name, a.Expr)
		}
	}, nil)
}

// alert checks an alert block.
func (d *decoder) alert(b *hclsyntax.Block) {
	d.named(b, "exfiltration")
	d.body(b, &d.lang.alert, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "reasons":
			d.words(a, "a reason", reasons())
		case "severity":
			d.choice(a.Name, a.Expr, "info", "low", "medium", "high", "critical")
		case "verdict":
			d.choice(a.Name, a.Expr, "allow", "deny")
		case "threshold":
			d.int(a.Name, a.Expr, 1, math.MaxInt32)
		case "window", "interval":
			d.duration(a.Name, a.Expr)
		case "per":
			d.words(a, "per", []string{"sandbox", "host", "reason", "rule"})
		case "distinct":
			d.choice(a.Name, a.Expr, "sandbox", "host", "reason", "rule")
		case "notify":
			d.refs(a.Name, a.Expr)
		}
	}, nil)
}

// words checks a list of words from a closed list.
func (d *decoder) words(a *hclsyntax.Attribute, name string, words []string) {
	list, _ := d.some(a.Name, a.Expr)
	for _, x := range list {
		d.oneOf(name, x, words)
	}
}

// notify checks a notify block: sinks, each a block of its kind.
func (d *decoder) notify(b *hclsyntax.Block) {
	d.named(b, "ops")
	for _, a := range b.Body.Attributes {
		d.unknownAttr(a, &shape{noun: d.lang.notify.noun})
	}
	if len(b.Body.Blocks) == 0 {
		d.fail(Diagnostic{Summary: "a notify block needs a sink", Hint: `add one, such as webhook { url = "https://alerts.example.com/" }`}, header(b))
	}
	for _, inner := range b.Body.Blocks {
		d.noLabel(inner)
		schema, known := d.opts.Sinks[inner.Type]
		switch {
		case d.opts.Sinks == nil:
			d.literals(inner)
		case !known:
			d.unknownKind("sink", inner.Type, inner.TypeRange, d.opts.Sinks)
		default:
			d.schema(inner, fmt.Sprintf("a sink of kind %q", inner.Type), schema)
		}
	}
}

// literals checks that a block whose schema is not known holds literal values
// of the types that any schema has.
func (d *decoder) literals(b *hclsyntax.Block) {
	for name, a := range b.Body.Attributes {
		switch e := a.Expr.(type) {
		case *hclsyntax.TupleConsExpr:
			d.elements(name, e)
		case *hclsyntax.ObjectConsExpr:
			d.stringMap(name, e)
		case *hclsyntax.LiteralValueExpr:
		default:
			d.string(name, e)
		}
	}
	for _, inner := range b.Body.Blocks {
		d.unknownBlock(inner, &shape{noun: "a sink"})
	}
}

// mute checks a mute block.
func (d *decoder) mute(b *hclsyntax.Block) {
	d.named(b, "maintenance")
	d.body(b, &d.lang.mute, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "until":
			d.instant(a.Name, a.Expr)
		case "reason":
			d.prose(a)
		case "reasons":
			d.words(a, "a reason", reasons())
		default:
			d.refs(a.Name, a.Expr)
		}
	}, nil)
}

// printable says whether s is valid UTF-8 without control or format
// characters, so that it can be shown on a terminal and sent in a header.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return false
		}
	}
	return true
}

// reasons are the reasons that a decision can have.
func reasons() []string {
	all := []policy.Reason{
		policy.RuleAllow, policy.GroupAllow, policy.PassthroughAllow, policy.ReportMode, policy.GatewayName,
		policy.UnknownSandbox, policy.HostNotAllowed, policy.HostDenied, policy.PortNotAllowed, policy.SchemeNotAllowed,
		policy.NoRuleMatched, policy.MethodNotAllowed, policy.PathNotAllowed, policy.QueryNotAllowed, policy.AmbiguousPath,
		policy.GitPushNotAllowed, policy.RuleExpired, policy.QtypeNotAllowed,
		policy.NoSNI, policy.IPLiteral, policy.AuthorityMismatch, policy.AuthorityAmbiguous, policy.ECHUnsupported,
		policy.NotTLS, policy.NotHTTP, policy.BadHostname, policy.StaleAddress, policy.SpoofedSource,
		policy.ResolvesPrivate, policy.ResolvesLoopback, policy.ResolvesLinkLocal, policy.ResolvesMetadata,
		policy.ResolvesEmbedded, policy.ResolvesSelf, policy.ResolvesReserved, policy.AddressNotInRule, policy.ResolveFailed,
		policy.PlaceholderLeak, policy.PlaceholderPlace, policy.PlaintextInjection, policy.SecretUnavailable,
		policy.SecretExfiltration, policy.ForeignCredential, policy.CredentialPattern, policy.UninspectableBody,
		policy.Smuggling, policy.HeaderTooLarge, policy.BodyTooLarge, policy.UpgradeNotAllowed, policy.ConnectRefused,
		policy.ProtocolError, policy.QUICBlocked, policy.UDPBlocked, policy.ICMPBlocked, policy.ProtoBlocked, policy.DoTBlocked,
		policy.RateLimited, policy.ConnectionLimit, policy.ByteBudget, policy.PolicyUnavailable, policy.AuditUnavailable,
		policy.Revoked,
	}
	out := make([]string, len(all))
	for i, r := range all {
		out[i] = string(r)
	}
	return out
}

package policyfile

import (
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// The blocks of this file say nothing about what a sandbox may do: alerts and
// where they go. A load checks their form, so that a slip is found where it
// was made.

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

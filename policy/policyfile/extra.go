package policyfile

import (
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

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

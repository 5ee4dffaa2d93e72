package policyfile

import (
	"fmt"
	"math"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// org decodes the org block.
func (d *decoder) org(b *hclsyntax.Block) {
	d.context = "org"
	d.noLabel(b)
	fresh := d.declare(b, "")
	org := &policy.Org{Pos: pos(b.TypeRange)}
	d.body(b, &d.lang.org, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "use":
			org.Use = d.refs(a.Name, a.Expr)
		case "any_host":
			org.AnyHost, _ = d.bool(a.Name, a.Expr)
		case "public_suffix":
			org.PublicSuffix, _ = d.bool(a.Name, a.Expr)
		case "metadata":
			org.Metadata, _ = d.bool(a.Name, a.Expr)
		}
	}, func(inner *hclsyntax.Block) { org.Rules = d.rule(org.Rules, inner) })
	if fresh {
		d.doc.Org = org
	}
}

// group decodes a group block.
func (d *decoder) group(b *hclsyntax.Block) {
	name, fresh := d.named(b, "package_registries")
	g := policy.Group{Name: name, Pos: pos(b.TypeRange)}
	d.body(b, &d.lang.group, nil, func(inner *hclsyntax.Block) { g.Rules = d.rule(g.Rules, inner) })
	if fresh {
		d.doc.Groups = append(d.doc.Groups, g)
	}
}

// sandbox decodes a sandbox block.
func (d *decoder) sandbox(b *hclsyntax.Block) {
	name, fresh := d.named(b, "ci")
	s := policy.Sandbox{Name: name, Pos: pos(b.TypeRange)}
	first := d.once()
	d.body(b, &d.lang.sandbox, func(a *hclsyntax.Attribute) {
		d.sandboxAttr(&s, a)
	}, func(inner *hclsyntax.Block) {
		switch inner.Type {
		case "match":
			if first(inner) {
				s.Match = d.match(inner)
			}
		case "limits":
			if first(inner) {
				s.Limits = d.limits(inner)
			}
		default:
			s.Rules = d.rule(s.Rules, inner)
		}
	})
	if fresh {
		d.doc.Sandboxes = append(d.doc.Sandboxes, s)
	}
}

// sandboxAttr decodes one attribute of a sandbox.
func (d *decoder) sandboxAttr(s *policy.Sandbox, a *hclsyntax.Attribute) {
	switch a.Name {
	case "use":
		s.Use = d.refs(a.Name, a.Expr)
	case "mode":
		if w, _ := d.choice(a.Name, a.Expr, "enforce", "report"); w == "report" {
			s.Mode = policy.Report
		}
	case "ipv6":
		s.IPv6, _ = d.bool(a.Name, a.Expr)
	case "credentials":
		w, _ := d.choice(a.Name, a.Expr, "off", "alert", "block")
		s.Credentials = map[string]policy.Tripwire{"off": policy.TripwireOff, "alert": policy.TripwireAlert, "block": policy.TripwireBlock}[w]
	case "labels":
		s.Labels = d.labels(a)
	}
}

// labels decodes a sandbox's labels.
func (d *decoder) labels(a *hclsyntax.Attribute) map[string]string {
	m, _ := d.stringMap(a.Name, a.Expr)
	for k, v := range m {
		if !plainName(k) || len(v) > 253 || !printable(v) {
			d.fail(Diagnostic{
				Summary: fmt.Sprintf("%s cannot be a label", quote(k)),
				Detail:  `A label's name has letters, digits, ".", "_" and "-", at most 63; its value is one line of at most 253 bytes.`,
			}, a.Expr.Range())
		}
	}
	return m
}

// match decodes what traffic is a sandbox's own.
func (d *decoder) match(b *hclsyntax.Block) policy.Match {
	m := policy.Match{Pos: pos(b.TypeRange)}
	d.noLabel(b)
	d.body(b, &d.lang.match, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "cidrs":
			m.CIDRs = d.prefixes(a.Name, a.Expr)
		case "interfaces":
			m.Interfaces = d.globs(a.Name, a.Expr)
		case "macs":
			m.MACs = d.macs(a.Name, a.Expr)
		}
	}, nil)
	if len(b.Body.Attributes) == 0 && len(b.Body.Blocks) == 0 {
		d.fail(Diagnostic{
			Summary: "match matches nothing",
			Hint:    "say which traffic is meant with cidrs, interfaces or macs, or leave the block out",
		}, header(b))
	}
	return m
}

// limits decodes the limits of a sandbox or a rule.
func (d *decoder) limits(b *hclsyntax.Block) policy.Limits {
	var l policy.Limits
	d.noLabel(b)
	d.body(b, &d.lang.limits, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "requests_per_minute":
			l.RequestsPerMinute, _ = d.int(a.Name, a.Expr, 1, math.MaxInt32)
		case "connections":
			l.Connections, _ = d.int(a.Name, a.Expr, 1, math.MaxInt32)
		case "bytes_sent_per_day":
			l.BytesSentPerDay, _ = d.size(a.Name, a.Expr)
		case "bytes_received_per_day":
			l.BytesReceivedPerDay, _ = d.size(a.Name, a.Expr)
		case "max_request":
			l.MaxRequest, _ = d.size(a.Name, a.Expr)
		case "max_response":
			l.MaxResponse, _ = d.size(a.Name, a.Expr)
		}
	}, nil)
	return l
}

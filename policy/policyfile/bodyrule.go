package policyfile

import (
	"fmt"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// graphql decodes what a rule asks of a GraphQL request.
func (d *decoder) graphql(b *hclsyntax.Block) *policy.GraphQL {
	g := &policy.GraphQL{}
	d.noLabel(b)
	d.body(b, &d.lang.graphql, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "operations":
			list, _ := d.some(a.Name, a.Expr)
			for _, x := range list {
				d.oneOf("an operation", x, []string{"query", "mutation", "subscription"})
			}
			g.Operations = values(list)
		case "fields":
			list, _ := d.some(a.Name, a.Expr)
			g.Fields = values(list)
		case "max":
			g.Max = d.inspected(a.Name, a.Expr)
		}
	}, nil)
	return g
}

// jsonrpc decodes what a rule asks of JSON-RPC messages.
func (d *decoder) jsonrpc(b *hclsyntax.Block) *policy.JSONRPC {
	j := &policy.JSONRPC{}
	d.noLabel(b)
	d.body(b, &d.lang.jsonrpc, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "methods":
			list, _ := d.some(a.Name, a.Expr)
			j.Methods = values(list)
		case "tools":
			list, _ := d.some(a.Name, a.Expr)
			j.Tools = values(list)
		case "responses":
			j.Responses, _ = d.bool(a.Name, a.Expr)
		case "max":
			j.Max = d.inspected(a.Name, a.Expr)
		}
	}, nil)
	return j
}

// inspected decodes how much of a body is held to decide by.
func (d *decoder) inspected(name string, e hclsyntax.Expression) int64 {
	n, ok := d.size(name, e)
	if ok && n > policy.MostInspect {
		d.fail(Diagnostic{Summary: fmt.Sprintf("%s is at most 1MiB: so much of every such request is held in memory", name)}, e.Range())
	}
	return n
}

package policyfile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// variables evaluates the variable blocks of all files: what was given for
// each, or its default.
func (e *evaluator) variables(bodies []pending) map[string]cty.Value {
	out := map[string]cty.Value{}
	given := e.d.opts.Vars
	for _, b := range blocksOf(bodies, "variable") {
		name, fresh := e.d.named(b, "team")
		if !fresh {
			continue
		}
		var fallback cty.Value
		e.d.body(b, &e.d.lang.variable, func(a *hclsyntax.Attribute) {
			switch a.Name {
			case "description":
				e.d.prose(a)
			case "default":
				if !plainExpr(a.Expr) {
					e.d.fail(Diagnostic{Summary: "default must be written out"}, a.Expr.Range())
					return
				}
				fallback, _ = e.value("default", a.Expr, nil)
			}
		}, nil)
		text, ok := given[name]
		switch {
		case ok:
			out[name] = e.given(name, text, fallback, b)
		case fallback != cty.NilVal:
			out[name] = fallback
		default:
			out[name] = cty.DynamicVal
			e.d.lost = true
			e.d.fail(Diagnostic{Summary: "variable " + quote(name) + " has no value", Hint: fmt.Sprintf("give one with --var %s=VALUE, or write a default", name)}, header(b))
		}
	}
	e.d.context = ""
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := out[name]; !ok {
			e.d.diags.add(Diagnostic{Summary: "no variable is called " + quote(name), Hint: didYouMean(name, slices.Collect(maps.Keys(out)))})
		}
	}
	return out
}

// example is a value of a type as --var gives it.
func example(t cty.Type) string {
	switch {
	case t == cty.Number:
		return "443"
	case t == cty.Bool:
		return "true"
	case t.IsObjectType() || t.IsMapType():
		return `{ a = "b" }`
	}
	return `["a", "b"]`
}

// given reads the value of a variable as it was given: the text itself where
// the default is a string or there is none, else what the text writes out.
func (e *evaluator) given(name, text string, fallback cty.Value, b *hclsyntax.Block) cty.Value {
	if fallback == cty.NilVal || fallback.Type() == cty.String {
		return cty.StringVal(text)
	}
	x, problems := hclsyntax.ParseExpression([]byte(text), "--var "+name, hcl.InitialPos)
	if problems.HasErrors() || tooDeep([]byte(text), name) || !plainExpr(x) {
		e.d.fail(Diagnostic{Summary: "variable " + quote(name) + ": what was given is no value",
			Hint: fmt.Sprintf(`its default is %s; write one of its kind, such as --var '%s=%s'`, fallback.Type().FriendlyName(), name, example(fallback.Type()))}, header(b))
		return cty.DynamicVal
	}
	v, ok := e.value("variable "+quote(name), x, nil)
	if !ok {
		return cty.DynamicVal
	}
	return v
}

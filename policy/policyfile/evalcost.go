package policyfile

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// costly says why an expression may not be evaluated: "" when it may.
func costly(x hclsyntax.Expression) string {
	w := &costWalker{}
	_ = hclsyntax.Walk(x, w) // the walker returns no diagnostics
	switch {
	case w.nested:
		return "a for expression inside of another is not evaluated"
	case w.body > maxForBody:
		return "what a for expression repeats is too long"
	case w.nodes > maxExpression:
		return "the expression is too long"
	case w.number:
		return "a number is too large"
	}
	return ""
}

// costWalker counts the parts of an expression.
type costWalker struct {
	nodes, body, depth int
	nested, number     bool
}

// Enter counts a part.
func (w *costWalker) Enter(n hclsyntax.Node) hcl.Diagnostics {
	w.nodes++
	if w.depth > 0 {
		w.body++
	}
	switch n := n.(type) {
	case *hclsyntax.ForExpr:
		w.nested = w.nested || w.depth > 0
		w.depth++
	case *hclsyntax.SplatExpr:
		w.nested = w.nested || w.depth > 0
		w.depth++
	case *hclsyntax.LiteralValueExpr:
		if isType(n.Val, cty.Number) && hugeNumber(n.Val) {
			w.number = true
		}
	}
	return nil
}

// Exit leaves a part.
func (w *costWalker) Exit(n hclsyntax.Node) hcl.Diagnostics {
	switch n.(type) {
	case *hclsyntax.ForExpr, *hclsyntax.SplatExpr:
		w.depth--
	}
	return nil
}

// hugeNumber says whether to write a number out would be long.
func hugeNumber(v cty.Value) bool {
	exp := v.AsBigFloat().MantExp(nil)
	return exp > 64 || exp < -64
}

// tooLarge says why a value may not be used: "" when it may.
func tooLarge(v cty.Value) string {
	n := 0
	problem := ""
	_ = cty.Walk(v, func(_ cty.Path, x cty.Value) (bool, error) {
		n++
		switch {
		case n > maxElements:
			problem = fmt.Sprintf("the value has more than %d elements", maxElements)
		case !x.IsNull() && x.IsKnown() && x.Type() == cty.String && len(x.AsString()) > maxText:
			problem = fmt.Sprintf("a text in the value is longer than %d bytes", maxText)
		case !x.IsNull() && x.IsKnown() && x.Type() == cty.Number && hugeNumber(x):
			problem = "a number is too large"
		}
		return problem == "", nil
	})
	return problem
}

// plainExpr says whether an expression is written out, so that there is
// nothing to evaluate.
func plainExpr(x hclsyntax.Expression) bool {
	switch x := x.(type) {
	case *hclsyntax.LiteralValueExpr:
		return true
	case *hclsyntax.TemplateExpr:
		return !slices.ContainsFunc(x.Parts, func(p hclsyntax.Expression) bool { return !plainExpr(p) })
	case *hclsyntax.TupleConsExpr:
		return !slices.ContainsFunc(x.Exprs, func(p hclsyntax.Expression) bool { return !plainExpr(p) })
	case *hclsyntax.ObjectConsExpr:
		return !slices.ContainsFunc(x.Items, func(i hclsyntax.ObjectConsItem) bool { return !plainExpr(i.KeyExpr) || !plainExpr(i.ValueExpr) })
	case *hclsyntax.ObjectConsKeyExpr:
		return hcl.ExprAsKeyword(x) != "" || plainExpr(x.Wrapped)
	case *hclsyntax.UnaryOpExpr:
		return plainExpr(x.Val)
	}
	return false
}

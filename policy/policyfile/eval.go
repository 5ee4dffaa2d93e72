package policyfile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Limits of what a policy may compute. They are far above what a person
// writes, and keep a file from costing more than its own size.
const (
	maxExpression = 2000   // parts of one expression
	maxForBody    = 100    // parts of what a for expression repeats
	maxElements   = 10_000 // elements of a value, at any depth
	maxText       = 16_000 // bytes of one string of a value
	maxExpanded   = 50_000 // blocks that dynamic blocks make, in all
)

// evaluator computes the values of a policy: locals, variables and what is
// made of them. Nothing in it reads a file, the environment, the network or
// the time.
type evaluator struct {
	d         *decoder
	ctx       *hcl.EvalContext
	expanded  int // blocks that dynamic blocks have made
	evaluated int // expressions
}

// scope evaluates the variables and locals of all files.
func (d *decoder) scope(bodies []pending) *evaluator {
	e := &evaluator{d: d}
	vars := e.variables(bodies)
	e.ctx = &hcl.EvalContext{Variables: map[string]cty.Value{"var": object(vars), "local": cty.EmptyObjectVal}, Functions: functions()}
	e.locals(bodies)
	return e
}

func object(m map[string]cty.Value) cty.Value {
	if len(m) == 0 {
		return cty.EmptyObjectVal
	}
	return cty.ObjectVal(m)
}

// blocksOf returns the top-level blocks of one type, damaged ones left out.
func blocksOf(bodies []pending, kind string) []*hclsyntax.Block {
	var out []*hclsyntax.Block
	for _, p := range bodies {
		for _, b := range p.body.Blocks {
			whole := hcl.RangeBetween(b.TypeRange, b.CloseBraceRange)
			if b.Type == kind && !slices.ContainsFunc(p.damage, func(r hcl.Range) bool { return touches(whole, r) }) {
				out = append(out, b)
			}
		}
	}
	return out
}

// locals evaluates every local, each after those that it refers to.
func (e *evaluator) locals(bodies []pending) {
	open := map[string]*hclsyntax.Attribute{}
	for _, b := range blocksOf(bodies, "locals") {
		e.d.context = "locals"
		e.d.noLabel(b)
		for _, inner := range b.Body.Blocks {
			e.d.fail(Diagnostic{Summary: "a locals block has no blocks", Hint: "write name = value"}, inner.TypeRange)
		}
		for name, a := range b.Body.Attributes {
			if first, dup := open[name]; dup {
				e.d.fail(Diagnostic{Summary: "local " + quote(name) + " is declared twice", Related: []Note{note(first.NameRange, "first declared here")}}, a.NameRange)
				continue
			}
			open[name] = a
		}
	}
	done := map[string]cty.Value{}
	for len(open) > 0 {
		progress := false
		for _, name := range slices.Sorted(maps.Keys(open)) {
			a := open[name]
			if waits(a.Expr, open) {
				continue
			}
			v, ok := e.value("local "+quote(name), a.Expr, e.ctx)
			if !ok {
				e.d.lost = true
				v = cty.DynamicVal
			}
			done[name] = v
			delete(open, name)
			e.ctx.Variables["local"] = object(done)
			progress = true
		}
		if !progress {
			for _, name := range slices.Sorted(maps.Keys(open)) {
				e.d.lost = true
				e.d.fail(Diagnostic{Summary: "local " + quote(name) + " refers to itself"}, open[name].NameRange)
			}
			break
		}
	}
	e.d.context = ""
}

// waits says whether an expression refers to a local that has no value yet.
func waits(x hclsyntax.Expression, open map[string]*hclsyntax.Attribute) bool {
	for _, t := range x.Variables() {
		if t.RootName() != "local" || len(t) < 2 {
			continue
		}
		if step, ok := t[1].(hcl.TraverseAttr); ok && open[step.Name] != nil {
			return true
		}
	}
	return false
}

// value evaluates an expression. It reports what is wrong with it.
func (e *evaluator) value(what string, x hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, bool) {
	e.evaluated++
	if problem := costly(x); problem != "" {
		e.d.fail(Diagnostic{Summary: what + ": " + problem}, x.Range())
		return cty.NilVal, false
	}
	if e.undeclared(x, ctx) {
		return cty.NilVal, false
	}
	v, problems := x.Value(ctx)
	for _, p := range problems {
		if p.Severity != hcl.DiagError {
			continue
		}
		y := Diagnostic{Summary: what + ": " + lowerFirst(p.Summary), Detail: clip(p.Detail, 400), Context: e.d.context}
		y.at(x.Range())
		if p.Subject != nil {
			y.at(*p.Subject)
		}
		e.d.diags.add(y)
	}
	if problems.HasErrors() {
		return cty.NilVal, false
	}
	if !v.IsWhollyKnown() {
		return cty.NilVal, false // it comes of a local that has been reported
	}
	if problem := tooLarge(v); problem != "" {
		e.d.fail(Diagnostic{Summary: what + ": " + problem}, x.Range())
		return cty.NilVal, false
	}
	return v, true
}

// undeclared reports references to locals and variables that there are not.
func (e *evaluator) undeclared(x hclsyntax.Expression, ctx *hcl.EvalContext) bool {
	found := false
	for _, t := range x.Variables() {
		root := t.RootName()
		if ctx == nil || len(t) < 2 || root != "local" && root != "var" {
			continue
		}
		step, ok := t[1].(hcl.TraverseAttr)
		known := e.ctx.Variables[root]
		if !ok || known == cty.NilVal || known.Type().HasAttribute(step.Name) {
			continue
		}
		found = true
		kind, hint := "local", "write it into a locals block"
		if root == "var" {
			kind, hint = "variable", fmt.Sprintf("declare it: variable %q { default = … }", step.Name)
		}
		if near := nearest(step.Name, slices.Collect(maps.Keys(known.Type().AttributeTypes()))); near != "" {
			hint = fmt.Sprintf("did you mean %s.%s?", root, near)
		}
		e.d.fail(Diagnostic{Summary: kind + " " + quote(step.Name) + " is not declared", Hint: hint}, t.SourceRange())
	}
	return found
}

// computes says whether an expression refers to something that a policy can
// compute. What does not is left to the decoder, which says what was meant.
func computes(x hclsyntax.Expression, ctx *hcl.EvalContext) bool {
	found := false
	for _, t := range x.Variables() {
		for c := ctx; c != nil; c = c.Parent() {
			if _, ok := c.Variables[t.RootName()]; ok && len(t) > 1 {
				found = true
			}
		}
	}
	if found {
		return true
	}
	call := false
	_ = hclsyntax.VisitAll(x, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.FunctionCallExpr:
			if _, ok := functions()[n.Name]; ok {
				call = true
			}
		case *hclsyntax.ForExpr, *hclsyntax.ConditionalExpr:
			call = true
		}
		return nil
	})
	return call
}

// written returns the expression that writes a value out, in the place of the
// one that it came from.
func written(v cty.Value, at hcl.Range) hclsyntax.Expression {
	t := v.Type()
	switch {
	case v.IsNull():
		return &hclsyntax.LiteralValueExpr{Val: cty.NullVal(cty.DynamicPseudoType), SrcRange: at}
	case t.IsTupleType() || t.IsListType() || t.IsSetType():
		out := &hclsyntax.TupleConsExpr{SrcRange: at, OpenRange: at}
		for it := v.ElementIterator(); it.Next(); {
			_, x := it.Element()
			out.Exprs = append(out.Exprs, written(x, at))
		}
		return out
	case t.IsObjectType() || t.IsMapType():
		out := &hclsyntax.ObjectConsExpr{SrcRange: at, OpenRange: at}
		for it := v.ElementIterator(); it.Next(); {
			k, x := it.Element()
			out.Items = append(out.Items, hclsyntax.ObjectConsItem{
				KeyExpr:   &hclsyntax.ObjectConsKeyExpr{Wrapped: &hclsyntax.LiteralValueExpr{Val: k, SrcRange: at}},
				ValueExpr: written(x, at),
			})
		}
		return out
	}
	return &hclsyntax.LiteralValueExpr{Val: v, SrcRange: at}
}

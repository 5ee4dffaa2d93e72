package policyfile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// blocks returns blocks as they would be written out: dynamic blocks
// expanded, expressions evaluated.
func (e *evaluator) blocks(list hclsyntax.Blocks, ctx *hcl.EvalContext) hclsyntax.Blocks {
	changed := false
	out := make(hclsyntax.Blocks, 0, len(list))
	for _, b := range list {
		if b.Type == "dynamic" {
			changed = true
			out = append(out, e.dynamic(b, ctx)...)
			continue
		}
		body := e.body(b.Body, ctx)
		if body == b.Body {
			out = append(out, b)
			continue
		}
		changed = true
		copied := *b
		copied.Body = body
		out = append(out, &copied)
	}
	if !changed {
		return list
	}
	return out
}

// body returns a body as it would be written out; the same one when it is.
func (e *evaluator) body(b *hclsyntax.Body, ctx *hcl.EvalContext) *hclsyntax.Body {
	out := *b
	copied := false
	for name, a := range b.Attributes {
		if plainExpr(a.Expr) || !computes(a.Expr, ctx) {
			continue
		}
		if !copied {
			copied = true
			out.Attributes = maps.Clone(b.Attributes)
		}
		v, ok := e.value(name, a.Expr, ctx)
		if !ok {
			delete(out.Attributes, name) // its fault has been reported
			e.d.lost = true
			continue
		}
		x := *a
		x.Expr = written(v, a.Expr.Range())
		out.Attributes[name] = &x
	}
	out.Blocks = e.blocks(b.Blocks, ctx)
	if !copied && len(out.Blocks) == len(b.Blocks) && slices.Equal(out.Blocks, b.Blocks) {
		return b
	}
	return &out
}

// dynamic expands a dynamic block: one block for each element of for_each.
func (e *evaluator) dynamic(b *hclsyntax.Block, ctx *hcl.EvalContext) hclsyntax.Blocks {
	kind, at, ok := e.d.label(b, "allow")
	if !ok {
		return nil
	}
	attrs := b.Body.Attributes
	for name, a := range attrs {
		if !slices.Contains([]string{"for_each", "iterator", "labels"}, name) {
			e.d.fail(Diagnostic{Summary: "a dynamic block has no attribute " + quote(name), Hint: "attributes of the blocks that it makes stand in its content block"}, a.NameRange)
			return nil
		}
	}
	if len(b.Body.Blocks) != 1 || b.Body.Blocks[0].Type != "content" {
		e.d.fail(Diagnostic{Summary: "a dynamic block holds one content block", Hint: "write content { … }"}, header(b))
		return nil
	}
	if attrs["for_each"] == nil {
		e.d.fail(Diagnostic{Summary: "a dynamic block needs for_each", Hint: "add for_each = [ … ]"}, header(b))
		return nil
	}
	each, ok := e.value("for_each", attrs["for_each"].Expr, ctx)
	if !ok {
		e.d.lost = true
		return nil
	}
	if each.IsNull() || !each.CanIterateElements() {
		e.d.fail(Diagnostic{Summary: "for_each must be a list, a set or a map"}, attrs["for_each"].Expr.Range())
		return nil
	}
	iterator := kind
	if a := attrs["iterator"]; a != nil {
		if iterator = hcl.ExprAsKeyword(a.Expr); iterator == "" || iterator == "local" || iterator == "var" {
			e.d.fail(Diagnostic{Summary: "iterator must be a name without quotes, and not local or var"}, a.Expr.Range())
			return nil
		}
	}
	var out hclsyntax.Blocks
	for it := each.ElementIterator(); it.Next(); {
		if e.expanded++; e.expanded > maxExpanded {
			if e.expanded == maxExpanded+1 {
				e.d.fail(Diagnostic{Summary: fmt.Sprintf("dynamic blocks make more than %d blocks", maxExpanded)}, header(b))
			}
			return nil
		}
		key, value := it.Element()
		if each.Type().IsSetType() {
			key = value
		}
		child := ctx.NewChild()
		child.Variables = map[string]cty.Value{iterator: cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})}
		if x := e.made(b, kind, at, child); x != nil {
			out = append(out, x)
		}
	}
	return out
}

// made is one block of a dynamic block. It stands where the dynamic block
// does.
func (e *evaluator) made(b *hclsyntax.Block, kind string, at hcl.Range, ctx *hcl.EvalContext) *hclsyntax.Block {
	content := b.Body.Blocks[0]
	x := &hclsyntax.Block{Type: kind, Body: e.body(content.Body, ctx), TypeRange: at,
		OpenBraceRange: content.OpenBraceRange, CloseBraceRange: b.CloseBraceRange}
	a := b.Body.Attributes["labels"]
	if a == nil {
		return x
	}
	labels, ok := e.value("labels", a.Expr, ctx)
	if !ok {
		return nil
	}
	if labels.IsNull() || !labels.CanIterateElements() || labels.Type().IsMapType() || labels.Type().IsObjectType() {
		e.d.fail(Diagnostic{Summary: "labels must be a list of strings"}, a.Expr.Range())
		return nil
	}
	for it := labels.ElementIterator(); it.Next(); {
		_, v := it.Element()
		if !isType(v, cty.String) {
			e.d.fail(Diagnostic{Summary: "labels must be a list of strings"}, a.Expr.Range())
			return nil
		}
		x.Labels = append(x.Labels, v.AsString())
		x.LabelRanges = append(x.LabelRanges, at)
	}
	return x
}

package policyfile

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// maxPlaced is how many problems of a file are placed at their values: each
// search reads all blocks, and nobody reads so many.
const maxPlaced = 100

// placeProblem moves x, which is at the beginning of a block, to the value in
// it that the problem is about. It stays where it is if the block does not hold
// that value as it is written, but as a result of something.
func (d *Diagnostics) placeProblem(x *Diagnostic, p policy.Problem) {
	t := d.files[p.Pos.File]
	if p.Attr == "" || t == nil || t.placed == maxPlaced {
		return
	}
	if t.placed++; t.body == nil {
		t.body, _ = parseHCL(t.data, p.Pos.File, hcl.InitialPos) // what could be read of it
	}
	if t.body == nil {
		return
	}
	b := blockAt(t.body, p.Pos)
	if b == nil || b.Body.Attributes[p.Attr] == nil {
		return
	}
	if r, ok := rangeOf(b.Body.Attributes[p.Attr].Expr, p.Value); ok {
		x.at(r)
	}
}

// blockAt finds the block whose type stands at a place.
func blockAt(body *hclsyntax.Body, at policy.Pos) *hclsyntax.Block {
	for _, b := range body.Blocks {
		if pos(b.TypeRange) == at {
			return b
		}
		if b.TypeRange.Start.Line <= at.Line && at.Line <= b.CloseBraceRange.End.Line {
			if inner := blockAt(b.Body, at); inner != nil {
				return inner
			}
		}
	}
	return nil
}

// rangeOf is where a text stands in an expression: as the whole of it, or as an
// element of its list.
func rangeOf(e hclsyntax.Expression, value string) (hcl.Range, bool) {
	if list, ok := e.(*hclsyntax.TupleConsExpr); ok {
		for _, x := range list.Exprs {
			if r, ok := rangeOf(x, value); ok {
				return r, true
			}
		}
		return hcl.Range{}, false
	}
	s, ok := literalString(e)
	return e.Range(), ok && s == value
}

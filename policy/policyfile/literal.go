package policyfile

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// element is one string of a list, with its place.
type element struct {
	value string
	at    hcl.Range
}

// text returns the string that e writes out, if e is a literal string. A
// heredoc is one; a template that holds an expression is not.
func literalString(e hclsyntax.Expression) (string, bool) {
	switch e := e.(type) {
	case *hclsyntax.TemplateExpr:
		var b strings.Builder
		for _, part := range e.Parts {
			lit, ok := part.(*hclsyntax.LiteralValueExpr)
			if !ok || !isType(lit.Val, cty.String) {
				return "", false
			}
			b.WriteString(lit.Val.AsString())
		}
		return b.String(), true
	case *hclsyntax.LiteralValueExpr:
		if isType(e.Val, cty.String) {
			return e.Val.AsString(), true
		}
	}
	return "", false
}

// isType says whether v is a known value of type t and not null.
func isType(v cty.Value, t cty.Type) bool {
	return v != cty.NilVal && v.Type() == t && v.IsKnown() && !v.IsNull()
}

// literalNumber returns the number that e writes out, with its sign.
func literalNumber(e hclsyntax.Expression) (*big.Float, bool) {
	switch e := e.(type) {
	case *hclsyntax.LiteralValueExpr:
		if isType(e.Val, cty.Number) {
			return e.Val.AsBigFloat(), true
		}
	case *hclsyntax.UnaryOpExpr:
		if e.Op == hclsyntax.OpNegate {
			if lit, ok := e.Val.(*hclsyntax.LiteralValueExpr); ok && isType(lit.Val, cty.Number) {
				return new(big.Float).Neg(lit.Val.AsBigFloat()), true
			}
		}
	}
	return nil, false
}

// string decodes a string.
func (d *decoder) string(name string, e hclsyntax.Expression) (string, bool) {
	s, ok := literalString(e)
	if !ok {
		d.mismatch(e, name, "a string", "")
	}
	return s, ok
}

// bool decodes true or false.
func (d *decoder) bool(name string, e hclsyntax.Expression) (value, ok bool) {
	if lit, is := e.(*hclsyntax.LiteralValueExpr); is && isType(lit.Val, cty.Bool) {
		return lit.Val.True(), true
	}
	hint := ""
	if s, is := literalString(e); is && (s == "true" || s == "false") {
		hint = "write it without quotes: " + s
	}
	d.mismatch(e, name, "true or false", hint)
	return false, false
}

// int decodes a whole number from least to most.
func (d *decoder) int(name string, e hclsyntax.Expression, least, most int64) (int64, bool) {
	n, ok := literalNumber(e)
	if !ok {
		hint := ""
		if s, is := literalString(e); is && s != "" && strings.Trim(s, "0123456789") == "" {
			hint = "write it without quotes: " + clip(s, 20)
		}
		d.mismatch(e, name, "a whole number", hint)
		return 0, false
	}
	v, acc := n.Int64()
	if acc != big.Exact || v < least || v > most {
		d.fail(Diagnostic{Summary: fmt.Sprintf("%s must be a whole number from %d to %d", name, least, most)}, e.Range())
		return 0, false
	}
	return v, true
}

// elements decodes a list of strings. Elements that are strings are returned
// even when others are not, with ok false.
func (d *decoder) elements(name string, e hclsyntax.Expression) (list []element, ok bool) {
	const want = "a list of strings"
	tuple, is := e.(*hclsyntax.TupleConsExpr)
	if !is {
		hint := ""
		if s, str := literalString(e); str {
			hint = "put it in brackets: [" + quote(s) + "]"
		}
		d.mismatch(e, name, want, hint)
		return nil, false
	}
	ok = true
	list = make([]element, 0, len(tuple.Exprs))
	for _, x := range tuple.Exprs {
		s, is := literalString(x)
		if !is {
			d.mismatch(x, name, want, "")
			ok = false
			continue
		}
		list = append(list, element{s, x.Range()})
	}
	return list, ok
}

// some is elements for a list that may be left out but not be empty: an
// absent list means "any" or "the usual ones", and an empty one must not.
func (d *decoder) some(name string, e hclsyntax.Expression) ([]element, bool) {
	list, ok := d.elements(name, e)
	if ok && len(list) == 0 {
		d.empty(name, e)
		return nil, false
	}
	return list, ok
}

// empty reports a list that must not be empty.
func (d *decoder) empty(name string, e hclsyntax.Expression) {
	d.fail(Diagnostic{
		Summary: name + " must not be an empty list",
		Detail:  "An empty list never means everything.",
		Hint:    "list what is meant, or leave " + name + " out for its default",
	}, e.Range())
}

// strings is some without the places.
func (d *decoder) strings(name string, e hclsyntax.Expression) []string {
	list, _ := d.some(name, e)
	return values(list)
}

// values returns the strings of a list; nil for none.
func values(list []element) []string {
	if len(list) == 0 {
		return nil
	}
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = x.value
	}
	return out
}

// stringMap decodes a map of strings.
func (d *decoder) stringMap(name string, e hclsyntax.Expression) (map[string]string, bool) {
	const want = "a map of strings"
	object, is := e.(*hclsyntax.ObjectConsExpr)
	if !is {
		d.mismatch(e, name, want, "write "+name+` = { key = "value" }`)
		return nil, false
	}
	ok := true
	out := make(map[string]string, len(object.Items))
	where := make(map[string]hcl.Range, len(object.Items))
	for _, item := range object.Items {
		key, is := mapKey(item.KeyExpr)
		if !is {
			d.fail(Diagnostic{Summary: "a key of " + name + " must be a word or a string"}, item.KeyExpr.Range())
			ok = false
			continue
		}
		value, is := literalString(item.ValueExpr)
		if !is {
			d.mismatch(item.ValueExpr, name, want, "")
			ok = false
			continue
		}
		if first, dup := where[key]; dup {
			d.fail(Diagnostic{
				Summary: fmt.Sprintf("key %s of %s is written twice", quote(key), name),
				Related: []Note{note(first, "first written here")},
			}, item.KeyExpr.Range())
			ok = false
			continue
		}
		where[key], out[key] = item.KeyExpr.Range(), value
	}
	return out, ok
}

// mapKey returns the key that e writes out, as a bare word or in quotes.
func mapKey(e hclsyntax.Expression) (string, bool) {
	key, ok := e.(*hclsyntax.ObjectConsKeyExpr)
	if !ok {
		return "", false
	}
	if word := hcl.ExprAsKeyword(key); word != "" {
		return word, true
	}
	return literalString(key.Wrapped)
}

// mismatch reports an expression that is not what an attribute wants.
func (d *decoder) mismatch(e hclsyntax.Expression, name, want, hint string) {
	found, advice := describe(e)
	if hint == "" {
		hint = advice
	}
	d.fail(Diagnostic{
		Summary: fmt.Sprintf("%s must be %s", name, want),
		Detail:  "This is " + found + ".",
		Hint:    hint,
	}, e.Range())
}

// describe says in words what an expression is, and what to do about one that
// a policy does not have.
func describe(e hclsyntax.Expression) (found, hint string) {
	const evaluates = "write the value out, or refer to it as local.NAME or var.NAME"
	if n, ok := literalNumber(e); ok {
		if n.Sign() < 0 {
			return "a negative number", ""
		}
		return "a number", ""
	}
	if _, ok := literalString(e); ok {
		return "a string", ""
	}
	switch e := e.(type) {
	case *hclsyntax.LiteralValueExpr:
		if isType(e.Val, cty.Bool) {
			return "a truth value", ""
		}
		return "null", "leave the attribute out instead"
	case *hclsyntax.TupleConsExpr:
		return "a list", ""
	case *hclsyntax.ObjectConsExpr:
		return "a map", ""
	case *hclsyntax.TemplateExpr, *hclsyntax.TemplateWrapExpr, *hclsyntax.TemplateJoinExpr:
		return "a template", "a template can hold local.NAME and var.NAME; for the text ${ itself write $${, and for %{ write %%{"
	case *hclsyntax.ScopeTraversalExpr:
		if word := hcl.ExprAsKeyword(e); word != "" {
			return "a name without quotes", fmt.Sprintf("if the text is meant, put it in quotes: %s", quote(word))
		}
		return "a reference to a variable", evaluates
	case *hclsyntax.FunctionCallExpr:
		return "a function call", "the functions are " + list(slices.Collect(maps.Keys(functions())))
	}
	return "an expression", evaluates
}

package policyfile

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// header returns the range of a block's type and labels.
func header(b *hclsyntax.Block) hcl.Range {
	r := b.TypeRange
	if n := len(b.LabelRanges); n > 0 {
		r = hcl.RangeBetween(r, b.LabelRanges[n-1])
	}
	return r
}

// label returns the one label of a block and where it stands. A block of a
// type that has a label must have exactly one.
func (d *decoder) label(b *hclsyntax.Block, example string) (string, hcl.Range, bool) {
	switch {
	case len(b.Labels) == 0:
		d.fail(Diagnostic{
			Summary: article(b.Type) + " block needs a label",
			Hint:    fmt.Sprintf("write %s %q { … }", b.Type, example),
		}, header(b))
	case len(b.Labels) > 1:
		d.fail(Diagnostic{
			Summary: article(b.Type) + " block has more than one label",
			Hint:    "write one block for each",
		}, hcl.RangeBetween(b.LabelRanges[1], b.LabelRanges[len(b.LabelRanges)-1]))
	case b.Labels[0] == "":
		d.fail(Diagnostic{Summary: "the label of " + article(b.Type) + " block must not be empty"}, b.LabelRanges[0])
	default:
		return b.Labels[0], b.LabelRanges[0], true
	}
	return "", hcl.Range{}, false
}

// noLabel reports labels on a block that has none.
func (d *decoder) noLabel(b *hclsyntax.Block) {
	if len(b.Labels) > 0 {
		d.fail(Diagnostic{
			Summary: article(b.Type) + " block takes no label",
			Hint:    "write " + b.Type + " { … }",
		}, hcl.RangeBetween(b.LabelRanges[0], b.LabelRanges[len(b.LabelRanges)-1]))
	}
}

// declare notes the name of a top-level block and reports one that is
// declared twice, with both places. It returns false for a second
// declaration.
func (d *decoder) declare(b *hclsyntax.Block, name string) bool {
	at := header(b)
	first, dup := d.names[b.Type][name]
	if !dup {
		d.name(declaration{b.Type, name, at})
		return true
	}
	what := fmt.Sprintf("%s %s", b.Type, quote(name))
	if name == "" {
		what = b.Type
	}
	d.fail(Diagnostic{
		Summary: what + " is declared twice",
		Related: []Note{note(first, "first declared here")},
	}, at)
	return false
}

// once returns a function that reports the second block of a type within one
// body, with both places.
func (d *decoder) once() func(*hclsyntax.Block) bool {
	seen := map[string]hcl.Range{}
	return func(b *hclsyntax.Block) bool {
		first, dup := seen[b.Type]
		if dup {
			d.fail(Diagnostic{
				Summary: b.Type + " is written twice in one block",
				Related: []Note{note(first, "first written here")},
			}, header(b))
			return false
		}
		seen[b.Type] = header(b)
		return true
	}
}

// plainName says whether s can name a sandbox, a group and the like: letters,
// digits, ".", "_" and "-", at most 63, the first a letter or digit.
func plainName(s string) bool {
	for i, r := range s {
		alnum := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._-", r)) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}

// named decodes the label of a top-level block whose name is a plain one, and
// declares it.
func (d *decoder) named(b *hclsyntax.Block, example string) (string, bool) {
	name, at, ok := d.label(b, example)
	if !ok {
		d.lost = true
		return "", false
	}
	d.context = fmt.Sprintf("%s %s", b.Type, quote(name))
	if !plainName(name) {
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("%s cannot be the name of a %s", quote(name), b.Type),
			Detail:  `A name has letters, digits, ".", "_" and "-", at most 63 of them, and begins with a letter or digit.`,
		}, at)
		d.lost = true
	}
	return name, d.declare(b, name)
}

package policyfile

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxPasses bounds how often one file is taken up again after a syntax error.
const maxPasses = 20

// passes parses and decodes a file and returns the number of its parts. The
// HCL parser gives up at a syntax error, so the file is taken up again at the
// next line that begins a top-level block: one slip does not hide the
// problems behind it.
func (d *decoder) passes(data []byte, name string) int {
	parts := 0
	at := hcl.InitialPos
	for range maxPasses {
		f, problems := hclsyntax.ParseConfig(data[at.Byte:], name, at)
		body, ok := f.Body.(*hclsyntax.Body)
		if !ok {
			return parts
		}
		damage := damaged(problems)
		next := hcl.Pos{Byte: len(data)}
		if len(damage) > 0 {
			next = d.resume(data, damage[0].Start)
		}
		d.diags.addHCL(before(problems, next.Byte))
		d.lost = d.lost || problems.HasErrors()
		d.file(until(body, next.Byte), damage)
		parts += len(body.Blocks) + len(body.Attributes)
		if next.Byte >= len(data) {
			return parts
		}
		at = next
	}
	return parts
}

// damaged returns the places of syntax errors that the parser did not
// understand the text behind, in order.
func damaged(problems hcl.Diagnostics) []hcl.Range {
	var out []hcl.Range
	for _, p := range problems {
		if p.Subject != nil && p.Severity == hcl.DiagError && p.Summary != "Attribute redefined" {
			out = append(out, *p.Subject)
		}
	}
	slices.SortFunc(out, func(a, b hcl.Range) int { return cmp.Compare(a.Start.Byte, b.Start.Byte) })
	return out
}

// resume returns the start of the first line behind from that begins a
// top-level block, or the end of data.
func (d *decoder) resume(data []byte, from hcl.Pos) hcl.Pos {
	line := from.Line
	for off := from.Byte; ; {
		i := bytes.IndexByte(data[off:], '\n')
		if i < 0 {
			return hcl.Pos{Byte: len(data)}
		}
		off += i + 1
		line++
		word, _, _ := strings.Cut(string(data[off:min(len(data), off+16)]), " ")
		if slices.Contains(d.lang.file.blocks, strings.TrimRight(word, "{\r\n")) {
			return hcl.Pos{Line: line, Column: 1, Byte: off}
		}
	}
}

// before returns the problems that begin before the byte end. One at the end
// of the file belongs to what stands before it.
func before(problems hcl.Diagnostics, end int) hcl.Diagnostics {
	return slices.DeleteFunc(slices.Clone(problems), func(p *hcl.Diagnostic) bool {
		return p.Subject != nil && p.Subject.Start.Byte > end
	})
}

// until returns what of body begins before the byte end.
func until(body *hclsyntax.Body, end int) *hclsyntax.Body {
	out := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}}
	for name, a := range body.Attributes {
		if a.NameRange.Start.Byte < end {
			out.Attributes[name] = a
		}
	}
	for _, b := range body.Blocks {
		if b.TypeRange.Start.Byte < end {
			out.Blocks = append(out.Blocks, b)
		}
	}
	return out
}

package policyfile

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// text parses and decodes the text of a file and returns the number of its
// parts. The HCL parser gives up at a syntax error, so a file that has one is
// parsed again in pieces, from one top-level block to the next: a slip in one
// block does not hide the problems of the others, and a brace that is missing
// is reported where it is missing.
func (d *decoder) text(data []byte, name string) int {
	body, problems := parseHCL(data, name, hcl.InitialPos)
	if !problems.HasErrors() {
		d.file(body, nil)
		return len(body.Blocks) + len(body.Attributes)
	}
	errors := 0
	starts := append(d.starts(data), hcl.Pos{Byte: len(data)})
	for i, at := range starts[:len(starts)-1] {
		piece, found := parseHCL(data[at.Byte:starts[i+1].Byte], name, at)
		damage := damaged(found)
		found = credible(found, damage)
		errors += len(found.Errs())
		d.diags.addHCL(found)
		d.file(piece, damage)
	}
	if errors == 0 {
		d.diags.addHCL(credible(problems, damaged(problems)))
	}
	d.lost = true
	return 1
}

// parseHCL parses a piece of a file that begins at a place of it.
func parseHCL(data []byte, name string, at hcl.Pos) (*hclsyntax.Body, hcl.Diagnostics) {
	f, problems := hclsyntax.ParseConfig(data, name, at)
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok {
		body = &hclsyntax.Body{}
	}
	return body, problems
}

// starts returns the start of the file and of every other line that begins a
// top-level block.
func (d *decoder) starts(data []byte) []hcl.Pos {
	out := []hcl.Pos{hcl.InitialPos}
	for off, line := 0, 1; ; line++ {
		i := bytes.IndexByte(data[off:], '\n')
		if i < 0 {
			return out
		}
		off += i + 1
		word, _, _ := strings.Cut(string(data[off:min(len(data), off+16)]), " ")
		if slices.Contains(d.lang.file.blocks, strings.TrimRight(word, "{\r\n")) {
			out = append(out, hcl.Pos{Line: line + 1, Column: 1, Byte: off})
		}
	}
}

// damaged returns the places of the errors behind which the parser did not
// understand the text, in order.
func damaged(problems hcl.Diagnostics) []hcl.Range {
	var out []hcl.Range
	for _, p := range problems {
		if p.Subject != nil && damages(p) {
			out = append(out, *p.Subject)
		}
	}
	slices.SortFunc(out, func(a, b hcl.Range) int { return cmp.Compare(a.Start.Byte, b.Start.Byte) })
	return out
}

// damages says whether p is about text that the parser did not understand.
func damages(p *hcl.Diagnostic) bool {
	return p.Severity == hcl.DiagError && p.Summary != "Attribute redefined"
}

// credible returns the problems without those that follow from the first
// damage.
func credible(problems hcl.Diagnostics, damage []hcl.Range) hcl.Diagnostics {
	told := false
	return slices.DeleteFunc(slices.Clone(problems), func(p *hcl.Diagnostic) bool {
		if !damages(p) || p.Subject == nil {
			return false
		}
		if told || p.Subject.Start.Byte > damage[0].Start.Byte {
			return true
		}
		told = true
		return false
	})
}

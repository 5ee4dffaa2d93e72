package policyfile

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// Diagnostic is one problem of a policy. Its texts quote at most a short piece
// of the file and never a secret: a policy holds none.
type Diagnostic struct {
	Severity policy.Severity
	Summary  string     // what is wrong, on one line
	Detail   string     // why, or what was found; may be empty
	Hint     string     // what to do; may be empty
	Context  string     // the block around it: `sandbox "ci"`; may be empty
	Pos      policy.Pos // Line 0: the file as a whole; no File: the policy as a whole
	End      policy.Pos // just past the end, for marking
	Related  []Note

	span  span
	elide bool // do not show what stands after the "=" on the line
}

// Note is another place that belongs to a diagnostic.
type Note struct {
	Pos     policy.Pos
	Message string

	span span
}

// span is a half-open range of bytes of a file; empty when it is not known.
type span struct{ start, end int }

// Diagnostics are all problems of a policy, with the text of the files they
// are in. The zero value has none.
type Diagnostics struct {
	list  []Diagnostic
	files map[string]*text
	order map[string]int // place of a file in the policy
}

// text is one file as it is shown.
type text struct {
	data  []byte
	lines []int // offsets of line starts; filled on first use

	body   *hclsyntax.Body // of data; filled on first use
	placed int             // how many problems were looked for in it
}

// HasErrors says whether the policy must not be used.
func (d *Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(d.list, func(x Diagnostic) bool { return x.Severity == policy.Error })
}

// Len returns the number of diagnostics.
func (d *Diagnostics) Len() int { return len(d.list) }

// List returns the diagnostics, ordered by file and place.
func (d *Diagnostics) List() []Diagnostic {
	d.sort()
	return slices.Clone(d.list)
}

// Err returns the first error and the number of others as one line, or nil
// when there is no error.
func (d *Diagnostics) Err() error {
	d.sort()
	var first *Diagnostic
	n := 0
	for i := range d.list {
		if d.list[i].Severity != policy.Error {
			continue
		}
		if n++; first == nil {
			first = &d.list[i]
		}
	}
	switch {
	case first == nil:
		return nil
	case n == 1:
		return fmt.Errorf("%s%s", place(first.Pos), first.Summary)
	}
	return fmt.Errorf("%s%s (and %d more)", place(first.Pos), first.Summary, n-1)
}

// place returns "file:line:column: ", as much of it as is known.
func place(p policy.Pos) string {
	switch {
	case p.File == "":
		return ""
	case p.Line == 0:
		return p.File + ": "
	}
	return fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
}

func (d *Diagnostics) add(x Diagnostic) { d.list = append(d.list, x) }

// addFile makes the text of a file known, so that snippets can be shown.
func (d *Diagnostics) addFile(name string, data []byte) {
	if d.files == nil {
		d.files = map[string]*text{}
		d.order = map[string]int{}
	}
	if _, ok := d.order[name]; !ok {
		d.order[name] = len(d.order)
	}
	d.files[name] = &text{data: data}
}

// sort orders the diagnostics by file, in the order the files were read, and
// by place. Problems of the policy as a whole come first.
func (d *Diagnostics) sort() {
	rank := func(p policy.Pos) int {
		if p.File == "" {
			return -1
		}
		if n, ok := d.order[p.File]; ok {
			return n
		}
		return len(d.order)
	}
	slices.SortStableFunc(d.list, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(rank(a.Pos), rank(b.Pos)),
			cmp.Compare(a.Pos.File, b.Pos.File),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
			cmp.Compare(a.Summary, b.Summary),
			cmp.Compare(a.Detail, b.Detail),
		)
	})
}

// addHCL takes over what the HCL parser found.
func (d *Diagnostics) addHCL(diags hcl.Diagnostics) {
	for _, x := range diags {
		y := Diagnostic{Summary: lowerFirst(x.Summary), Detail: clip(x.Detail, 400)}
		if x.Summary == "Invalid string literal" && strings.HasPrefix(x.Detail, "Template sequences") {
			y.Hint = "a label is as it is written; a dynamic block makes blocks whose labels are computed: labels = [\"…\"]"
		}
		if x.Severity == hcl.DiagWarning {
			y.Severity = policy.Warning
		}
		if x.Subject != nil {
			y.at(*x.Subject)
		}
		d.add(y)
	}
}

// at places the diagnostic at r.
func (x *Diagnostic) at(r hcl.Range) {
	x.Pos, x.End = pos(r), policy.Pos{File: r.Filename, Line: r.End.Line, Column: r.End.Column}
	x.span = span{r.Start.Byte, r.End.Byte}
}

// note makes a Note of r.
func note(r hcl.Range, message string) Note {
	return Note{Pos: pos(r), Message: message, span: span{r.Start.Byte, r.End.Byte}}
}

// pos returns the start of r.
func pos(r hcl.Range) policy.Pos {
	return policy.Pos{File: r.Filename, Line: r.Start.Line, Column: r.Start.Column}
}

// line returns the text of line n, from 1, and the offset of its first byte.
func (t *text) line(n int) (string, int) {
	if t == nil || n < 1 {
		return "", 0
	}
	if t.lines == nil {
		t.lines = []int{0}
		for off := 0; ; {
			i := bytes.IndexByte(t.data[off:], '\n')
			if i < 0 {
				break
			}
			off += i + 1
			t.lines = append(t.lines, off)
		}
	}
	if n > len(t.lines) {
		return "", len(t.data)
	}
	start := t.lines[n-1]
	end := len(t.data)
	if n < len(t.lines) {
		end = t.lines[n] - 1
	}
	return string(bytes.TrimSuffix(t.data[start:end], []byte{'\r'})), start
}

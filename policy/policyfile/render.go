package policyfile

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport/policy"
)

// palette holds the escape sequences of a coloured report; all empty without
// colour.
type palette struct{ bold, red, yellow, dim, off string }

// newPalette returns the sequences for a terminal, or none.
func newPalette(color bool) palette {
	if !color {
		return palette{}
	}
	return palette{bold: "\x1b[1m", red: "\x1b[31m", yellow: "\x1b[33m", dim: "\x1b[2m", off: "\x1b[0m"}
}

// WriteText writes the diagnostics for a person: what is wrong, where, the one
// line of the file it is on with the place marked, and what to do. Text from
// the files is escaped, so that it cannot steer a terminal.
func (d *Diagnostics) WriteText(w io.Writer, color bool) error {
	d.sort()
	var b strings.Builder
	for i := range d.list {
		if i > 0 {
			b.WriteByte('\n')
		}
		d.writeOne(&b, &d.list[i], newPalette(color))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeOne writes one diagnostic.
func (d *Diagnostics) writeOne(b *strings.Builder, x *Diagnostic, p palette) {
	hue, word := p.red, "Error"
	if x.Severity == policy.Warning {
		hue, word = p.yellow, "Warning"
	}
	fmt.Fprintf(b, "%s%s%s:%s %s%s%s\n", p.bold, hue, word, p.off, p.bold, visible(x.Summary), p.off)
	if x.Pos.File != "" {
		fmt.Fprintf(b, "\n  on %s", strings.TrimSuffix(visible(place(x.Pos)), ": "))
		if x.Context != "" {
			fmt.Fprintf(b, ", in %s", visible(x.Context))
		}
		b.WriteString(":\n")
		d.writeSnippet(b, d.snippet(x.Pos, x.End, x.span, x.elide), hue, p)
	}
	for _, n := range x.Related {
		fmt.Fprintf(b, "\n  %s: %s\n", visible(n.Message), strings.TrimSuffix(visible(place(n.Pos)), ": "))
		d.writeSnippet(b, d.snippet(n.Pos, policy.Pos{}, n.span, false), p.dim, p)
	}
	if x.Detail != "" || x.Hint != "" {
		b.WriteByte('\n')
	}
	if x.Detail != "" {
		fmt.Fprintf(b, "  %s\n", visible(x.Detail))
	}
	if x.Hint != "" {
		fmt.Fprintf(b, "  %shint:%s %s\n", p.bold, p.off, visible(x.Hint))
	}
}

// writeSnippet writes a line of a file and the mark below it.
func (d *Diagnostics) writeSnippet(b *strings.Builder, s snippet, hue string, p palette) {
	if s.text == "" {
		return
	}
	number := fmt.Sprintf("%4d", s.line)
	fmt.Fprintf(b, "  %s%s:%s %s\n", p.dim, number, p.off, s.text)
	fmt.Fprintf(b, "  %s  %s%s%s%s\n", strings.Repeat(" ", len(number)), strings.Repeat(" ", s.column),
		hue, strings.Repeat("^", s.width), p.off)
}

// snippet is one line of a file, escaped, with the part that a diagnostic is
// about.
type snippet struct {
	line          int
	text          string
	column, width int // of the mark, in runes of text, from 0
}

// maxSnippet is how many runes of a line are shown.
const maxSnippet = 160

// snippet returns the line of start, with the range marked as far as it is on
// that line. Without a known range the mark is on the word at start. With
// elide, nothing behind the "=" after the mark is shown: it could be a value
// that belongs in a secret source.
func (d *Diagnostics) snippet(start, end policy.Pos, at span, elide bool) snippet {
	line, offset := d.files[start.File].line(start.Line)
	if line == "" {
		return snippet{}
	}
	from, to := at.start-offset, at.end-offset
	if at == (span{}) {
		from = byteColumn(line, start.Column)
		to = from + wordLength(line[from:])
		if end.Line == start.Line && end.Column > start.Column {
			to = byteColumn(line, end.Column)
		}
	}
	from = min(max(from, 0), len(line))
	to = min(max(to, from), len(line))
	if elide {
		if i := strings.IndexByte(line[to:], '='); i >= 0 && strings.TrimSpace(line[to+i+1:]) != "" {
			line = line[:to+i+1] + " …"
		}
	}
	before, marked, after := visible(line[:from]), visible(line[from:to]), visible(line[to:])
	s := snippet{line: start.Line, column: utf8.RuneCountInString(before), width: max(1, utf8.RuneCountInString(marked))}
	runes := []rune(before + marked + after)
	if len(runes) > maxSnippet {
		cut := max(0, min(s.column-maxSnippet/2, len(runes)-maxSnippet))
		s.column -= cut
		stop := min(len(runes), cut+maxSnippet)
		s.width = max(1, min(s.width, stop-cut-s.column))
		s.text = string(runes[cut:stop])
		return s
	}
	s.text = strings.TrimRight(string(runes), " ")
	return s
}

// byteColumn returns the offset of column n, from 1.
func byteColumn(line string, n int) int {
	for off := range line {
		if n--; n <= 0 {
			return off
		}
	}
	return len(line)
}

// wordLength returns how much of s is to be marked: a string in quotes, the
// header of a block, or a word.
func wordLength(s string) int {
	quoted := func(s string) int {
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return len(s)
	}
	if strings.HasPrefix(s, `"`) {
		return quoted(s)
	}
	n := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' })
	if n < 0 {
		return len(s)
	}
	for strings.HasPrefix(s[n:], ` "`) {
		n += 1 + quoted(s[n+1:])
	}
	return n
}

// visible returns s with everything escaped that a terminal would act on or
// not show: control and format characters and what is not UTF-8. A tab is
// two blanks.
func visible(s string) string {
	if printable(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\t':
			b.WriteString("  ")
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case printable(s[:n]):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[n:]
	}
	return b.String()
}

// severity returns "error" or "warning".
func severity(s policy.Severity) string {
	if s == policy.Warning {
		return "warning"
	}
	return "error"
}

// jsonDiagnostic is one line of WriteJSON.
type jsonDiagnostic struct {
	Severity  string     `json:"severity"`
	Summary   string     `json:"summary"`
	Detail    string     `json:"detail,omitempty"`
	Hint      string     `json:"hint,omitempty"`
	Context   string     `json:"context,omitempty"`
	File      string     `json:"file,omitempty"`
	Line      int        `json:"line,omitempty"`
	Column    int        `json:"column,omitempty"`
	EndLine   int        `json:"end_line,omitempty"`
	EndColumn int        `json:"end_column,omitempty"`
	Snippet   string     `json:"snippet,omitempty"`
	Related   []jsonNote `json:"related,omitempty"`
}

// jsonNote is another place of a jsonDiagnostic.
type jsonNote struct {
	Message string `json:"message"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
}

// WriteTextOf writes for a person one line that WriteJSON wrote elsewhere. The
// files are not at hand, so no line of them is shown.
func WriteTextOf(w io.Writer, line []byte, color bool) error {
	var j jsonDiagnostic
	if err := json.Unmarshal(line, &j); err != nil {
		return err
	}
	x := Diagnostic{Severity: policy.Error, Summary: j.Summary, Detail: j.Detail, Hint: j.Hint, Context: j.Context,
		Pos: policy.Pos{File: j.File, Line: j.Line, Column: j.Column}}
	if j.Severity == severity(policy.Warning) {
		x.Severity = policy.Warning
	}
	for _, n := range j.Related {
		x.Related = append(x.Related, Note{Pos: policy.Pos{File: n.File, Line: n.Line, Column: n.Column}, Message: n.Message})
	}
	return (&Diagnostics{list: []Diagnostic{x}}).WriteText(w, color)
}

// WriteJSON writes the diagnostics for a program, one JSON object a line.
// Lines and columns count from 1; a column is a character as a reader sees it.
func (d *Diagnostics) WriteJSON(w io.Writer) error {
	d.sort()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range d.list {
		x := &d.list[i]
		j := jsonDiagnostic{
			Severity: severity(x.Severity), Summary: x.Summary, Detail: x.Detail, Hint: x.Hint, Context: x.Context,
			File: x.Pos.File, Line: x.Pos.Line, Column: x.Pos.Column, EndLine: x.End.Line, EndColumn: x.End.Column,
			Snippet: d.snippet(x.Pos, x.End, x.span, x.elide).text,
		}
		for _, n := range x.Related {
			j.Related = append(j.Related, jsonNote{n.Message, n.Pos.File, n.Pos.Line, n.Pos.Column})
		}
		if err := enc.Encode(j); err != nil {
			return err
		}
	}
	return nil
}

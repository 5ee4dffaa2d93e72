package audit

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Format is a form in which events leave the log.
type Format string

const (
	FormatCompact Format = "compact" // a line for people
	FormatJSON    Format = "json"    // the record as the log has it
	FormatECS     Format = "ecs"     // Elastic Common Schema 8
	FormatOCSF    Format = "ocsf"    // Open Cybersecurity Schema Framework 1.3
	FormatCSV     Format = "csv"     // RFC 4180 with a header line, safe to open in a spreadsheet
)

// Formats lists every Format.
func Formats() []Format {
	return []Format{FormatCompact, FormatJSON, FormatECS, FormatOCSF, FormatOTLP, FormatCSV}
}

// Exporter writes events in one format, one a line.
type Exporter struct {
	write func(e *Event) error
	flush func() error
}

// NewExporter returns an Exporter to w. Hostile text cannot break its output:
// all but the compact form is printable ASCII.
func NewExporter(w io.Writer, f Format, color bool) (*Exporter, error) {
	x := &Exporter{flush: func() error { return nil }}
	switch f {
	case FormatCompact:
		out := &errWriter{w: w}
		x.write = func(e *Event) error {
			Compact(out, e, color)
			return out.err
		}
	case FormatJSON:
		x.write = func(e *Event) error {
			_, err := w.Write(append(appendBody(appendHead(nil, e), e), '\n'))
			return err
		}
	case FormatECS:
		x.write = func(e *Event) error { return writeJSON(w, ecs(e)) }
	case FormatOCSF:
		x.write = func(e *Event) error { return writeJSON(w, ocsf(e)) }
	case FormatOTLP:
		x.write = func(e *Event) error {
			b, err := OTLP([]*Event{e}, nil)
			if err == nil {
				_, err = w.Write(append(b, '\n'))
			}
			return err
		}
	case FormatCSV:
		out := csv.NewWriter(w)
		if err := out.Write(csvHeader()); err != nil {
			return nil, err
		}
		x.write = func(e *Event) error { return out.Write(csvRow(e)) }
		x.flush = func() error {
			out.Flush()
			return out.Error()
		}
	default:
		return nil, fmt.Errorf("format %q: want one of %v", f, Formats())
	}
	return x, nil
}

// AppendLine appends e as the log has it, without a newline.
func AppendLine(dst []byte, e *Event) []byte { return appendBody(appendHead(dst, e), e) }

// Write writes one event.
func (x *Exporter) Write(e *Event) error { return x.write(e) }

// Flush hands everything to the writer.
func (x *Exporter) Flush() error { return x.flush() }

// errWriter keeps the first error.
type errWriter struct {
	w   io.Writer
	err error
}

func (w *errWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// writeJSON writes v as one line of ASCII.
func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(asciiJSON(b), '\n'))
	return err
}

// asciiJSON writes every character of b beyond printable ASCII as an escape.
// They stand in strings only.
func asciiJSON(b []byte) []byte {
	out := make([]byte, 0, len(b)+len(b)/8+1)
	for len(b) > 0 {
		switch c := b[0]; {
		case c == 0x7f:
			out, b = appendUnit(out, uint16(c)), b[1:]
		case c < utf8.RuneSelf:
			out, b = append(out, c), b[1:]
		default:
			n := 0
			out, n = appendEscaped(out, string(b[:min(len(b), utf8.UTFMax)]))
			b = b[n:]
		}
	}
	return out
}

func csvHeader() []string {
	return []string{
		"time", "seq", "id", "kind", "phase", "verdict", "would", "reason", "severity", "sandbox", "sandbox_id", "src", "dst", "proto",
		"host", "port", "method", "path", "query_type", "status", "bytes_sent", "bytes_received", "duration_ms", "rule", "file", "line",
		"policy_generation", "secrets", "count", "conn", "req", "alert", "error", "message",
	}
}

func csvRow(e *Event) []string {
	row := []string{
		string(appendTime(nil, e.Time)), number(e.Seq), e.ID, string(e.Kind), string(e.Phase), e.Verdict, "", e.Reason, string(e.Severity),
		"", "", endpoint(e.Src), endpoint(e.Dst), e.Proto, csvHost(e), number(uint64(e.Port)), "", "", "", "", "", "", "", "", "", "",
		"", "", number(e.Count), e.Conn, e.Req, e.Alert, "", e.Message,
	}
	set := func(i int, s string) { row[i] = s }
	if e.Would != nil {
		set(6, e.Would.Verdict+" "+e.Would.Reason)
	}
	if s := e.Sandbox; s != nil {
		set(9, s.Name)
		set(10, s.ID)
	}
	if h := e.HTTP; h != nil {
		set(16, h.Method)
		set(17, withoutQuery(h.Path))
		set(19, number(uint64(max(h.Status, 0))))
	}
	if e.DNS != nil {
		set(18, e.DNS.QType)
	}
	if b := e.Bytes; b != nil {
		set(20, strconv.FormatInt(b.Sent, 10))
		set(21, strconv.FormatInt(b.Received, 10))
	}
	if e.DurationMS > 0 {
		set(22, strconv.FormatFloat(e.DurationMS, 'f', 3, 64))
	}
	if r := e.Rule; r != nil {
		set(23, r.ID)
		set(24, r.File)
		set(25, number(uint64(max(r.Line, 0))))
	}
	if e.Policy != nil {
		set(26, number(e.Policy.Generation))
	}
	var secrets []string
	for _, u := range e.Secrets {
		secrets = append(secrets, u.Action+" "+u.Name)
	}
	set(27, strings.Join(secrets, "; "))
	if e.Error != nil {
		set(32, e.Error.Class+" "+e.Error.Detail)
	}
	for i := range row {
		row[i] = cell(row[i])
	}
	return row
}

// csvHost is the host, or where it is none that a rule could name, what was
// written for one.
func csvHost(e *Event) string {
	switch {
	case e.Host == "" && e.DNS != nil:
		return e.DNS.QName
	case e.Host == "" && e.Authority != "":
		return e.Authority
	case e.Host == "":
		return e.SNI
	}
	return e.Host
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func endpoint(a *Addr) string {
	if a == nil {
		return ""
	}
	if a.Port == 0 {
		return a.IP
	}
	return a.IP + " " + strconv.Itoa(int(a.Port))
}

// cell makes s plain ASCII and keeps a spreadsheet from taking it for a
// formula: one that begins like one gets an apostrophe before it. Escapes are
// those of JSON, but for the quote, which the form has its own way for.
func cell(s string) string {
	quoted := appendString(nil, s, capPath)
	quoted = quoted[1 : len(quoted)-1]
	out := make([]byte, 0, len(quoted))
	for i := 0; i < len(quoted); i++ {
		if quoted[i] == '\\' && i+1 < len(quoted) {
			if i++; quoted[i] != '"' {
				out = append(out, '\\')
			}
		}
		out = append(out, quoted[i])
	}
	s = string(out)
	if s != "" {
		switch s[0] {
		case '=', '+', '-', '@', '\\', '\'', '|', '%', ' ':
			return "'" + s
		}
	}
	return s
}

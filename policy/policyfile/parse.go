package policyfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"sallyport/policy"
)

// parsed is what came out of the files, errors or not.
type parsed struct {
	doc    *policy.Document
	tests  []Test
	alerts Alerts
	diags  *Diagnostics
	broken []hcl.Range // top-level blocks that have errors of their own
	lost   bool        // something others refer to could not be read

	check func(*policy.Document, *Alerts, func(secret, host string) bool) []policy.Problem // Options.Check
}

// parse decodes all files into one document.
func parse(sources []source, diags *Diagnostics, o Options) parsed {
	d := &decoder{
		opts:  o,
		diags: diags,
		doc:   &policy.Document{SHA256: digest(sources)},
		lang:  newLanguage(),
		names: map[string]map[string]hcl.Range{},
		lost:  diags.HasErrors(),
	}
	o.Keep.begin()
	blocks := d.all(sources)
	if len(sources) > 0 && blocks == 0 && !diags.HasErrors() {
		diags.add(Diagnostic{
			Summary: "the policy declares nothing",
			Detail:  "Its files hold comments only.",
			Hint:    hintInit,
			Pos:     policy.Pos{File: sources[0].name},
		})
	}
	d.alertRefs()
	o.Keep.end(diags.HasErrors())
	return parsed{d.doc, d.tests, d.alerts, diags, d.broken, d.lost, o.Check}
}

// oneFile parses one file and returns the number of its blocks and stray
// attributes.
func (d *decoder) oneFile(s source) int {
	whole := func(summary, hint string) int {
		d.lost = true
		d.diags.add(Diagnostic{Summary: summary, Hint: hint, Pos: policy.Pos{File: s.name}})
		return 0
	}
	d.tested = s.test
	data := s.text()
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return whole("file is empty", "an empty file is never a policy; write a rule, or remove the file; "+hintInit)
	case !utf8.Valid(data):
		line, column := invalid(data)
		d.lost = true
		d.diags.add(Diagnostic{
			Summary: "file is not UTF-8 text",
			Hint:    "save it as UTF-8",
			Pos:     policy.Pos{File: s.name, Line: line, Column: column},
		})
		return 0
	case tooDeep(data, s.name):
		return whole("brackets or operators are nested too deeply", "a policy needs no more than a few levels; is this the right file?")
	}
	return d.text(data, s.name)
}

// invalid returns the line and column, in runes, of the first byte of data
// that is not UTF-8.
func invalid(data []byte) (line, column int) {
	line, column = 1, 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		data = data[n:]
	}
	return line, column
}

// digest returns the SHA-256 over names and bytes of the files, each with its
// length before it, in hex.
func digest(sources []source) string {
	h := sha256.New()
	for _, s := range sources {
		if s.test {
			continue
		}
		for _, part := range [][]byte{[]byte(s.base), s.data} {
			var n [8]byte
			binary.BigEndian.PutUint64(n[:], uint64(len(part)))
			h.Write(n[:])
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

package policyfile

import "bytes"

// unit is one file on its way into the document.
type unit struct {
	source
	key    fileKey
	kept   *keptFile // what an earlier load made of it; nil: nothing
	bodies []pending // what was parsed and not yet decoded
	parsed bool
	parts  int  // blocks and stray attributes at its top
	clean  bool // nothing was wrong with its text
}

// all parses and decodes all files and returns the number of blocks and stray
// attributes. What is parsed is many times as large as its text, so a file is
// decoded before the next is parsed; but those that may define what others use
// come first.
func (d *decoder) all(sources []source) int {
	units := make([]*unit, len(sources))
	var first []pending
	for i, s := range sources {
		d.opts.yield()
		u := &unit{source: s}
		units[i] = u
		d.diags.addFile(s.name, s.text())
		if u.key, u.kept = d.opts.Keep.find(s); u.kept == nil && mayDefine(s.data) {
			d.parse(u)
			first = append(first, u.bodies...)
		}
	}
	e := d.scope(first)
	n := 0
	for i, u := range units {
		d.opts.yield()
		d.unit(u, e)
		n += u.parts
		units[i] = nil
	}
	return n
}

// mayDefine says whether there can be a locals or variable block in a file.
func mayDefine(data []byte) bool {
	return bytes.Contains(data, []byte("locals")) || bytes.Contains(data, []byte("variable"))
}

// parse parses one file.
func (d *decoder) parse(u *unit) {
	before := d.diags.Len()
	u.parts, u.parsed = d.oneFile(u.source), true
	u.clean = d.diags.Len() == before
	u.bodies, d.bodies = d.bodies, nil
}

// unit decodes one file, and parses it if that has not been done.
func (d *decoder) unit(u *unit, e *evaluator) {
	if u.kept != nil && d.take(u.kept) {
		u.parts = u.kept.parts
		d.opts.Keep.keep(u.key, u.kept)
		return
	}
	if !u.parsed {
		d.parse(u)
	}
	before := d.mark(e)
	for _, p := range u.bodies {
		d.tested = p.tested
		d.decode(p.body, p.damage, e)
	}
	if d.opts.Keep == nil || u.test || !u.clean || len(u.bodies) != 1 {
		return
	}
	if f := d.since(before, e, u); f != nil {
		d.opts.Keep.keep(u.key, f)
	}
}

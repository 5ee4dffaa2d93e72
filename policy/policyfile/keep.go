package policyfile

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"sallyport/policy"
)

// Kept is what was made of files that have not changed since, so that a load
// costs what has. The zero value has kept nothing. One load at a time may use
// it, and no load may be given another program's kinds of sources.
//
// A file is kept only if all that comes of it comes of its own bytes: nothing
// in it was wrong, is computed, or is other than groups, sandboxes and
// secrets.
type Kept struct {
	files map[fileKey]*keptFile
	next  map[fileKey]*keptFile // of the load under way
}

// fileKey is the SHA-256 of a file's name and bytes.
type fileKey [sha256.Size]byte

// keptFile is what one file added to its document. It is shared by every
// document that the file is part of, and never changed.
type keptFile struct {
	parts     int // blocks at its top
	names     []declaration
	groups    []policy.Group   // without their rules
	sandboxes []policy.Sandbox // likewise
	rules     policy.PackedRules
	secrets   []policy.Secret
}

// declaration is a name that a file declares.
type declaration struct {
	kind, name string
	at         hcl.Range
}

// keyOf returns the key of a file.
func keyOf(s source) fileKey {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s.name))))
	h.Write([]byte(s.name)) // it stands in every position
	h.Write(s.data)
	return fileKey(h.Sum(nil))
}

// begin starts a load.
func (k *Kept) begin() {
	if k != nil {
		k.next = map[fileKey]*keptFile{}
	}
}

// find returns what is kept of a file, nil if nothing is.
func (k *Kept) find(s source) (fileKey, *keptFile) {
	if k == nil || s.test {
		return fileKey{}, nil
	}
	key := keyOf(s)
	return key, k.files[key]
}

// keep keeps a file for the load after this one.
func (k *Kept) keep(key fileKey, f *keptFile) {
	if k != nil {
		k.next[key] = f
	}
}

// end ends a load. What it did not use is forgotten; a load that failed leaves
// what was kept before.
func (k *Kept) end(failed bool) {
	if k == nil {
		return
	}
	if !failed {
		k.files = k.next
	}
	k.next = nil
}

// mark is how far a decoder had come before a file.
type mark struct {
	diags, groups, sandboxes, secrets, tests, declared, evaluated, sinkSecrets, alerts int

	org *policy.Org
}

func (d *decoder) mark(e *evaluator) mark {
	return mark{d.diags.Len(), len(d.doc.Groups), len(d.doc.Sandboxes), len(d.doc.Secrets), len(d.tests), len(d.declared), e.evaluated,
		len(d.sinkSecrets), len(d.alerts.Rules) + len(d.alerts.Notify) + len(d.alerts.Mutes), d.doc.Org}
}

// since returns what a file has added since m, nil if that cannot be kept.
func (d *decoder) since(m mark, e *evaluator, u *unit) *keptFile {
	now := d.mark(e)
	if now.diags != m.diags || now.tests != m.tests || now.evaluated != m.evaluated ||
		now.sinkSecrets != m.sinkSecrets || now.alerts != m.alerts || now.org != m.org {
		return nil
	}
	for _, b := range u.bodies[0].body.Blocks {
		if b.Type == "locals" || b.Type == "variable" {
			return nil
		}
	}
	f := &keptFile{
		parts:     u.parts,
		names:     slices.Clone(d.declared[m.declared:]),
		groups:    slices.Clone(d.doc.Groups[m.groups:]),
		sandboxes: slices.Clone(d.doc.Sandboxes[m.sandboxes:]),
		secrets:   slices.Clone(d.doc.Secrets[m.secrets:]),
	}
	f.pack()
	return f
}

// pack puts the rules of a file, which are almost all that there is to keep,
// into less memory.
func (f *keptFile) pack() {
	var lists [][]policy.Rule
	for i := range f.groups {
		lists, f.groups[i].Rules = append(lists, f.groups[i].Rules), nil
	}
	for i := range f.sandboxes {
		lists, f.sandboxes[i].Rules = append(lists, f.sandboxes[i].Rules), nil
	}
	f.rules = policy.PackRules(lists...)
}

// take adds what is kept of a file, and says whether it could: a file that
// declares what another has declared is to be decoded, so that it is said
// where.
func (d *decoder) take(f *keptFile) bool {
	for _, n := range f.names {
		if _, dup := d.names[n.kind][n.name]; dup {
			return false
		}
	}
	for _, n := range f.names {
		d.name(n)
	}
	lists := f.rules.Unpack()
	for i, g := range f.groups {
		g.Rules = lists[i]
		d.doc.Groups = append(d.doc.Groups, g)
	}
	for i, sb := range f.sandboxes {
		sb.Rules = lists[len(f.groups)+i]
		d.doc.Sandboxes = append(d.doc.Sandboxes, sb)
	}
	d.doc.Secrets = append(d.doc.Secrets, f.secrets...)
	return true
}

// name notes a declaration.
func (d *decoder) name(n declaration) {
	if d.names[n.kind] == nil {
		d.names[n.kind] = map[string]hcl.Range{}
	}
	d.names[n.kind][n.name] = n.at
	d.declared = append(d.declared, n)
}

package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// shape is what the body of a block may hold.
type shape struct {
	noun     string   // "a sandbox block"
	attrs    []string // attributes
	blocks   []string // nested blocks
	required []string // attributes that must be there
	elide    bool     // do not show the values of unknown attributes
}

// decoder fills one Document from the files of a policy.
type decoder struct {
	opts  Options
	diags *Diagnostics
	doc   *policy.Document
	lang  language

	tests   []Test                          // test blocks, in the order of files and lines
	alerts  Alerts                          // alert, notify and mute blocks
	bodies  []pending                       // what has been parsed and not yet decoded
	tested  bool                            // the file at hand holds tests alone
	context string                          // the block being decoded, for diagnostics
	names   map[string]map[string]hcl.Range // block type → name → its declaration
	broken  []hcl.Range                     // top-level blocks with errors
	lost    bool                            // a declaration that others may refer to could not be read

	sinkSecrets []policy.Ref  // the secrets that sinks name
	declared    []declaration // what names holds, in the order of files and lines
}

// fail reports an error at r.
func (d *decoder) fail(x Diagnostic, r hcl.Range) {
	x.Context = d.context
	x.at(r)
	d.diags.add(x)
}

// pending is a file, or a piece of one, that has been parsed.
type pending struct {
	body   *hclsyntax.Body
	damage []hcl.Range // places that the parser did not understand
	tested bool        // the file holds tests alone
}

// file keeps what was parsed until it is decoded.
func (d *decoder) file(body *hclsyntax.Body, damage []hcl.Range) {
	d.bodies = append(d.bodies, pending{body, damage, d.tested})
}

// decode decodes the top level of one file. Blocks that a syntax error fell
// into are left out: what the parser made of them is not what was meant.
func (d *decoder) decode(body *hclsyntax.Body, damage []hcl.Range, e *evaluator) {
	for _, a := range body.Attributes {
		d.lost = true
		d.unknownTop(a.Name, a.NameRange, true)
	}
	for _, b := range body.Blocks {
		d.opts.yield()
		whole := hcl.RangeBetween(b.TypeRange, b.CloseBraceRange)
		if slices.ContainsFunc(damage, func(r hcl.Range) bool { return touches(whole, r) }) {
			d.lost = true
			continue
		}
		before := d.diags.Len()
		for _, made := range e.blocks(hclsyntax.Blocks{b}, e.ctx) {
			d.top(made)
			d.context = ""
		}
		if d.diags.Len() > before {
			d.broken = append(d.broken, spoilt(b, whole, d.diags.list[before:])...)
		}
	}
}

// spoilt returns what of a block is not to be judged further because of the
// errors in it: all of it, or, when each error is inside one of the blocks
// that it holds, what is left of it without those that have none.
func spoilt(b *hclsyntax.Block, whole hcl.Range, errs []Diagnostic) []hcl.Range {
	in := func(inner *hclsyntax.Block) func(Diagnostic) bool {
		return func(x Diagnostic) bool {
			return inner.TypeRange.Start.Line <= x.Pos.Line && x.Pos.Line <= inner.CloseBraceRange.End.Line
		}
	}
	var sound []*hclsyntax.Block
	for _, inner := range b.Body.Blocks {
		if !slices.ContainsFunc(errs, in(inner)) {
			sound = append(sound, inner)
		}
	}
	for _, x := range errs {
		if !slices.ContainsFunc(b.Body.Blocks, func(inner *hclsyntax.Block) bool { return in(inner)(x) }) {
			return []hcl.Range{whole}
		}
	}
	var out []hcl.Range
	left := whole
	for _, inner := range sound {
		gap := left
		gap.End.Line = inner.TypeRange.Start.Line - 1
		out = append(out, gap)
		left.Start.Line = inner.CloseBraceRange.End.Line + 1
	}
	return append(out, left)
}

// touches says whether r begins within whole.
func touches(whole, r hcl.Range) bool {
	return whole.Start.Byte <= r.Start.Byte && r.Start.Byte <= whole.End.Byte
}

// top decodes one top-level block.
func (d *decoder) top(b *hclsyntax.Block) {
	before := d.diags.Len()
	if (b.Type == "locals" || b.Type == "variable") && !d.tested {
		return // the evaluator has read them
	}
	if d.tested && b.Type != "test" && slices.Contains(d.lang.file.blocks, b.Type) {
		d.fail(Diagnostic{
			Summary: fmt.Sprintf("a test file has no block %s", quote(b.Type)),
			Detail:  "A file called *_test.hcl holds tests, and is no part of the policy.",
			Hint:    "move the block to another file",
		}, b.TypeRange)
		return
	}
	switch b.Type {
	case "org":
		d.org(b)
	case "group":
		d.group(b)
	case "sandbox":
		d.sandbox(b)
		return
	case "secret":
		d.secret(b)
		return
	case "test":
		d.test(b)
		return
	case "alert":
		d.alert(b)
		return
	case "notify":
		d.notify(b)
		return
	case "mute":
		d.mute(b)
		return
	default:
		d.unknownTop(b.Type, b.TypeRange, false)
	}
	if d.diags.Len() > before {
		d.lost = true
	}
}

// daemonWords are what the file of the daemon has at its top, and a policy does
// not have anywhere.
func daemonWords() []string {
	return []string{"state", "policy", "policy_git", "policy_push", "confine", "log", "capture", "dns", "upstream", "audit", "ship", "control", "metrics"}
}

// unknownTop reports a name that does not stand at the top of a file.
func (d *decoder) unknownTop(name string, at hcl.Range, attr bool) {
	kind := "block"
	if attr {
		kind = "attribute"
	}
	x := Diagnostic{Summary: fmt.Sprintf("a policy file has no %s %s at its top", kind, quote(name))}
	switch homes := d.lang.homes(name); {
	case slices.Contains(daemonWords(), name):
		x.Hint = "it belongs in the file of the daemon, which `sallyport serve --config` names; a policy is a file of its own"
	case attr && slices.Contains(d.lang.file.blocks, name):
		x.Hint = name + " is a block: write " + name + " { … }"
	case len(homes) > 0:
		x.Detail = "It belongs in " + strings.Join(homes, ", ") + "."
	default:
		x.Hint = didYouMean(name, d.lang.file.blocks)
	}
	if near := nearest(name, d.lang.names()); x.Hint == "" && x.Detail == "" && near != "" {
		x.Hint = fmt.Sprintf("did you mean %q? it belongs in %s", near, strings.Join(d.lang.homes(near), ", "))
	}
	if x.Hint == "" && x.Detail == "" {
		x.Detail = "A policy file holds blocks of these types: " + list(d.lang.file.blocks) + "."
	}
	d.fail(x, at)
}

// article returns the noun with "a" or "an".
func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// body checks a block's body against its shape and hands every part that
// belongs there to attr or block.
func (d *decoder) body(b *hclsyntax.Block, s *shape, attr func(*hclsyntax.Attribute), block func(*hclsyntax.Block)) {
	for name, a := range b.Body.Attributes {
		if slices.Contains(s.attrs, name) {
			attr(a)
			continue
		}
		d.unknownAttr(a, s)
	}
	for _, inner := range b.Body.Blocks {
		if slices.Contains(s.blocks, inner.Type) {
			block(inner)
			continue
		}
		d.unknownBlock(inner, s)
	}
	for _, name := range s.required {
		if _, ok := b.Body.Attributes[name]; !ok {
			d.fail(Diagnostic{Summary: fmt.Sprintf("%s needs %s", s.noun, name), Hint: "add " + name + " = …"}, header(b))
		}
	}
}

// unknownAttr reports an attribute that a block does not have.
func (d *decoder) unknownAttr(a *hclsyntax.Attribute, s *shape) {
	x := Diagnostic{Summary: fmt.Sprintf("%s has no attribute %s", s.noun, quote(a.Name)), elide: s.elide}
	if s.elide && slices.Contains([]string{"value", "key", "token", "secret", "password"}, a.Name) {
		x.Detail = "A policy never holds the value of a secret, only where it comes from."
	}
	near := nearest(a.Name, s.attrs)
	homes := d.lang.homes(a.Name)
	switch {
	case slices.Contains(s.blocks, a.Name):
		x.Hint = a.Name + " is a block: write " + a.Name + " { … } without \"=\""
	case x.Detail != "":
	case near == a.Name+"s":
		x.Hint = fmt.Sprintf("did you mean %q?", near)
	case len(homes) > 0:
		x.Detail = "It belongs in " + strings.Join(homes, ", ") + "."
	case near != "":
		x.Hint = fmt.Sprintf("did you mean %q?", near)
	default:
		x.Hint = didYouMean(a.Name, s.blocks)
	}
	if x.Hint == "" && x.Detail == "" {
		x.Detail = known(s)
	}
	d.fail(x, a.NameRange)
}

// unknownBlock reports a block that does not belong where it stands.
func (d *decoder) unknownBlock(b *hclsyntax.Block, s *shape) {
	x := Diagnostic{Summary: fmt.Sprintf("%s has no block %s", s.noun, quote(b.Type))}
	homes := d.lang.homes(b.Type)
	switch {
	case slices.Contains(s.attrs, b.Type):
		x.Hint = b.Type + " is an attribute: write " + b.Type + " = …"
	case slices.Contains(d.lang.file.blocks, b.Type):
		x.Hint = "a " + b.Type + " block stands at the top of a file; is a closing brace missing above?"
	case len(homes) > 0:
		x.Detail = "It belongs in " + strings.Join(homes, ", ") + "."
	default:
		x.Hint = didYouMean(b.Type, append(slices.Clone(s.blocks), s.attrs...))
	}
	if x.Hint == "" && x.Detail == "" {
		x.Detail = known(s)
	}
	d.fail(x, b.TypeRange)
}

// known says in a sentence what a block may hold.
func known(s *shape) string {
	names := append(slices.Clone(s.attrs), s.blocks...)
	if len(names) == 0 {
		return "It holds nothing."
	}
	slices.Sort(names)
	return "It may hold: " + list(slices.Compact(names)) + "."
}

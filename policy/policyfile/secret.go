package policyfile

import (
	"fmt"
	"maps"
	"math"
	"mime"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"sallyport/policy"
)

// secret decodes a secret block.
func (d *decoder) secret(b *hclsyntax.Block) {
	name, at, ok := d.label(b, "API_KEY")
	if !ok {
		d.lost = true
	}
	d.context = fmt.Sprintf("secret %s", quote(name))
	if ok && !secretName(name) {
		d.badSecretName(name, at)
	}
	fresh := ok && d.declare(b, name)
	s := policy.Secret{Name: name, Pos: pos(b.TypeRange)}
	var common sourceCommon
	first := d.once()
	d.body(b, &d.lang.secret, func(a *hclsyntax.Attribute) {
		d.secretAttr(&s, a)
	}, func(inner *hclsyntax.Block) {
		switch {
		case !first(inner):
		case inner.Type == "source":
			s.Source, common = d.source(inner)
		default:
			s.Body = d.bodyPlace(inner)
		}
	})
	d.merge(&s, b, common)
	if s.Source.Pos == (policy.Pos{}) {
		d.fail(Diagnostic{
			Summary: "a secret block needs a source",
			Hint:    `say where the value comes from: source "env" { name = "` + clip(name, 64) + `" }`,
		}, header(b))
	}
	if fresh {
		d.doc.Secrets = append(d.doc.Secrets, s)
	}
}

// secretName says whether s is [A-Z][A-Z0-9_]{2,63}.
func secretName(s string) bool {
	if len(s) < 3 || len(s) > 64 || s[0] < 'A' || s[0] > 'Z' {
		return false
	}
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// badSecretName reports a name that no placeholder could be written with.
func (d *decoder) badSecretName(name string, at hcl.Range) {
	x := Diagnostic{
		Summary: fmt.Sprintf("%s cannot be the name of a secret", quote(name)),
		Detail:  `A name has capital letters, digits and "_", 3 to 64 of them, and begins with a letter.`,
	}
	if up := strings.ToUpper(strings.NewReplacer("-", "_", ".", "_", " ", "_").Replace(name)); secretName(up) {
		x.Hint = fmt.Sprintf("did you mean %q?", up)
	}
	d.fail(x, at)
}

// secretAttr decodes one attribute of a secret, but for ttl and on_error.
func (d *decoder) secretAttr(s *policy.Secret, a *hclsyntax.Attribute) {
	switch a.Name {
	case "hosts":
		list, _ := d.elements(a.Name, a.Expr)
		s.Hosts = values(list)
	case "placeholder":
		s.Placeholder, _ = d.line(a)
	case "headers":
		s.Headers = d.tokens(a)
	case "query":
		s.Query = d.strings(a.Name, a.Expr)
	case "path":
		s.Path, _ = d.bool(a.Name, a.Expr)
	case "websocket":
		s.WebSocket, _ = d.bool(a.Name, a.Expr)
	case "set":
		s.Set, _ = d.bool(a.Name, a.Expr)
	}
}

// tokens decodes a list of header names (RFC 9110, section 5.1).
func (d *decoder) tokens(a *hclsyntax.Attribute) []string {
	list, _ := d.some(a.Name, a.Expr)
	for _, x := range list {
		if !token(x.value) {
			d.fail(Diagnostic{Summary: fmt.Sprintf("%s: %s is not the name of a header", a.Name, quote(x.value))}, x.at)
		}
	}
	return values(list)
}

// token says whether s is a token of RFC 9110, section 5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// sourceCommon is what a source of any kind may say. The attributes are nil
// when they are not there.
type sourceCommon struct{ ttl, onError *hclsyntax.Attribute }

// merge sets ttl and on_error, which may stand in the secret or its source,
// but not in both.
func (d *decoder) merge(s *policy.Secret, b *hclsyntax.Block, c sourceCommon) {
	pick := func(name string, inner *hclsyntax.Attribute) *hclsyntax.Attribute {
		outer := b.Body.Attributes[name]
		if outer != nil && inner != nil {
			d.fail(Diagnostic{
				Summary: name + " is written in the secret and in its source",
				Related: []Note{note(outer.NameRange, "first written here")},
			}, inner.NameRange)
		}
		if outer != nil {
			return outer
		}
		return inner
	}
	if a := pick("ttl", c.ttl); a != nil {
		s.TTL, _ = d.duration(a.Name, a.Expr)
	}
	if a := pick("on_error", c.onError); a != nil {
		w, _ := d.choice(a.Name, a.Expr, "deny", "stale")
		s.OnErrorStale = w == "stale"
	}
}

// source decodes where a secret's value comes from, against the schema of its
// kind.
func (d *decoder) source(b *hclsyntax.Block) (policy.Source, sourceCommon) {
	src := policy.Source{Pos: pos(b.TypeRange)}
	kind, at, ok := d.label(b, "env")
	if !ok {
		return src, sourceCommon{}
	}
	src.Kind = kind
	schema, known := d.opts.Sources[kind]
	if !known {
		d.unknownKind("source", kind, at, d.opts.Sources)
		return src, sourceCommon{}
	}
	src.Attrs = d.schema(b, fmt.Sprintf("a source of kind %q", kind), schema, "ttl", "on_error")
	return src, sourceCommon{b.Body.Attributes["ttl"], b.Body.Attributes["on_error"]}
}

// unknownKind reports a kind of source or sink that the program does not have.
func (d *decoder) unknownKind(what, kind string, at hcl.Range, kinds map[string]Schema) {
	names := slices.Sorted(maps.Keys(kinds))
	x := Diagnostic{
		Summary: fmt.Sprintf("there is no %s of kind %s", what, quote(kind)),
		Hint:    didYouMean(kind, names),
		Detail:  "There are none.",
	}
	if len(names) > 0 {
		x.Detail = "The kinds are: " + list(names) + "."
	}
	d.fail(x, at)
}

// schema decodes the attributes of a source or sink. Extra names are accepted
// and left to the caller.
func (d *decoder) schema(b *hclsyntax.Block, noun string, schema Schema, extra ...string) map[string]any {
	s := shape{noun: noun, attrs: slices.Clone(extra), elide: true}
	for _, a := range schema.Attrs {
		s.attrs = append(s.attrs, a.Name)
		if a.Required {
			s.required = append(s.required, a.Name)
		}
	}
	attrs := map[string]any{}
	d.body(b, &s, func(a *hclsyntax.Attribute) {
		spec, ok := schema.attr(a.Name)
		if !ok {
			return
		}
		if v, ok := d.typed(spec, a.Expr); ok {
			attrs[a.Name] = v
		}
	}, nil)
	return attrs
}

// typed decodes an expression of the type that a schema gives.
func (d *decoder) typed(spec Attr, e hclsyntax.Expression) (any, bool) {
	switch spec.Type {
	case String:
		s, ok := d.string(spec.Name, e)
		if ok && s == "" {
			d.fail(Diagnostic{Summary: spec.Name + " must not be empty"}, e.Range())
			return nil, false
		}
		return s, ok
	case Bool:
		return wrap(d.bool(spec.Name, e))
	case Int:
		return wrap(d.int(spec.Name, e, 0, math.MaxInt64))
	case Duration:
		return wrap[time.Duration](d.duration(spec.Name, e))
	case StringList:
		list, ok := d.some(spec.Name, e)
		return values(list), ok
	case StringMap:
		return wrap(d.stringMap(spec.Name, e))
	case SecretName:
		s, ok := d.string(spec.Name, e)
		if ok {
			d.sinkSecrets = append(d.sinkSecrets, policy.Ref{Name: s, Pos: pos(e.Range())})
		}
		return s, ok
	case SecretMap:
		m, ok := d.stringMap(spec.Name, e)
		for _, name := range m {
			d.sinkSecrets = append(d.sinkSecrets, policy.Ref{Name: name, Pos: pos(e.Range())})
		}
		return m, ok
	}
	d.fail(Diagnostic{Summary: spec.Name + " cannot be set"}, e.Range())
	return nil, false
}

// wrap returns v as any.
func wrap[T any](v T, ok bool) (any, bool) { return v, ok }

// bodyPlace decodes the body block of a secret.
func (d *decoder) bodyPlace(b *hclsyntax.Block) *policy.BodyPlace {
	p := &policy.BodyPlace{}
	d.noLabel(b)
	d.body(b, &d.lang.bodyPlace, func(a *hclsyntax.Attribute) {
		switch a.Name {
		case "types":
			list, _ := d.some(a.Name, a.Expr)
			for _, x := range list {
				kind, params, err := mime.ParseMediaType(x.value)
				if err != nil || len(params) > 0 || !strings.Contains(kind, "/") {
					d.fail(Diagnostic{Summary: fmt.Sprintf("types: %s is not a media type", quote(x.value)), Hint: `write one such as "application/json"`}, x.at)
				}
			}
			p.Types = values(list)
		case "max":
			p.Max, _ = d.size(a.Name, a.Expr)
		case "fields":
			p.Fields = d.strings(a.Name, a.Expr)
		}
	}, nil)
	return p
}

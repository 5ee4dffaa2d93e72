package policyfile

import (
	"maps"
	"slices"
)

// BlockShape is what one kind of block may hold.
type BlockShape struct {
	Attributes []string `json:"attributes,omitempty"`
	Blocks     []string `json:"blocks,omitempty"`
	Required   []string `json:"required,omitempty"` // attributes that must be there
}

// Vocabulary returns the blocks of the language by name, for editors: "file"
// is the top of a file, "source.KIND" and "sink.KIND" the kinds that the
// program has.
func Vocabulary(o Options) map[string]BlockShape {
	l := newLanguage()
	out := map[string]BlockShape{}
	for name, s := range map[string]shape{
		"file": l.file, "org": l.org, "group": l.group, "sandbox": l.sandbox, "match": l.match, "limits": l.limits,
		"allow": l.allow, "deny": l.deny, "tcp": l.tcp, "passthrough": l.passthrough, "git": l.git,
		"graphql": l.graphql, "jsonrpc": l.jsonrpc,
		"secret": l.secret, "body": l.bodyPlace, "test": l.test, "request": l.request, "expect": l.expect,
		"alert": l.alert, "notify": l.notify, "mute": l.mute, "variable": l.variable,
		"dynamic": {attrs: []string{"for_each", "iterator", "labels"}, blocks: []string{"content"}, required: []string{"for_each"}},
	} {
		out[name] = BlockShape{sorted(s.attrs), sorted(s.blocks), sorted(s.required)}
	}
	for prefix, kinds := range map[string]map[string]Schema{"source.": o.Sources, "sink.": o.Sinks} {
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			var b BlockShape
			for _, a := range kinds[kind].Attrs {
				b.Attributes = append(b.Attributes, a.Name)
				if a.Required {
					b.Required = append(b.Required, a.Name)
				}
			}
			out[prefix+kind] = b
		}
	}
	return out
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

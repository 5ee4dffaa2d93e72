package main

import (
	"fmt"
	"time"

	"sallyport/policy"
	"sallyport/policy/policyfile"
	"sallyport/secrets"
	"sallyport/secrets/env"
	"sallyport/secrets/exec"
	"sallyport/secrets/file"
)

// sourceKind is one kind of secret source: what a policy file may say of it,
// and how it is made.
type sourceKind struct {
	schema policyfile.Schema
	open   func(a attributes) (secrets.Source, error)

	// What the source reads, which a sandbox on this host must not.
	files     func(a attributes) []string // nil: none
	variables func(a attributes) []string // nil: none
	passes    func(a attributes) []string // variables with which it fetches; nil: none
}

// sourceKinds are the kinds of secret source, by the label of the block.
func sourceKinds() map[string]sourceKind {
	text, list := policyfile.String, policyfile.StringList
	return map[string]sourceKind{
		"env": {
			schema: schema(attr("name", text, true)),
			open: func(a attributes) (secrets.Source, error) {
				return env.New(env.Config{Name: a.text("name")})
			},
			variables: func(a attributes) []string { return []string{a.text("name")} },
		},
		"file": {
			schema: schema(attr("path", text, true)),
			open: func(a attributes) (secrets.Source, error) {
				return file.New(file.Config{Path: a.text("path")})
			},
			files: func(a attributes) []string { return []string{a.text("path")} },
		},
		"exec": {
			schema: schema(attr("command", list, true), attr("ttl", policyfile.Duration, false),
				attr("timeout", policyfile.Duration, false), attr("env", list, false)),
			open: func(a attributes) (secrets.Source, error) {
				return exec.New(exec.Config{Command: a.list("command"), TTL: a.duration("ttl"), Timeout: a.duration("timeout"), Env: a.list("env")})
			},
			passes: func(a attributes) []string { return a.list("env") },
		},
	}
}

func schema(attrs ...policyfile.Attr) policyfile.Schema { return policyfile.Schema{Attrs: attrs} }

func attr(name string, t policyfile.AttrType, required bool) policyfile.Attr {
	return policyfile.Attr{Name: name, Type: t, Required: required}
}

// policyOptions are what policy files may hold besides policy.
func policyOptions() policyfile.Options {
	o := policyfile.Options{Sources: map[string]policyfile.Schema{}}
	for name, k := range sourceKinds() {
		o.Sources[name] = k.schema
	}
	return o
}

// openSource makes the source that a policy names. Its attributes were
// checked against the kind's schema when the policy was read.
func openSource(s policy.Source) (secrets.Source, error) {
	k, ok := sourceKinds()[s.Kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of source %q", s.Kind)
	}
	return k.open(s.Attrs)
}

// attributes are the values in a source block.
type attributes map[string]any

func (a attributes) text(name string) string { s, _ := a[name].(string); return s }

func (a attributes) list(name string) []string { l, _ := a[name].([]string); return l }

func (a attributes) duration(name string) time.Duration { d, _ := a[name].(time.Duration); return d }

package policyfile

import "sallyport/policy"

// AttrType is the type of one attribute of a source or sink block. The zero
// value is no type, and nothing has it.
type AttrType uint8

// The types an attribute of a source or sink can have, and the Go type that
// carries it in [policy.Source].
const (
	String     AttrType = iota + 1 // string
	Bool                           // bool
	Int                            // int64
	Duration                       // time.Duration
	StringList                     // []string
	StringMap                      // map[string]string
	SecretName                     // string: the name of a secret of the policy; of sinks only
	SecretMap                      // map[string]string: names of secrets; of sinks only
)

// String returns the type in words, as an error message needs it.
func (t AttrType) String() string {
	switch t {
	case String:
		return "a string"
	case Bool:
		return "true or false"
	case Int:
		return "a whole number"
	case Duration:
		return `a duration such as "50m"`
	case StringList:
		return "a list of strings"
	case StringMap:
		return "a map of strings"
	case SecretName:
		return "the name of a secret"
	case SecretMap:
		return "a map of names of secrets"
	}
	return "nothing"
}

// Attr is one attribute of a source or sink block.
type Attr struct {
	Name     string
	Type     AttrType
	Required bool
}

// Schema is what a block of one kind of source or sink may hold.
type Schema struct {
	Attrs []Attr
}

// attr returns the attribute called name.
func (s Schema) attr(name string) (Attr, bool) {
	for _, a := range s.Attrs {
		if a.Name == name {
			return a, true
		}
	}
	return Attr{}, false
}

// Options name the kinds that belong to the program and not to the language.
type Options struct {
	// Sources are the kinds of secret sources. A kind that is not here is an
	// error; without Sources no secret can be declared.
	Sources map[string]Schema
	// Sinks are the kinds of alert sinks. Nil means that the program delivers
	// no alerts: notify blocks are then checked for form only.
	Sinks map[string]Schema
	// Vars are the values of variable blocks that were given from outside, by
	// name. A policy that does not declare one of them is in error.
	Vars map[string]string
	// Stdin is what the path "-" stands for: one file that has been read
	// already. Without it "-" is an error.
	Stdin []byte
	// Check says what else is wrong with the secrets and alerts of a policy whose
	// files are sound, when it is compiled; covers says whether a secret's hosts
	// cover one. Nil finds nothing.
	Check func(doc *policy.Document, alerts *Alerts, covers func(secret, host string) bool) []policy.Problem
	// Keep is what earlier loads made of files; nil keeps nothing.
	Keep *Kept
	// Yield is called every few rules, so that a load can let others go first;
	// nil does nothing.
	Yield func()
}

func (o Options) yield() {
	if o.Yield != nil {
		o.Yield()
	}
}

// Package inject puts credentials into outgoing requests in the place of
// placeholders, and nowhere else.
//
// A [Table] knows the placeholders of one policy snapshot. [Table.Plan] reads
// a request that policy has allowed and says what will be done to it or why
// it is refused; it needs no value, so that the decision can be recorded
// before a secret is fetched. [Plan.Apply] then changes the outgoing request,
// and [Plan.Messages] what a WebSocket carries after it.
//
// A [Guard] knows the real values that are held. [Guard.Request], [Guard.Name]
// and [Guard.Body] find them where a sandbox sends them; [Guard.Masker] gives
// the [Masker] of the secrets that [Plan.Covered] names, whose Response covers
// them in what the upstream sends back.
package inject

import (
	"net/textproto"
	"net/url"
	"slices"

	"sallyport/policy"
	"sallyport/secrets"
)

// Secret is one secret as a Table needs it.
type Secret struct {
	Name   string
	Spec   *policy.Secret
	Covers func(host string) bool // whether the secret's hosts cover a canonical host
	Sign   *Signing               // it signs requests, and is never sent; nil: it does not

	TokenURL    string // of the endpoint that its source takes tokens from; "": none
	Certificate bool   // it is a client certificate, and is never sent

	// Gone says that the policy no longer has the secret, or no longer for
	// these hosts. What they were given is covered; nothing else is done.
	Gone bool
}

// Table knows every secret of one snapshot, the placeholders that stand for
// them in each sandbox and the places where they may stand. It is read only;
// its methods may be called at once.
type Table struct {
	creds      map[string]*credential // by name
	credential map[string]bool        // the usual credential headers, canonical
	places     map[string]string      // headers where a secret may stand, as records name them
	params     map[string]bool        // the usual credential parameters, as paramKey has them
	find       finder
	owners     *owners
	keys       keys
	key        []byte
	empty      *Plan
	given      given
}

// credential is a secret, compiled.
type credential struct {
	name      string
	covers    func(host string) bool
	template  secrets.Template
	headers   map[string]bool // canonical names of the headers where it may stand
	dashed    map[string]bool // the same, as dashed has them
	query     []string        // parameters where it may stand
	keys      []string        // the same, as paramKey has them
	path      bool            // it may stand in the path
	body      *bodyPlace      // nil: nowhere in a body
	websocket bool            // it may stand in text messages
	set       string          // header that is set when the client sent none; "": none
	sign      *Signing        // nil: it is sent
	token     *url.URL        // of its endpoint; nil: none

	certificate bool // it is shown in the handshake
}

// NewTable compiles secrets. Sandboxes are the names whose placeholders are
// told apart by name when one is found where it should not be; key derives
// the random part of shaped placeholders and must outlive restarts.
func NewTable(list []Secret, sandboxes []string, key []byte) *Table {
	t := &Table{
		creds:      make(map[string]*credential, len(list)),
		credential: headerSet(CredentialHeaders()),
		key:        slices.Clone(key),
		params:     make(map[string]bool),
		places:     make(map[string]string),
		empty:      &Plan{},
	}
	for _, p := range CredentialParams() {
		t.params[paramKey(p)] = true
	}
	for _, s := range list {
		if s.Gone {
			if s.Covers != nil {
				t.given.formerly = append(t.given.formerly, s)
			}
			continue
		}
		c := &credential{name: s.Name, covers: s.Covers, headers: t.credential, dashed: t.credential, sign: s.Sign, token: endpoint(s.TokenURL), certificate: s.Certificate}
		if s.Covers == nil {
			c.covers = func(string) bool { return false }
		}
		if s.Spec != nil {
			c.configure(s.Spec)
		}
		if !c.sendable() {
			c.set = "" // there is nothing to set
		}
		t.creds[s.Name] = c
		for name := range c.headers {
			t.places[name] = place{kind: inHeader, header: name}.String()
		}
	}
	for name := range t.credential {
		t.places[name] = place{kind: inHeader, header: name}.String()
	}
	t.keys = newKeys()
	t.find = newFinder(t.creds, t.key)
	t.owners = newOwners(t.creds, sandboxes, t.key)
	return t
}

func (c *credential) configure(spec *policy.Secret) {
	// A template that cannot be read was a load error; without it the
	// placeholder is "$NAME".
	c.template, _ = secrets.ParseTemplate(spec.Placeholder)
	if len(spec.Headers) > 0 {
		c.headers, c.dashed = headerSet(spec.Headers), make(map[string]bool, len(spec.Headers))
		for name := range c.headers {
			c.dashed[dashed(name)] = true
		}
	}
	c.query, c.path = slices.Clone(spec.Query), spec.Path
	for _, name := range spec.Query {
		c.keys = append(c.keys, paramKey(name))
	}
	c.websocket = spec.WebSocket
	if spec.Body != nil {
		c.body = newBodyPlace(spec.Body)
	}
	if spec.Set {
		c.set = "Authorization"
		if len(spec.Headers) > 0 {
			c.set = textproto.CanonicalMIMEHeaderKey(spec.Headers[0])
		}
		if never(c.set) {
			c.set = ""
		}
	}
}

func headerSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		if n = textproto.CanonicalMIMEHeaderKey(n); !never(n) {
			set[n] = true
		}
	}
	return set
}

// Placeholder returns what stands for a secret in a sandbox; "" for a secret
// that the table does not have.
func (t *Table) Placeholder(sandbox, name string) string {
	c := t.creds[name]
	if c == nil {
		return ""
	}
	return c.template.Placeholder(name, t.key, sandbox)
}

// Environment returns the variables that a sandbox gets: each secret's
// placeholder under the secret's name. The first of those that sign also
// stands where the AWS SDKs look for a key ID and a key.
func (t *Table) Environment(sandbox string, names []string) map[string]string {
	env := make(map[string]string, len(names))
	for _, n := range t.useful(names) {
		p := t.Placeholder(sandbox, n)
		env[n] = p
		if t.creds[n].sign != nil && env["AWS_ACCESS_KEY_ID"] == "" {
			env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"] = p, p
		}
	}
	return env
}

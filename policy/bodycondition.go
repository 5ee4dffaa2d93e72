package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DefaultInspect and MostInspect are how many bytes of a body are held to
// decide by, unless a rule says otherwise, and at most.
const (
	DefaultInspect = 64 << 10
	MostInspect    = 1 << 20
)

// GraphQL is what an allow rule asks of a GraphQL request in the body of a
// POST. Every operation of its document must be allowed, whichever is
// executed.
type GraphQL struct {
	Operations []string // query, mutation, subscription
	Fields     []string // root fields, by name or as a prefix and "*"; empty: any
	Max        int64    // bytes of a body that is decided by; 0 is DefaultInspect
}

// JSONRPC is what an allow rule asks of JSON-RPC messages in the body of a
// POST. Every message of a batch must be allowed.
type JSONRPC struct {
	Methods   []string // by name or as a prefix and "*"
	Tools     []string // what tools/call may name, likewise; empty: any
	Responses bool     // answers to what the server asked may be sent
	Max       int64    // bytes of a body that is decided by; 0 is DefaultInspect
}

// bodyCondition is what a rule asks of a body, ready to be matched.
type bodyCondition struct {
	form      bodyForm
	words     []string // operations or methods, sorted
	parts     []string // root fields or tools, sorted; empty: any
	responses bool
	max       int64
}

// maxBodyWords bounds what one list of a condition may name.
const maxBodyWords = 256

// bodyConditionOf reads what a rule asks of a body; nil if it asks nothing.
func bodyConditionOf(r *Rule) (*bodyCondition, error) {
	var c bodyCondition
	switch {
	case r.GraphQL != nil && r.JSONRPC != nil:
		return nil, errors.New("has both graphql and jsonrpc; no body is both")
	case r.GraphQL != nil:
		g := r.GraphQL
		c = bodyCondition{form: bodyGraphQL, words: g.Operations, parts: g.Fields, max: g.Max}
	case r.JSONRPC != nil:
		j := r.JSONRPC
		c = bodyCondition{form: bodyJSONRPC, words: j.Methods, parts: j.Tools, responses: j.Responses, max: j.Max}
	default:
		return nil, nil
	}
	if c.max == 0 {
		c.max = DefaultInspect
	}
	if c.max < 0 || c.max > MostInspect {
		return nil, fmt.Errorf("max of what is decided by a body is 1 to %d bytes", MostInspect)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	c.words = slices.Compact(slices.Sorted(slices.Values(c.words)))
	c.parts = slices.Compact(slices.Sorted(slices.Values(c.parts)))
	return &c, nil
}

// check reports what of a condition cannot be meant.
func (c *bodyCondition) check() error {
	if c.form == bodyGraphQL {
		for _, w := range c.words {
			if w != "query" && w != "mutation" && w != "subscription" {
				return fmt.Errorf("%q is no GraphQL operation: they are query, mutation and subscription", w)
			}
		}
	} else if err := bodyWords("method", c.words); err != nil {
		return err
	}
	if len(c.words) == 0 && !c.responses {
		return fmt.Errorf("asks for %s and lists none that is allowed", c.form)
	}
	what := map[bodyForm]string{bodyGraphQL: "field", bodyJSONRPC: "tool"}[c.form]
	if err := bodyWords(what, c.parts); err != nil {
		return err
	}
	if c.form == bodyJSONRPC && len(c.parts) > 0 && !takesWord(c.words, toolCall) {
		return fmt.Errorf("lists tools, and %q is not among its methods", toolCall)
	}
	return nil
}

// bodyWords checks names and prefixes.
func bodyWords(what string, list []string) error {
	if len(list) > maxBodyWords {
		return fmt.Errorf("lists more than %d %ss", maxBodyWords, what)
	}
	for _, w := range list {
		name := strings.TrimSuffix(w, "*")
		if name == "" || !plainWord(name) || strings.Contains(name, "*") || len(w) > maxShownWord {
			return fmt.Errorf(`%q is no %s: write a name of at most %d printable characters, or the beginning of one and "*"`, w, what, maxShownWord)
		}
	}
	return nil
}

// plainWord reports whether a word has nothing but printable ASCII.
func plainWord(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// takesWord reports whether one of the patterns stands for a word.
func takesWord(patterns []string, word string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, deep := strings.CutSuffix(p, "*")
		if !deep {
			return p == word
		}
		return len(word) > len(prefix) && strings.HasPrefix(word, prefix) && plainWord(word)
	})
}

// wordsCover reports whether whatever the patterns of r stand for, some
// pattern of o does.
func wordsCover(o, r []string) bool {
	for _, w := range r {
		prefix, deep := strings.CutSuffix(w, "*")
		if !slices.ContainsFunc(o, func(p string) bool {
			wide, ok := strings.CutSuffix(p, "*")
			return p == w || ok && strings.HasPrefix(prefix, wide) && (deep || len(prefix) > len(wide))
		}) {
			return false
		}
	}
	return true
}

// takes reports whether the condition lets one thing of a body be.
func (c *bodyCondition) takes(x *bodyItem) bool {
	if x.response {
		return c.responses
	}
	if !takesWord(c.words, x.word) {
		return false
	}
	if len(c.parts) == 0 || c.form == bodyJSONRPC && !isToolCall(x.word) {
		return true
	}
	return takesWord(c.parts, x.part)
}

// fits reports whether everything that a body asks for is allowed.
func (c *bodyCondition) fits(b *Body) bool {
	if b == nil || b.size > c.max {
		return false
	}
	reading := &b.forms[c.form]
	if reading.fault != "" || len(reading.items) == 0 {
		return false
	}
	for i := range reading.items {
		if !c.takes(&reading.items[i]) {
			return false
		}
	}
	return true
}

// covers reports whether whatever fits r fits c.
func (c *bodyCondition) covers(r *bodyCondition) bool {
	switch {
	case c == nil:
		return true
	case r == nil || c.form != r.form || r.max > c.max || r.responses && !c.responses || !wordsCover(c.words, r.words):
		return false
	case len(c.parts) == 0 || c.form == bodyJSONRPC && !meetsToolCall(r.words):
		return true
	}
	return len(r.parts) > 0 && wordsCover(c.parts, r.parts)
}

// meetsToolCall reports whether one of the patterns may stand for a call of a
// tool.
func meetsToolCall(patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, deep := strings.CutSuffix(p, "*")
		return isToolCall(p) || deep && len(prefix) < len(toolCall) && strings.EqualFold(prefix, toolCall[:len(prefix)])
	})
}

// String writes the condition in one form.
func (c *bodyCondition) String() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %q %q %v %d", c.form, c.words, c.parts, c.responses, c.max)
}

// fault says why a body cannot be decided by the condition; "" if it can.
func (c *bodyCondition) fault(b *Body) string {
	switch {
	case b == nil:
		return "has not been read"
	case b.size > c.max:
		return fmt.Sprintf("is larger than the %d bytes that it is decided by", c.max)
	case len(b.forms[c.form].items) == 0 && b.forms[c.form].fault == "":
		return "asks for nothing"
	}
	return b.forms[c.form].fault
}

// why says what of a body the condition does not let be; "" when it fits.
func (c *bodyCondition) why(b *Body) string {
	if f := c.fault(b); f != "" {
		return "the body " + f
	}
	for _, x := range b.forms[c.form].items {
		if !c.takes(&x) {
			return c.refused(&x)
		}
	}
	return ""
}

// refused names what of a body is not let be.
func (c *bodyCondition) refused(x *bodyItem) string {
	switch {
	case x.response:
		return "a JSON-RPC response is not among what it may send"
	case takesWord(c.words, x.word):
		return x.title(c.form) + " is not " + orText(c.parts)
	}
	return x.title(c.form) + " is not " + orText(c.words)
}

// title names a thing that a body asks for.
func (x *bodyItem) title(form bodyForm) string {
	switch {
	case x.response:
		return "a JSON-RPC response"
	case form == bodyGraphQL:
		return "GraphQL " + x.word + " of field " + x.part
	case isToolCall(x.word) && x.part != "":
		return "JSON-RPC method " + shownWord(x.word) + " of tool " + shownWord(x.part)
	}
	return "JSON-RPC method " + shownWord(x.word)
}

// onlyNamed reports whether a query has no parameter but those that the
// rule's conditions name: servers take documents and calls from there too.
func (r *rule) onlyNamed(query string) bool {
	for rest, more := query, query != ""; more; {
		var pair string
		pair, rest, more = strings.Cut(rest, "&")
		key, _, _ := strings.Cut(pair, "=")
		if pair == "" {
			continue
		}
		if !wellEscaped(pair) || strings.IndexByte(pair, ';') >= 0 {
			return false
		}
		if !slices.ContainsFunc(r.conds, func(c condition) bool { return !c.header && formEquals(key, c.name) }) {
			return false
		}
	}
	return true
}

// bodyDenial is the denial of what only the body of a request is at odds with.
func (r *rule) bodyDenial(q *query) (Reason, string) {
	if f := r.body.fault(q.Body); f != "" {
		return UninspectableBody, "the body of this request to host " + q.Host + " decides whether it is allowed, and it " + f
	}
	for _, x := range q.Body.forms[r.body.form].items {
		if !r.body.takes(&x) {
			return MethodNotAllowed, x.title(r.body.form) + " is not allowed on host " + q.Host + " by this sandbox's policy"
		}
	}
	return NoRuleMatched, denialMessage(NoRuleMatched, q)
}

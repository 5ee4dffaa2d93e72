package policy

import (
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// condition is one thing that an allow rule asks of a request's query or
// header: that a parameter or field is there once, with one of some values.
type condition struct {
	header bool
	name   string   // decoded name of a parameter, or canonical name of a field
	values []string // sorted; empty: any value
}

// maxConditions bounds what one rule may ask.
const maxConditions = 16

// conditionsOf reads the query and headers of a rule as written, where "*"
// alone stands for any value.
func conditionsOf(r *Rule) ([]condition, error) {
	var out []condition
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		out = append(out, condition{name: name, values: r.Query[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if !isToken(name) {
			return nil, fmt.Errorf("%q is not the name of a header", name)
		}
		if i := slices.IndexFunc(out, func(c condition) bool { return c.header && c.name == canonical }); i >= 0 {
			return nil, fmt.Errorf("header %s is named twice", canonical)
		}
		out = append(out, condition{header: true, name: canonical, values: r.Headers[name]})
	}
	if len(out) > maxConditions {
		return nil, fmt.Errorf("more than %d conditions", maxConditions)
	}
	for i := range out {
		c := &out[i]
		switch {
		case c.name == "":
			return nil, fmt.Errorf("a query parameter has no name")
		case len(c.values) == 0:
			return nil, fmt.Errorf("%s: no value is listed", c)
		case slices.Contains(c.values, "*") && len(c.values) > 1:
			return nil, fmt.Errorf(`%s: "*" is any value, and stands alone`, c)
		case c.values[0] == "*":
			c.values = nil
		default:
			c.values = slices.Compact(slices.Sorted(slices.Values(c.values)))
		}
	}
	return out, nil
}

// String names the condition.
func (c *condition) String() string {
	if c.header {
		return "header " + c.name
	}
	return "query parameter " + c.name
}

// queryFits reports whether a query, as sent, has each parameter that the
// rule asks for once, with a value that it lists. A query that could be split
// or decoded in two ways fits no condition.
func (r *rule) queryFits(query string) bool {
	for i := range r.conds {
		if c := &r.conds[i]; !c.header && !c.inQuery(query) {
			return false
		}
	}
	return true
}

func (c *condition) inQuery(query string) bool {
	if strings.IndexByte(query, ';') >= 0 {
		return false // some servers divide there too
	}
	found := false
	for rest, more := query, query != ""; more; {
		var pair string
		pair, rest, more = strings.Cut(rest, "&")
		key, value, _ := strings.Cut(pair, "=")
		if !wellEscaped(pair) {
			return false
		}
		if !formEquals(key, c.name) {
			continue
		}
		if found || !c.takesForm(value) {
			return false
		}
		found = true
	}
	return found
}

func (c *condition) takesForm(value string) bool {
	return len(c.values) == 0 || slices.ContainsFunc(c.values, func(v string) bool { return formEquals(value, v) })
}

// headersFit reports whether a request has each header field that the rule
// asks for once, with a value that it lists.
func (r *rule) headersFit(header map[string][]string) bool {
	for i := range r.conds {
		c := &r.conds[i]
		if !c.header {
			continue
		}
		lines := header[c.name]
		if len(lines) != 1 || len(c.values) > 0 && !slices.Contains(c.values, lines[0]) {
			return false
		}
	}
	return true
}

// wellEscaped reports whether every percent sign begins an escape.
func wellEscaped(s string) bool {
	for s != "" {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			return true
		}
		if _, _, _, ok := nextByte(s[i:]); !ok {
			return false
		}
		s = s[i+3:]
	}
	return true
}

// formEquals reports whether a part of a query, decoded as a form is, equals
// want.
func formEquals(raw, want string) bool {
	for raw != "" {
		if want == "" {
			return false
		}
		c, rest, escaped, _ := nextByte(raw)
		if c == '+' && !escaped {
			c = ' '
		}
		if c != want[0] {
			return false
		}
		raw, want = rest, want[1:]
	}
	return want == ""
}

// conditionsCover reports whether whatever satisfies the conditions of r
// satisfies those of o.
func conditionsCover(o, r *rule) bool {
	for _, c := range o.conds {
		if !slices.ContainsFunc(r.conds, func(x condition) bool {
			return x.header == c.header && x.name == c.name && (len(c.values) == 0 || len(x.values) > 0 && holds(c.values, x.values))
		}) {
			return false
		}
	}
	return true
}

// conditions writes the rule's conditions in one form.
func (r *rule) conditions() string {
	var b strings.Builder
	for i := range r.conds {
		fmt.Fprintf(&b, "%s %q;", &r.conds[i], r.conds[i].values)
	}
	return b.String()
}

// conditionWhy says which of the rule's conditions a request does not meet.
func (r *rule) conditionWhy(q *query) string {
	for i := range r.conds {
		c := &r.conds[i]
		one := rule{shape: &shape{conds: []condition{*c}}}
		if c.header && one.headersFit(q.Header) || !c.header && one.queryFits(q.Query) {
			continue
		}
		if len(c.values) == 0 {
			return c.String() + " is not there once"
		}
		return fmt.Sprintf("%s is not there once with the value %s", c, orText(c.values))
	}
	return ""
}

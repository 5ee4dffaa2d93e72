package policy

import "testing"

// TestConditions holds what a rule's conditions on query and header admit,
// and that what could be read in two ways admits nothing.
func TestConditions(t *testing.T) {
	query := func(m map[string][]string) func(*Rule) { return func(r *Rule) { r.Query = m } }
	headers := func(m map[string][]string) func(*Rule) { return func(r *Rule) { r.Headers = m } }
	s := mustCompile(t, sandboxDoc(
		allowRule("q.test", line(1), query(map[string][]string{"format": {"json", "a b"}, "page": {"*"}})),
		allowRule("h.test", line(2), headers(map[string][]string{"x-env": {"staging"}})),
	))
	for _, tt := range []struct {
		query string
		want  Reason
	}{
		{"format=json&page=1", RuleAllow},
		{"page=&format=json&other=x", RuleAllow},
		{"format=a+b&page=1", RuleAllow},
		{"format=a%20b&page=1", RuleAllow},
		{"f%6Frmat=jso%6E&page=1", RuleAllow},
		{"format=json", QueryNotAllowed},
		{"format=xml&page=1", QueryNotAllowed},
		{"format=json&format=json&page=1", QueryNotAllowed},
		{"format=json&f%6Frmat=xml&page=1", QueryNotAllowed},
		{"format=json;page=1&page=2", QueryNotAllowed},
		{"format=json&page=1&x=%zz", QueryNotAllowed},
		{"Format=json&page=1", QueryNotAllowed},
		{"", QueryNotAllowed},
	} {
		r := get("q.test", "/")
		r.Query = tt.query
		wantReason(t, s, r, tt.want)
	}
	for _, tt := range []struct {
		header map[string][]string
		want   Reason
	}{
		{map[string][]string{"X-Env": {"staging"}}, RuleAllow},
		{map[string][]string{"X-Env": {"prod"}}, NoRuleMatched},
		{map[string][]string{"X-Env": {"staging", "prod"}}, NoRuleMatched},
		{nil, NoRuleMatched},
	} {
		r := get("h.test", "/")
		r.Header = tt.header
		wantReason(t, s, r, tt.want)
	}
	r := get("q.test", "/")
	r.Query = "format=json&page=1"
	if n := testing.AllocsPerRun(100, func() { s.Decide(r) }); n != 0 {
		t.Errorf("%v allocations for a condition", n)
	}
}

// TestConditionCeiling: what the org asks for, a rule below it asks for too.
func TestConditionCeiling(t *testing.T) {
	query := func(m map[string][]string) func(*Rule) { return func(r *Rule) { r.Query = m } }
	org := &Org{Rules: []Rule{allowRule("q.test", query(map[string][]string{"k": {"1", "2"}}))}}
	for name, tt := range map[string]struct {
		query map[string][]string
		ok    bool
	}{
		"the same":  {map[string][]string{"k": {"2", "1"}}, true},
		"less":      {map[string][]string{"k": {"2"}}, true},
		"and more":  {map[string][]string{"k": {"2"}, "j": {"x"}}, true},
		"other":     {map[string][]string{"k": {"3"}}, false},
		"any value": {map[string][]string{"k": {"*"}}, false},
		"none":      {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			doc := sandboxDoc(allowRule("q.test", query(tt.query)))
			doc.Org = org
			if s, problems := Compile(doc, 1); (s != nil) != tt.ok {
				t.Errorf("compiled %v: %v", s != nil, problems)
			}
		})
	}
	for name, r := range map[string]Rule{
		"a denial":   {Action: ActionDeny, Host: "q.test", Query: map[string][]string{"k": {"1"}}},
		"no value":   {Action: ActionAllow, Host: "q.test", Query: map[string][]string{"k": {}}},
		"star of":    {Action: ActionAllow, Host: "q.test", Query: map[string][]string{"k": {"*", "1"}}},
		"no name":    {Action: ActionAllow, Host: "q.test", Query: map[string][]string{"": {"1"}}},
		"bad header": {Action: ActionAllow, Host: "q.test", Headers: map[string][]string{"a b": {"1"}}},
		"two forms":  {Action: ActionAllow, Host: "q.test", Headers: map[string][]string{"x-a": {"1"}, "X-A": {"2"}}},
	} {
		if s, _ := Compile(sandboxDoc(r), 1); s != nil {
			t.Errorf("%s compiles", name)
		}
	}
}

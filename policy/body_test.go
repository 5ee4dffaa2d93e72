package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func jsonBody(text string) *Body {
	return ReadBody([]string{"application/json"}, []byte(text), AnyBodyForm)
}

// TestJSONRPCCondition holds what a rule's condition on JSON-RPC admits, and
// that what two servers could read in two ways admits nothing.
func TestJSONRPCCondition(t *testing.T) {
	mcp := allowRule("mcp.test", line(1))
	mcp.Paths = []string{"/mcp"}
	mcp.JSONRPC = &JSONRPC{Methods: []string{"initialize", "notifications/*", "tools/list", "tools/call"}, Tools: []string{"search", "docs_*"}, Responses: true, Max: 512}
	strict := allowRule("eth.test", line(2))
	strict.JSONRPC = &JSONRPC{Methods: []string{"eth_call"}}
	s := mustCompile(t, sandboxDoc(mcp, strict))
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	for name, tt := range map[string]struct {
		body string
		want Reason
	}{
		"a call":                 {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, RuleAllow},
		"blanks":                 {" \r\n\t{ \"method\" : \"initialize\" } \n", RuleAllow},
		"a notification":         {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, RuleAllow},
		"a response":             {`{"jsonrpc":"2.0","id":1,"result":{"x":[1,-2.5e3,true,null]}}`, RuleAllow},
		"an error response":      {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, RuleAllow},
		"a tool":                 {call(`{"name":"search","arguments":{"name":"rm"}}`), RuleAllow},
		"a tool by its prefix":   {call(`{"name":"docs_read"}`), RuleAllow},
		"an escaped method":      {`{"method":"tools\/l\u0069st"}`, RuleAllow},
		"a batch":                {`[{"method":"tools/list"},` + call(`{"name":"search"}`) + `]`, RuleAllow},
		"another method":         {`{"method":"resources/read"}`, MethodNotAllowed},
		"another case":           {`{"method":"Tools/List"}`, MethodNotAllowed},
		"the prefix alone":       {`{"method":"notifications/"}`, MethodNotAllowed},
		"a NUL behind":           {`{"method":"notifications/x\u0000"}`, MethodNotAllowed},
		"another tool":           {call(`{"name":"rm"}`), MethodNotAllowed},
		"a tool without a name":  {call(`{}`), MethodNotAllowed},
		"a tool in a list":       {call(`["search"]`), MethodNotAllowed},
		"a tool that is no text": {call(`{"name":1}`), MethodNotAllowed},
		"a batch with another":   {`[{"method":"tools/list"},{"method":"resources/read"}]`, MethodNotAllowed},
		"an empty batch":         {`[]`, UninspectableBody},
		"a batch in a batch":     {`[[{"method":"tools/list"}]]`, UninspectableBody},
		"empty":                  {``, UninspectableBody},
		"no object":              {`"tools/list"`, UninspectableBody},
		"no method":              {`{"id":1}`, UninspectableBody},
		"a method and a result":  {`{"method":"tools/list","result":1}`, UninspectableBody},
		"a method that is null":  {`{"method":null}`, UninspectableBody},
		"a key twice":            {`{"method":"tools/list","method":"resources/read"}`, UninspectableBody},
		"a key twice, escaped":   {`{"method":"tools/list","m\u0065thod":"resources/read"}`, UninspectableBody},
		"a key twice, inside":    {call(`{"name":"search","arguments":{"a":1,"a":2}}`), UninspectableBody},
		"a key in another case":  {`{"method":"tools/list","Method":"resources/read"}`, UninspectableBody},
		"a key that folds":       {call(`{"name":"search","NAME":"rm"}`), UninspectableBody},
		"something behind":       {`{"method":"tools/list"} {"method":"x"}`, UninspectableBody},
		"a byte order mark":      {"\ufeff" + `{"method":"tools/list"}`, UninspectableBody},
		"no UTF-8":               {"{\"method\":\"tools/list\",\"x\":\"\xff\"}", UninspectableBody},
		"half a surrogate":       {`{"method":"tools/list","x":"\ud800"}`, UninspectableBody},
		"a control character":    {"{\"method\":\"tools/list\",\"x\":\"\n\"}", UninspectableBody},
		"a comment":              {`{"method":"tools/list"/*x*/}`, UninspectableBody},
		"a comma too many":       {`{"method":"tools/list",}`, UninspectableBody},
		"not a number":           {`{"method":"tools/list","id":01}`, UninspectableBody},
		"too deep":               {`{"method":"tools/list","x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, UninspectableBody},
		"too large":              {`{"method":"tools/list","x":"` + strings.Repeat("x", 512) + `"}`, UninspectableBody},
		"a GraphQL request":      {`{"query":"{a}"}`, UninspectableBody},
	} {
		t.Run(name, func(t *testing.T) {
			r := post("mcp.test", "/mcp")
			r.Body = jsonBody(tt.body)
			wantReason(t, s, r, tt.want)
		})
	}
	r := post("eth.test", "/")
	r.Body = jsonBody(`{"id":1,"result":1}`)
	wantReason(t, s, r, MethodNotAllowed)
	r.Body = jsonBody(`{"method":"eth_call"}`)
	wantReason(t, s, r, RuleAllow)
	r.Query = "method=eth_send"
	wantReason(t, s, r, QueryNotAllowed)
	r.Query, r.Method = "", "GET"
	wantReason(t, s, r, MethodNotAllowed)
	r = post("mcp.test", "/mcp")
	r.Body = jsonBody(call(`{"name":"search"}`))
	if n := testing.AllocsPerRun(100, func() { s.Decide(r) }); n != 0 {
		t.Errorf("%v allocations for a condition on the body", n)
	}
}

func post(host, path string) Request {
	r := get(host, path)
	r.Method = "POST"
	return r
}

// TestGraphQLCondition holds the same of GraphQL.
func TestGraphQLCondition(t *testing.T) {
	rule := allowRule("g.test", line(1))
	rule.Paths = []string{"/graphql"}
	rule.GraphQL = &GraphQL{Operations: []string{"query"}, Fields: []string{"viewer", "repo*"}}
	s := mustCompile(t, sandboxDoc(rule))
	document := func(text string) string {
		b, err := json.Marshal(map[string]any{"query": text})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for name, tt := range map[string]struct {
		body string
		want Reason
	}{
		"short":                  {document(`{viewer{login}}`), RuleAllow},
		"named":                  {document(`query Q($n: [Int!]! = [1, -2.5] @d, $s: In = {a: "}", b: E}) @live { repository(owner: $o, name: "x\"}") { id } }`), RuleAllow},
		"an alias":               {document(`{mutation: viewer{deleteAll{id}}}`), RuleAllow},
		"a fragment":             {document(`query{...F} fragment F on Query @x(a:1) {viewer{...G}} fragment G on User{id}`), RuleAllow},
		"a fragment in place":    {document(`{... on Query @include(if: $b) {viewer{id}} ... @skip(if: true) {repo1}}`), RuleAllow},
		"a comment":              {document("{ # } mutation { x }\n viewer, # é\r}"), RuleAllow},
		"variables":              {`{"query":"{viewer}","variables":{"a":"mutation"},"operationName":null,"extensions":{"clientLibrary":{"name":"x"}}}`, RuleAllow},
		"a batch":                {`[{"query":"{viewer}"},{"query":"{repo1}"}]`, RuleAllow},
		"a mutation":             {document(`mutation{viewer}`), MethodNotAllowed},
		"a subscription":         {document(`subscription S{viewer}`), MethodNotAllowed},
		"another field":          {document(`{viewer secrets}`), MethodNotAllowed},
		"behind an alias":        {document(`{viewer: secrets}`), MethodNotAllowed},
		"in a fragment":          {document(`{viewer ...F} fragment F on Query{...G} fragment G on Query{viewer ...F secrets}`), MethodNotAllowed},
		"in a fragment in place": {document(`{viewer ... on Query{... {secrets}}}`), MethodNotAllowed},
		"introspection":          {document(`{__schema{types{name}}}`), MethodNotAllowed},
		"a second operation":     {document(`query A{viewer} mutation B{deleteAll}`), MethodNotAllowed},
		"a batch with another":   {`[{"query":"{viewer}"},{"query":"mutation{x}"}]`, MethodNotAllowed},
		"a persisted query":      {`{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"aa"}}}`, UninspectableBody},
		"persisted and written":  {`{"query":"{viewer}","extensions":{"persistedQuery":{"version":1,"sha256Hash":"aa"}}}`, UninspectableBody},
		"a document's id":        {`{"query":"{viewer}","id":"x"}`, UninspectableBody},
		"a key twice":            {`{"query":"{viewer}","query":"mutation{x}"}`, UninspectableBody},
		"a key in another case":  {`{"query":"{viewer}","Query":"mutation{x}"}`, UninspectableBody},
		"no document":            {`{"query":null}`, UninspectableBody},
		"an empty document":      {document(``), UninspectableBody},
		"a fragment alone":       {document(`fragment F on Query{viewer}`), UninspectableBody},
		"a fragment twice":       {document(`{...F} fragment F on Query{viewer} fragment F on Query{secrets}`), UninspectableBody},
		"a fragment too few":     {document(`{...F}`), UninspectableBody},
		"no selection":           {document(`{}`), UninspectableBody},
		"not closed":             {document(`{viewer`), UninspectableBody},
		"closed twice":           {document(`{viewer}}`), UninspectableBody},
		"a block string":         {document(`{viewer(a:""" ") } mutation {x(a: " """)}`), UninspectableBody},
		"a line in a string":     {document("{viewer(a:\"\n\")}"), UninspectableBody},
		"a line in a comment":    {document("{viewer #\u2028 }\n}"), UninspectableBody},
		"a description":          {document(`"x" query{viewer}`), UninspectableBody},
		"a type":                 {document(`{viewer} type T{a:Int}`), UninspectableBody},
		"a number and a name":    {document(`{viewer(a:1b:2)}`), UninspectableBody},
		"another letter":         {document(`{viewer é}`), UninspectableBody},
		"too deep":               {document(strings.Repeat("{a", 200) + strings.Repeat("}", 200)), UninspectableBody},
		"a JSON-RPC call":        {`{"method":"viewer"}`, UninspectableBody},
	} {
		t.Run(name, func(t *testing.T) {
			r := post("g.test", "/graphql")
			r.Body = jsonBody(tt.body)
			wantReason(t, s, r, tt.want)
		})
	}
	for name, contentType := range map[string][]string{
		"none": nil, "twice": {"application/json", "application/json"}, "a document": {"application/graphql"}, "a form": {"application/x-www-form-urlencoded"},
		"several parts": {"multipart/form-data; boundary=x"}, "UTF-16": {"application/json; charset=utf-16"}, "broken": {"application/json; x"},
		"a charset that goes on": {"application/json; charset*1=utf-7"}, "an encoded charset": {"application/json; charset*=x''utf-7"}, "both": {"application/json; charset*0*=x''utf-7"},
		"two charsets": {"application/json; charset=utf-8; charset=utf-7"}, "another parameter": {"application/json; charset=utf-8; profile=x"},
		"a folded letter": {"application/j\u017fon"}, "a folded charset": {"application/json; char\u017fet=utf-8"}, "two in one": {"application/json, text/plain"},
		"an escaped charset": {`application/json; charset="utf\-8"`}, "a comment": {"application/json (x); charset=utf-8"},
	} {
		t.Run("type "+name, func(t *testing.T) {
			r := post("g.test", "/graphql")
			r.Body = ReadBody(contentType, []byte(`{"query":"{viewer}"}`), AnyBodyForm)
			wantReason(t, s, r, UninspectableBody)
		})
	}
	r := post("g.test", "/graphql")
	for _, contentType := range []string{"application/json", "Application/JSON", "application/json;charset=utf-8", "application/json; charset=UTF-8", `application/json ;	Charset="Utf-8" `, "application/json;"} {
		r.Body = ReadBody([]string{contentType}, []byte(`{"query":"{viewer}"}`), AnyBodyForm)
		wantReason(t, s, r, RuleAllow)
	}
	r.Query = "query=mutation{x}"
	wantReason(t, s, r, QueryNotAllowed)
	r.Method, r.Body = "GET", UnreadBody("is empty")
	wantReason(t, s, r, MethodNotAllowed)
}

// TestNeedsBody holds that a decision asks for a body where it depends on one,
// and denies until it has it, also in report mode's ceiling.
func TestNeedsBody(t *testing.T) {
	rule := allowRule("g.test", line(1))
	rule.GraphQL = &GraphQL{Operations: []string{"query"}, Max: 1000}
	other := allowRule("g.test", line(2))
	other.Paths = []string{"/open"}
	doc := sandboxDoc(rule, other)
	doc.Org = &Org{Rules: []Rule{rule, other}}
	s := mustCompile(t, doc)
	doc.Sandboxes[0].Mode = Report
	report := mustCompile(t, doc)
	for _, s := range []*Set{s, report} {
		d := s.Decide(post("g.test", "/graphql"))
		if d.Verdict != Deny || d.NeedsBody != 1000 || d.Reason != UninspectableBody {
			t.Errorf("without the body: %v %s, needs %d", d.Verdict, d.Reason, d.NeedsBody)
		}
		r := post("g.test", "/graphql")
		r.Body = jsonBody(`{"query":"{a}"}`)
		if d = s.Decide(r); d.Verdict != Allow || d.NeedsBody != 0 {
			t.Errorf("with it: %v %s, needs %d", d.Verdict, d.Reason, d.NeedsBody)
		}
		r.Body = jsonBody(`{"query":"mutation{a}"}`)
		if d = s.Decide(r); d.Verdict != Deny || d.NeedsBody != 0 || !strings.Contains(d.Message, "GraphQL mutation of field a") {
			t.Errorf("with another: %v %s %q", d.Verdict, d.Reason, d.Message)
		}
	}
	if d := s.Decide(post("g.test", "/open")); d.Verdict != Allow || d.NeedsBody != 1000 {
		t.Errorf("allowed by another rule: %v, needs %d", d.Verdict, d.NeedsBody)
	}
	if d := s.Decide(get("g.test", "/graphql")); d.NeedsBody != 0 {
		t.Errorf("a GET needs a body")
	}
}

// TestBodyCeiling: what the org asks of a body, every rule below it asks too.
func TestBodyCeiling(t *testing.T) {
	rpc := func(j JSONRPC) func(*Rule) { return func(r *Rule) { r.JSONRPC = &j } }
	gql := func(g GraphQL) func(*Rule) { return func(r *Rule) { r.GraphQL = &g } }
	org := &Org{Rules: []Rule{
		allowRule("r.test", line(1), rpc(JSONRPC{Methods: []string{"a", "tools/call", "n/*"}, Tools: []string{"x", "y*"}, Max: 1000})),
		allowRule("g.test", line(2), gql(GraphQL{Operations: []string{"query"}, Fields: []string{"f", "g*"}})),
	}}
	for name, tt := range map[string]struct {
		host   string
		change func(*Rule)
		ok     bool
	}{
		"fewer methods":        {"r.test", rpc(JSONRPC{Methods: []string{"a"}, Max: 1000}), true},
		"a narrower prefix":    {"r.test", rpc(JSONRPC{Methods: []string{"n/a*", "n/b"}, Max: 10}), true},
		"fewer tools":          {"r.test", rpc(JSONRPC{Methods: []string{"tools/call"}, Tools: []string{"x", "yy", "yz*"}, Max: 1000}), true},
		"any tool":             {"r.test", rpc(JSONRPC{Methods: []string{"tools/call"}, Max: 1000}), false},
		"another tool":         {"r.test", rpc(JSONRPC{Methods: []string{"tools/call"}, Tools: []string{"z"}, Max: 1000}), false},
		"another method":       {"r.test", rpc(JSONRPC{Methods: []string{"a", "b"}, Max: 1000}), false},
		"a wider prefix":       {"r.test", rpc(JSONRPC{Methods: []string{"n*"}, Max: 1000}), false},
		"the prefix as a name": {"r.test", rpc(JSONRPC{Methods: []string{"n/"}, Max: 1000}), false},
		"responses":            {"r.test", rpc(JSONRPC{Methods: []string{"a"}, Responses: true, Max: 1000}), false},
		"a larger body":        {"r.test", rpc(JSONRPC{Methods: []string{"a"}}), false},
		"no condition":         {"r.test", func(*Rule) {}, false},
		"another form":         {"r.test", gql(GraphQL{Operations: []string{"query"}}), false},
		"fewer fields":         {"g.test", gql(GraphQL{Operations: []string{"query"}, Fields: []string{"f"}}), true},
		"any field":            {"g.test", gql(GraphQL{Operations: []string{"query"}}), false},
		"another operation":    {"g.test", gql(GraphQL{Operations: []string{"mutation"}, Fields: []string{"f"}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			doc := sandboxDoc(allowRule(tt.host, line(3), tt.change))
			doc.Org = org
			if s, problems := Compile(doc, 1); (s != nil) != tt.ok {
				t.Errorf("compiled %v: %v", s != nil, problems)
			}
		})
	}
	for name, r := range map[string]Rule{
		"both":               {Action: ActionAllow, Host: "q.test", GraphQL: &GraphQL{Operations: []string{"query"}}, JSONRPC: &JSONRPC{Methods: []string{"a"}}},
		"a denial":           {Action: ActionDeny, Host: "q.test", JSONRPC: &JSONRPC{Methods: []string{"a"}}},
		"nothing":            {Action: ActionAllow, Host: "q.test", JSONRPC: &JSONRPC{}},
		"no operation":       {Action: ActionAllow, Host: "q.test", GraphQL: &GraphQL{Fields: []string{"a"}}},
		"a star alone":       {Action: ActionAllow, Host: "q.test", JSONRPC: &JSONRPC{Methods: []string{"*"}}},
		"a star inside":      {Action: ActionAllow, Host: "q.test", JSONRPC: &JSONRPC{Methods: []string{"a*b"}}},
		"a blank":            {Action: ActionAllow, Host: "q.test", JSONRPC: &JSONRPC{Methods: []string{"a b"}}},
		"tools without call": {Action: ActionAllow, Host: "q.test", JSONRPC: &JSONRPC{Methods: []string{"a"}, Tools: []string{"x"}}},
		"too large":          {Action: ActionAllow, Host: "q.test", JSONRPC: &JSONRPC{Methods: []string{"a"}, Max: 2 << 20}},
		"another method":     {Action: ActionAllow, Host: "q.test", Methods: []string{"GET"}, JSONRPC: &JSONRPC{Methods: []string{"a"}}},
		"access":             {Action: ActionAllow, Host: "q.test", Access: "read", JSONRPC: &JSONRPC{Methods: []string{"a"}}},
		"in the URL":         {Action: ActionAllow, Host: "q.test", Query: map[string][]string{"query": {"*"}}, GraphQL: &GraphQL{Operations: []string{"query"}}},
	} {
		if s, _ := Compile(sandboxDoc(r), 1); s != nil {
			t.Errorf("%s compiles", name)
		}
	}
}

// FuzzReadBody holds that whatever is read of a body can be read again alike:
// a body that two forms can read does not exist, JSON that is taken is JSON to
// the standard library too, and every operation that is found stands in the
// text.
func FuzzReadBody(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`,
		`[{"method":"a"},{"id":1,"result":{}}]`,
		`{"query":"query Q($a: [Int!] = 1) @d { x: viewer(a: {b: [1, \"}\"]}) { ...F } } fragment F on U { id } mutation { m }","variables":{}}`,
		"{\"query\":\"{a#}\\n}\"}",
		`{"a":"\ud83d\ude00","b":-1.5e+7}`,
		`{"query":"{a(b:\"\"\"x\"\"\")}"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := jsonBody(string(data))
		rpc, gql := b.forms[bodyJSONRPC], b.forms[bodyGraphQL]
		if rpc.fault == "" && gql.fault == "" {
			t.Fatalf("both JSON-RPC and GraphQL: %q", data)
		}
		for _, x := range []bodyReading{rpc, gql} {
			if (x.fault == "") == (len(x.items) == 0) {
				t.Fatalf("%q: fault %q and %d items", data, x.fault, len(x.items))
			}
		}
		if rpc.fault != "" && gql.fault != "" {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("taken, and not JSON: %q", data)
		}
		if gql.fault == "" {
			return
		}
		for _, x := range gql.items {
			if !slices.Contains([]string{"query", "mutation", "subscription"}, x.word) || !isName(x.part) {
				t.Fatalf("%q asks for %+v", data, x)
			}
		}
		checkDocument(t, data, gql.items)
	})
}

// checkDocument finds the operations of a document in a way of its own: by its
// words outside of all braces.
func checkDocument(t *testing.T, data []byte, items []bodyItem) {
	var list []struct{ Query string }
	if data = []byte(strings.TrimSpace(string(data))); data[0] != '[' {
		data = []byte("[" + string(data) + "]")
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		l := graphQLLexer{text: x.Query}
		depth := 0
		for l.advance() == nil && l.token != "" {
			switch word := l.token; {
			case word == "{" || word == "(":
				depth++
			case word == "}" || word == ")":
				depth--
			case depth == 0 && (word == "mutation" || word == "subscription"):
				if l.advance() == nil && l.token != "on" && !slices.ContainsFunc(items, func(i bodyItem) bool { return i.word == word }) &&
					!strings.Contains(x.Query, "on "+word) && !strings.Contains(x.Query, "query "+word) && !strings.Contains(x.Query, "fragment "+word) && !strings.Contains(x.Query, "@"+word) {
					t.Fatalf("%q: the %s is not among %+v", x.Query, word, items)
				}
				if l.token == "{" || l.token == "(" {
					depth++
				}
			}
		}
	}
}

package policy

import (
	"fmt"
	"strings"
)

// drawBody lets a rule ask something of the body.
func drawBody(s *byteSource, r *Rule) {
	r.Methods = nil
	size := choose(s, int64(0), 60, 500)
	if s.pick(3) == 0 {
		r.GraphQL = &GraphQL{Operations: choose(s, []string{"query"}, []string{"query", "mutation"}), Fields: choose(s, nil, []string{"a"}, []string{"a", "b*"}), Max: size}
		return
	}
	r.JSONRPC = &JSONRPC{Methods: choose(s, []string{"ping"}, []string{"tools/*"}, []string{"tools/call", "ping"}, []string{"tools/call"}),
		Responses: s.pick(3) == 0, Max: size}
	if r.JSONRPC.Methods[0] != "ping" {
		r.JSONRPC.Tools = choose(s, nil, []string{"find"}, []string{"f*", "x"})
	}
}

// lawBodies are bodies that some rules of drawBody tell apart.
func lawBodies() []*Body {
	var out []*Body
	call := func(tool string) string {
		return fmt.Sprintf(`{"method":"tools/call","params":{"name":%q}}`, tool)
	}
	for _, text := range []string{
		`{"method":"ping"}`, `{"method":"tools/list"}`, `{"method":"other"}`, `{"id":1,"result":{}}`, call("find"), call("fx"), call("x"), call("y"),
		"[" + call("find") + "," + call("x") + "]", `[{"method":"ping"},` + call("find") + "]", `[{"method":"ping"},{"result":1}]`,
		`{"query":"{a}"}`, `{"query":"{a b1}"}`, `{"query":"{b1}"}`, `{"query":"mutation{a}"}`, `{"query":"{a} mutation M{b}"}`, `{"query":"{c}"}`,
		`{"query":"{a}","variables":{"x":"` + strings.Repeat("x", 80) + `"}}`, `{"method":"ping","params":"` + strings.Repeat("x", 80) + `"}`, `no`,
	} {
		out = append(out, ReadBody([]string{"application/json"}, []byte(text), AnyBodyForm))
	}
	return out
}

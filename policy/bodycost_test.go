package policy

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestBodyCost holds that no body makes the gateway take many times its size
// to read, whatever refers to whatever in it.
func TestBodyCost(t *testing.T) {
	const size = 32 << 10
	document := func(text string) string {
		b, err := json.Marshal(map[string]string{"query": text})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	fields := func(most int) string {
		var s strings.Builder
		for n := 0; s.Len() < most; n++ {
			fmt.Fprintf(&s, "a%d ", n)
		}
		return s.String()
	}
	var chain strings.Builder
	for n := 0; chain.Len() < size-6<<10; n++ {
		fmt.Fprintf(&chain, "fragment f%d on Q{...f%d ...f%d}", n, n+1, n/2)
	}
	for name, text := range map[string]string{
		"a fragment in every operation":  document("fragment a on Q{" + fields(size/2) + "}" + strings.Repeat("{...a}", size/12)),
		"and few operations":             document("fragment a on Q{" + fields(size-1000) + "}" + strings.Repeat("{...a}", 60)),
		"fragments in a chain":           document(chain.String() + strings.Repeat("{...f0}", 60)),
		"many documents":                 "[" + strings.Repeat(document("{a}")+",", size/20) + document("{a}") + "]",
		"many fields":                    document("{" + fields(size-100) + "}"),
		"the same field":                 document("{" + strings.Repeat("a ", size/2-100) + "}"),
		"a batch of messages":            "[" + strings.Repeat(`{"method":"a"},`, size/15) + `{"method":"a"}]`,
		"a batch of nothing":             "[" + strings.Repeat("0,", size/2-10) + "0]",
		"a message with a list of lists": `{"method":"a","params":[` + strings.Repeat("[],", size/3-20) + "0]}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b := ReadBody([]string{"application/json"}, []byte(text), AnyBodyForm)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("%s: %d bytes are read with %d MiB", name, len(text), took>>20)
		}
		for _, x := range b.forms {
			if len(x.items) > maxBodyItems {
				t.Errorf("%s asks for %d things", name, len(x.items))
			}
		}
	}
}

// TestBodyForms holds that a decision asks for the forms of the rules alone,
// that no other is read, and that a body that was read for another form fits
// nothing.
func TestBodyForms(t *testing.T) {
	rpc, gql := allowRule("m.test", line(1)), allowRule("g.test", line(2))
	rpc.JSONRPC = &JSONRPC{Methods: []string{"ping"}}
	gql.GraphQL = &GraphQL{Operations: []string{"query"}}
	s := mustCompile(t, sandboxDoc(rpc, gql))
	const message, document = `{"method":"ping"}`, `{"query":"{a}"}`
	for host, text := range map[string]string{"m.test": message, "g.test": document} {
		r := post(host, "/")
		d := s.Decide(r)
		r.Body = ReadBody([]string{"application/json"}, []byte(text), d.BodyForms)
		wantReason(t, s, r, RuleAllow)
		r.Body = ReadBody([]string{"application/json"}, []byte(text), AnyBodyForm&^d.BodyForms)
		wantReason(t, s, r, UninspectableBody)
		if d.BodyForms == 0 || d.BodyForms == AnyBodyForm {
			t.Errorf("%s asks for the forms %b", host, d.BodyForms)
		}
	}
}

// TestManyOperations holds the bounds of a document.
func TestManyOperations(t *testing.T) {
	gql := allowRule("g.test", line(1))
	gql.GraphQL = &GraphQL{Operations: []string{"query"}}
	s := mustCompile(t, sandboxDoc(gql))
	r := post("g.test", "/")
	for _, tt := range []struct {
		text string
		want Reason
	}{
		{strings.Repeat("{a}", maxOperations), RuleAllow},
		{strings.Repeat("{a}", maxOperations+1), UninspectableBody},
		{"fragment f on Q{a} " + strings.Repeat("{...f}", maxOperations-1) + "mutation M{...f}", MethodNotAllowed},
		{"fragment f on Q{...f a} subscription S{...f}", MethodNotAllowed},
	} {
		r.Body = jsonBody(`{"query":"` + tt.text + `"}`)
		wantReason(t, s, r, tt.want)
	}
}

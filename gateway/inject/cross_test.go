package inject

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"sallyport/policy"
	"sallyport/secrets"
)

// TestCrossUnderLoad: sandboxes with the same placeholder name and other
// values, and sandboxes of one table with shaped placeholders of their own,
// never get one another's, in 100 000 requests at once, which is what a
// gateway does with each: look for values, plan, apply, mask the answer.
func TestCrossUnderLoad(t *testing.T) {
	const requests, workers = 100_000, 8
	type box struct {
		table   *Table
		guard   *Guard
		sandbox string
		value   secrets.Value
		raw     string
	}
	var boxes []box
	shaped := NewTable([]Secret{{Name: "API_KEY", Spec: &policy.Secret{Placeholder: "key_{rand:24}"}, Covers: covers(goodHost)}}, []string{"a", "b"}, testKey)
	for i, name := range []string{"a", "b", "a", "b"} {
		table := shaped
		if i >= 2 {
			table = NewTable([]Secret{{Name: "API_KEY", Spec: &policy.Secret{}, Covers: covers(goodHost)}}, []string{name}, testKey)
		}
		raw := fmt.Sprintf("REAL-%d-5be1c09d77af", i)
		v := mustValue(t, raw)
		boxes = append(boxes, box{table, NewGuard([]secrets.Held{{Name: "API_KEY", Value: v}}), name, v, raw})
	}
	one := func(n int) error {
		b := boxes[n%len(boxes)]
		other := boxes[(n+1)%len(boxes)]
		r := request("POST", "https://good.test/", "Authorization: Bearer "+b.table.Placeholder(b.sandbox, "API_KEY"))
		in := input(r, "API_KEY")
		in.Sandbox = b.sandbox
		if refusal := b.guard.Request(r); refusal != nil {
			return refusal
		}
		p, refusal := b.table.Plan(in)
		if refusal != nil {
			return refusal
		}
		values := map[string]secrets.Value{"API_KEY": b.value}
		out := r.Clone(t.Context())
		if err := p.Apply(out, values); err != nil {
			return err
		}
		if got := out.Header.Get("Authorization"); got != "Bearer "+b.raw {
			return fmt.Errorf("sandbox %d was given %q", n%len(boxes), got)
		}
		resp := &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader("echo " + b.raw)), ContentLength: -1}
		if err := b.guard.Masker(p.Covered(), values).Response(resp, func(string, string) {}); err != nil {
			return err
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "echo "+strings.Repeat("*", len(b.raw)) {
			return fmt.Errorf("sandbox %d received %q, %v", n%len(boxes), body, err)
		}
		if n%4 < 2 { // the other one of the same table
			in.Request = request("GET", "https://good.test/", "Authorization: Bearer "+other.table.Placeholder(map[string]string{"a": "b", "b": "a"}[b.sandbox], "API_KEY"))
			if _, refusal := b.table.Plan(in); n%4 == 0 && (refusal == nil || refusal.Reason != policy.PlaceholderLeak) {
				return fmt.Errorf("sandbox %d may use the placeholder of another", n%len(boxes))
			}
		}
		return nil
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for n := w; n < requests; n += workers {
				if err := one(n); err != nil {
					t.Errorf("request %d: %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
}

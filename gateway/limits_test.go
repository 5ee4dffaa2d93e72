package gateway

import (
	"testing"
	"time"

	"sallyport/gateway/identity"
	"sallyport/policy"
)

// memory is a Store.
type memory map[string][]byte

func (m memory) Put(_ string, k, v []byte) error {
	m[string(k)] = append([]byte(nil), v...)
	return nil
}
func (m memory) Delete(_ string, k []byte) error { delete(m, string(k)); return nil }
func (m memory) ForEach(_ string, fn func(k, v []byte) error) error {
	for k, v := range m {
		if err := fn([]byte(k), v); err != nil {
			return err
		}
	}
	return nil
}

func TestRequestsPerMinute(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a, err := newAllowances(memory{}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	w := a.get("s", policy.Limits{RequestsPerMinute: 3})
	for i := range 3 {
		if d := w.request(0); d != nil {
			t.Fatalf("request %d: %v", i, d.Reason)
		}
	}
	if d := w.request(0); d == nil || d.Reason != policy.RateLimited {
		t.Fatalf("fourth request: %v", d)
	}
	now = now.Add(20 * time.Second)
	if d := w.request(0); d != nil {
		t.Fatalf("a third of a minute later: %v", d.Reason)
	}
}

// TestAllowancesAreForgotten: what no longer binds anybody is dropped, also
// from the store; what does stays.
func TestAllowancesAreForgotten(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	store, clock := memory{}, func() time.Time { return now }
	limits := policy.Limits{BytesSentPerDay: 100}
	a, err := newAllowances(store, clock)
	if err != nil {
		t.Fatal(err)
	}
	use := func(keys ...string) {
		t.Helper()
		for _, k := range keys {
			if err := a.get(k, limits).add(1, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.save(); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(want int) {
		t.Helper()
		if len(a.all) != want || len(store) != want {
			t.Fatalf("%d allowances and %d in the store, want %d", len(a.all), len(store), want)
		}
	}
	use("s", "s rule", "other", "ss")
	kept(4)
	if err := a.forget("s"); err != nil {
		t.Fatal(err)
	}
	kept(2)
	now = now.Add(23 * time.Hour) // another day, but not yet for long
	use("other")
	kept(2)
	now = now.Add(2 * time.Hour)
	use("other")
	kept(1)
	now = now.Add(24 * time.Hour)
	if a, err = newAllowances(store, clock); err != nil {
		t.Fatal(err)
	}
	kept(0)
}

// TestBudgetSurvivesRestart: what was used of a day is used up after a
// restart too, and a new day begins with a new budget.
func TestBudgetSurvivesRestart(t *testing.T) {
	now := time.Date(2026, 1, 2, 23, 59, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	store := memory{}
	limits := policy.Limits{BytesSentPerDay: 100}
	a, err := newAllowances(store, clock)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.get("s", limits).add(100, 1<<20); err != nil {
		t.Fatalf("the whole budget: %v", err)
	}
	if err := a.save(); err != nil {
		t.Fatal(err)
	}
	if a, err = newAllowances(store, clock); err != nil {
		t.Fatal(err)
	}
	if err := a.get("s", limits).add(1, 0); err == nil {
		t.Fatal("a byte over the budget passed after a restart")
	}
	if d := a.get("s", limits).request(0); d == nil || d.Reason != policy.ByteBudget {
		t.Fatalf("request over the budget: %v", d)
	}
	now = now.Add(2 * time.Minute)
	if d := a.get("s", limits).request(0); d != nil {
		t.Fatalf("request of a new day: %v", d.Reason)
	}
}

func TestBodySize(t *testing.T) {
	a, err := newAllowances(memory{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	w := a.get("s", policy.Limits{MaxRequest: 10})
	if d := w.request(11); d == nil || d.Reason != policy.BodyTooLarge {
		t.Fatalf("request of 11 bytes: %v", d)
	}
	if d := w.request(10); d != nil {
		t.Fatalf("request of 10 bytes: %v", d.Reason)
	}
	other := a.get("r", policy.Limits{MaxRequest: 5, MaxResponse: 7})
	if request, response := (meters{w, other}).maxima(); request != 5 || response != 7 {
		t.Fatalf("maxima %d, %d", request, response)
	}
}

// TestRulesOfOneHost: two rules of one host have each their own limits. To
// use one in turn with the other gives none of them more.
func TestRulesOfOneHost(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a, err := newAllowances(memory{}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	sb := &identity.Sandbox{ID: "s", Policy: "ci"}
	rules := []*policy.Rule{
		{Owner: `sandbox "ci"`, Action: policy.ActionAllow, Host: "api.test", Paths: []string{"/a"}, Limits: policy.Limits{RequestsPerMinute: 2, MaxRequest: 10}},
		{Owner: `sandbox "ci"`, Action: policy.ActionAllow, Host: "api.test", Paths: []string{"/b"}, Limits: policy.Limits{RequestsPerMinute: 3}},
	}
	passed := [2]int{}
	for range 10 {
		for i, r := range rules {
			if a.of(nil, sb, r)[0].request(0) == nil {
				passed[i]++
			}
		}
	}
	if passed != [2]int{2, 3} {
		t.Errorf("requests that passed: %v", passed)
	}
	m := meters(a.of(nil, sb, rules[0]))
	a.of(nil, sb, rules[1])
	if most, _ := m.maxima(); most != 10 {
		t.Errorf("the first rule's largest body is %d after a request of the second", most)
	}
}

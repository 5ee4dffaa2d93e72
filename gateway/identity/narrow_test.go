package identity

import (
	"fmt"
	"testing"
	"time"

	"sallyport/policy"
)

// TestNarrowedSandboxes has 10,000 of them live at once, each with its own
// host, and each asked for it alone.
func TestNarrowedSandboxes(t *testing.T) {
	const n = 10000
	set, problems := policy.Compile(policy.Document{Sandboxes: []policy.Sandbox{{Name: "ci",
		Rules: []policy.Rule{{Action: policy.ActionAllow, Host: "*.jobs.test"}}}}}, 1)
	if set == nil {
		t.Fatal(problems)
	}
	table := newTable(t, &memoryStore{})
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		host := fmt.Sprintf("h%d.jobs.test", i)
		narrow, err := policy.NewNarrowing(policy.NarrowingSpec{Only: []string{host}, Methods: []string{"GET"}, Expires: now.Add(time.Duration(i+1) * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Add(Sandbox{Name: "job", ID: fmt.Sprint(i), Parent: "ci", Policy: "ci", Narrow: narrow}); err != nil {
			t.Fatal(err)
		}
	}
	allowed := func(id int, host int, at time.Time) bool {
		r := table.ByID(fmt.Sprint(id)).Request(policy.StageName)
		r.Host, r.Now = fmt.Sprintf("h%d.jobs.test", host), at
		return set.Decide(r).Verdict == policy.Allow
	}
	for i := range n {
		end := now.Add(time.Duration(i+1) * time.Second)
		if !allowed(i, i, now) || allowed(i, (i+1)%n, now) || !allowed(i, i, end.Add(-1)) || allowed(i, i, end) {
			t.Fatalf("sandbox %d is not what it was narrowed to", i)
		}
	}
	if got := len(table.List()); got != n {
		t.Errorf("%d are live", got)
	}
	for i := range n {
		if ok, err := table.Remove(fmt.Sprint(i)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if got := len(table.List()); got != 0 {
		t.Errorf("%d are live after their end", got)
	}
}

package gateway

import (
	"maps"
	"testing"
	"time"

	"sallyport/gateway/identity"
	"sallyport/policy"
)

// allowed is what is open, by what cuts it.
type allowed func(policy.Decision)

func (f allowed) revoke(d policy.Decision)             { f(d) }
func (allowed) still(policy.Decision) *policy.Decision { return nil }

// TestWouldCut counts what a new policy denies of what is open, and cuts
// nothing.
func TestWouldCut(t *testing.T) {
	g := &Gateway{Deps: Deps{Now: time.Now}}
	for _, host := range []string{"kept.test", "gone.test", "gone.test"} {
		g.live.add(&liveEntry{
			request: policy.Request{Sandbox: "ci", Stage: policy.StageConn, Host: host, Port: 443, Scheme: policy.HTTPS},
			of:      allowed(func(policy.Decision) { t.Error("a comparison cut a connection") }),
		})
	}
	set, problems := policy.Compile(policy.Document{Sandboxes: []policy.Sandbox{{Name: "ci",
		Rules: []policy.Rule{{Action: policy.ActionAllow, Host: "kept.test"}}}}}, 2)
	if set == nil {
		t.Fatal(problems)
	}
	cut, open := g.WouldCut(set)
	if open != 3 || !maps.Equal(cut, map[string]int{"ci": 2}) {
		t.Errorf("%v of %d would be cut", cut, open)
	}
}

// TestNarrowedIsDecidedAgain cuts what is open when the time of a narrowed
// sandbox is over, and counts it among what a reload would cut.
func TestNarrowedIsDecidedAgain(t *testing.T) {
	set, problems := policy.Compile(policy.Document{Sandboxes: []policy.Sandbox{{Name: "ci",
		Rules: []policy.Rule{{Action: policy.ActionAllow, Host: "kept.test"}}}}}, 2)
	if set == nil {
		t.Fatal(problems)
	}
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	narrow, err := policy.NewNarrowing(policy.NarrowingSpec{Only: []string{"kept.test"}, Expires: end})
	if err != nil {
		t.Fatal(err)
	}
	now := end.Add(-time.Second)
	g := &Gateway{Deps: Deps{Now: func() time.Time { return now }}}
	g.snap.Store(&Snapshot{Policy: set})
	var cuts []policy.Reason
	sb := &identity.Sandbox{Name: "job", ID: "1", Parent: "ci", Policy: "ci", Narrow: narrow}
	r := sb.Request(policy.StageConn)
	r.Host, r.Port, r.Scheme = "kept.test", 443, policy.HTTPS
	g.live.add(&liveEntry{request: r, of: allowed(func(d policy.Decision) { cuts = append(cuts, d.Reason) })})
	g.recheck()
	if n, _ := g.WouldCut(set); len(cuts) != 0 || len(n) != 0 {
		t.Errorf("before its end: cut %v, would cut %v", cuts, n)
	}
	now = end
	if n, _ := g.WouldCut(set); n["ci"] != 1 {
		t.Errorf("at its end a reload would cut %v", n)
	}
	if g.recheck(); len(cuts) != 1 || cuts[0] != policy.RuleExpired {
		t.Errorf("at its end: cut %v", cuts)
	}
}

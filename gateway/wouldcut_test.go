package gateway

import (
	"maps"
	"testing"
	"time"

	"sallyport/policy"
)

// TestWouldCut counts what a new policy denies of what is open, and cuts
// nothing.
func TestWouldCut(t *testing.T) {
	g := &Gateway{Deps: Deps{Now: time.Now}}
	for _, host := range []string{"kept.test", "gone.test", "gone.test"} {
		g.live.add(&liveEntry{
			request: policy.Request{Sandbox: "ci", Stage: policy.StageConn, Host: host, Port: 443, Scheme: policy.HTTPS},
			cut:     func(policy.Decision) { t.Error("a comparison cut a connection") },
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

package gateway

import "sallyport/policy"

// WouldCut returns how many of the connections, requests and relays that are
// open now a reload to set would end, by the sandbox of the policy, and how
// many are open in all. Nothing is ended.
func (g *Gateway) WouldCut(set *policy.Set) (cut map[string]int, open int) {
	type question struct {
		request policy.Request
		relay   policy.Relay
	}
	var asked []question
	g.live.mu.Lock()
	for e := range g.live.entries {
		asked = append(asked, question{e.request, e.relay})
	}
	g.live.mu.Unlock()
	cut = map[string]int{}
	for _, q := range asked { // outside the lock: there may be many
		r := q.request
		r.Now = g.Now()
		if _, gone := noLonger(q.relay, set.Decide(r)); gone {
			cut[r.Sandbox]++
		}
	}
	return cut, len(asked)
}

package gateway

import "sallyport/policy"

// WouldCut returns how many of the connections, requests and relays that are
// open now a reload to set would end, by the sandbox of the policy, and how
// many are open in all. Nothing is ended.
func (g *Gateway) WouldCut(set *policy.Set) (cut map[string]int, open int) {
	var asked []policy.Request
	g.live.mu.Lock()
	for e := range g.live.entries {
		asked = append(asked, e.request)
	}
	g.live.mu.Unlock()
	cut = map[string]int{}
	for _, r := range asked { // outside the lock: there may be many
		r.Now = g.Now()
		if set.Decide(r).Verdict != policy.Allow {
			cut[r.Sandbox]++
		}
	}
	return cut, len(asked)
}

package gateway

import "sallyport/policy"

// WouldCut returns how many of the connections, requests and relays that are
// open now a reload to set would end, by the sandbox of the policy, and how
// many are open in all. Nothing is ended.
func (g *Gateway) WouldCut(set *policy.Set) (cut map[string]int, open int) {
	asked := g.live.all()
	cut = map[string]int{}
	for _, e := range asked { // outside the lock: there may be many
		r := e.request
		r.Now = g.Now()
		if _, gone := e.noLonger(set.Decide(r)); gone {
			cut[r.Sandbox]++
		}
	}
	return cut, len(asked)
}

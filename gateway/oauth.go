package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"

	"sallyport/audit"
	"sallyport/policy"
)

// issuedFor is the life that a placeholder token is said to have, in seconds.
// It stands for whatever token is good at the time.
const issuedFor = 3600

// issued is the answer of a token endpoint (RFC 6749, section 5.1).
type issued struct {
	Access string `json:"access_token"`
	Type   string `json:"token_type"`
	Life   int    `json:"expires_in"` // seconds
}

// findToken finds out whether the request asks for a token that the gateway
// takes itself. Then nothing of it leaves.
func (r *request) findToken() *policy.Decision {
	if r.plan != nil {
		r.token, _ = r.snap.Inject.TokenEndpoint(r.injectInput())
	}
	return nil
}

// serveToken answers in the place of a token endpoint. What the client sent
// to show who it is is not needed; the real token is there already, or the
// request would have been refused.
func (r *request) serveToken() {
	body, err := json.Marshal(issued{r.snap.Inject.Placeholder(r.c.sandbox.Policy, r.token), "Bearer", issuedFor})
	if err != nil {
		panic(http.ErrAbortHandler) // of a struct of strings it is never one
	}
	h := r.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	r.w.WriteHeader(http.StatusOK)
	_, _ = r.w.Write(body) // the client may have gone
	e := r.event(r.kind(), audit.PhaseEnd)
	e.HTTP.Status, e.HTTP.RespBytes = http.StatusOK, int64(len(body))
	e.DurationMS = milliseconds(r.g.Now().Sub(r.started))
	r.g.recordOrLog(e)
}

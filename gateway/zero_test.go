package gateway

import (
	"net/http"
	"testing"

	"sallyport/audit"
)

// TestP3ZeroSnapshotDenies: a snapshot that lacks what finds secrets, fetches
// them or masks them lets no request out, whatever its policy says. Each is on
// record as one decision.
func TestP3ZeroSnapshotDenies(t *testing.T) {
	for name, lack := range map[string]func(*Snapshot){
		"placeholders": func(s *Snapshot) { s.Inject = nil },
		"values":       func(s *Snapshot) { s.Secrets = nil },
		"masking":      func(s *Snapshot) { s.Held = nil },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			port, heads := recordHeads(t)
			l.allow("plain.test", port)
			s := l.snapshot()
			lack(s)
			l.g.Swap(s)
			r := readResponse(t, say(t, l.raw(t, "plain.test", port), "GET / HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n"))
			if reason := r.Header.Get("X-Sallyport-Reason"); r.StatusCode != http.StatusServiceUnavailable || reason != "policy_unavailable" {
				t.Errorf("%d %s", r.StatusCode, reason)
			}
			if len(heads) != 0 {
				t.Error("the origin was reached")
			}
			unavailable := l.events(func(e *audit.Event) bool {
				return e.Phase == audit.PhaseDecision && e.Verdict == "deny" && e.Reason == "policy_unavailable"
			})
			if len(unavailable) != 1 || unavailable[0].Kind != audit.KindHTTP || unavailable[0].Host != "plain.test" || unavailable[0].Message == "" {
				t.Errorf("%d decisions are recorded, want one of the request: %+v", len(unavailable), unavailable)
			}
		})
	}
}

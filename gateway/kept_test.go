package gateway

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/policy"
)

// speaker makes one request after the other on one connection.
type speaker struct {
	net.Conn
	get func() (status string)
}

// speaker opens a connection to api.test.
func (l *lab) speaker(t *testing.T, port uint16, h2 bool) speaker {
	t.Helper()
	if !h2 {
		c := l.rawTLS(t, "api.test", port, "http/1.1")
		return speaker{c, func() string {
			return strconv.Itoa(readResponse(t, say(t, c, "GET /204 HTTP/1.1\r\nHost: api.test\r\n\r\n")).StatusCode)
		}}
	}
	s, _ := l.framer(t, "api.test", port)
	id := uint32(1)
	return speaker{s.Conn, func() string {
		s.head(t, id, true, ":method", "GET", ":scheme", "https", ":path", "/204", ":authority", "api.test")
		defer func() { id += 2 }()
		return s.status(t, id)
	}}
}

// TestP7RefusalIsThePolicysThatMadeIt: a connection that is kept to explain why
// it was refused ends when a reload allows it. Under a reload that does not, it
// ends with its next request, whose record names the policy that refused it.
func TestP7RefusalIsThePolicysThatMadeIt(t *testing.T) {
	const line = 99
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			o := l.origin(t, "h2", "http/1.1")
			l.allow("api.test", o.port)
			allowed := l.rules
			denied := func(line int) []policy.Rule {
				return append(allowed[:1:1], policy.Rule{Action: policy.ActionDeny, Host: "api.test", Pos: policy.Pos{File: "ci.hcl", Line: line}})
			}
			load := func(rules []policy.Rule) {
				l.rules = rules
				l.load()
			}
			load(denied(line))
			a, b := l.speaker(t, o.port, h2), l.speaker(t, o.port, h2)
			for _, c := range []speaker{a, a, b} {
				if got := c.get(); got != "403" {
					t.Fatalf("denied: %s", got)
				}
			}
			load(denied(line + 1))
			if got := a.get(); got != "403" {
				t.Errorf("denied again: %s", got)
			}
			ended(t, a, 10*time.Second)
			load(allowed)
			ended(t, b, cutWithin)
			if got := l.speaker(t, o.port, h2).get(); got != "204" {
				t.Errorf("allowed: %s", got)
			}
			for _, e := range l.events(func(e *audit.Event) bool { return e.Phase == audit.PhaseDecision && e.Verdict == "deny" }) {
				if e.Policy.Generation != 1 || e.Rule == nil || e.Rule.Line != line {
					t.Errorf("%s: generation %d, %+v", e.Kind, e.Policy.Generation, e.Rule)
				}
			}
		})
	}
}

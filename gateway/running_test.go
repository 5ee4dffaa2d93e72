package gateway

import (
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/policy"
)

// TestRequestsAtOnce: however a sandbox spreads them over connections, no
// more of its requests run at once than its policy lets it hold connections;
// and again as many when they have ended.
func TestRequestsAtOnce(t *testing.T) {
	const most = 6
	l := newLab(t)
	o := l.origin(t, "h2", "http/1.1")
	l.limits.Connections = most
	l.allow("api.test", o.port)
	l.load()
	get := func(s *stream2, id uint32, path string) {
		s.head(t, id, true, ":method", "GET", ":scheme", "https", ":path", path, ":authority", "api.test")
	}
	a, _ := l.framer(t, "api.test", o.port)
	b, _ := l.framer(t, "api.test", o.port)
	for i := range uint32(most / 2) {
		get(a, 2*i+1, "/hang")
		get(b, 2*i+1, "/hang")
	}
	l.await(t, "all that may run", func(*audit.Event) bool { return len(o.saw()) == most })
	get(a, 101, "/over")
	if code := a.status(t, 101); code != "429" {
		t.Errorf("one more: %s", code)
	}
	if e := l.denied(t, audit.KindHTTP, policy.ConnectionLimit); e.HTTP.Path != "/over" {
		t.Errorf("%+v", e.HTTP)
	}
	must(t, b.Conn.Close())
	for end := time.Now().Add(10 * time.Second); l.g.state(l.sandbox.ID).running.Load() > most/2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the requests of a closed connection still run")
		}
	}
	get(a, 103, "/hello")
	if code := a.status(t, 103); code != "200" {
		t.Errorf("after others have ended: %s", code)
	}
	if n := l.toldOf(policy.ConnectionLimit); n != 1 || len(o.saw()) != most+1 {
		t.Errorf("%d are recorded as too many, and the origin saw %d", n, len(o.saw()))
	}
}

package audit

import (
	"fmt"
	"testing"
	"time"
)

// ended is the end of something on a connection of a sandbox.
func ended(kind Kind, conn, host string, sent, received int64) *Event {
	return &Event{Kind: kind, Phase: PhaseEnd, Conn: conn, Host: host, Sandbox: &Sandbox{Name: "ci"}, Bytes: &Bytes{Sent: sent, Received: received}}
}

// TestBytesCountOnce: of what a connection carries a rule counts each byte once,
// when the first event tells of it.
func TestBytesCountOnce(t *testing.T) {
	conn := func(id, host string, sent, received int64) *Event { return ended(KindConn, id, host, sent, received) }
	http := func(id, host string, sent, received int64) *Event { return ended(KindHTTP, id, host, sent, received) }
	ws := func(id, host string, sent, received int64) *Event { return ended(KindWS, id, host, sent, received) }
	reused := []*Event{http("c", "a.test", 100, 7), http("c", "a.test", 50, 7), conn("c", "a.test", 180, 30)}
	for name, test := range map[string]struct {
		rule AlertRule
		play []*Event
		want uint64
	}{
		"tcp and passthrough":          {AlertRule{}, []*Event{conn("c", "a.test", 100, 9), conn("d", "a.test", 30, 9)}, 130},
		"requests on one connection":   {AlertRule{}, reused, 180},
		"received":                     {AlertRule{Sum: "bytes_received"}, reused, 30},
		"a WebSocket":                  {AlertRule{}, []*Event{ws("c", "a.test", 500, 1), conn("c", "a.test", 600, 1)}, 600},
		"two connections at once":      {AlertRule{}, []*Event{http("c", "a.test", 100, 0), http("d", "a.test", 10, 0), conn("d", "a.test", 11, 0), conn("c", "a.test", 110, 0)}, 121},
		"an open connection":           {AlertRule{}, reused[:2], 150},
		"a request that ends late":     {AlertRule{}, []*Event{conn("c", "a.test", 180, 0), http("c", "a.test", 100, 0)}, 180},
		"late, to another host":        {AlertRule{Host: "b.test"}, []*Event{conn("c", "a.test", 180, 0), http("c", "b.test", 100, 0)}, 100},
		"more in bodies than there is": {AlertRule{}, []*Event{http("c", "a.test", 100, 0), conn("c", "a.test", 90, 0)}, 100},
		"of a host":                    {AlertRule{Host: "*.test"}, reused, 180},
		"of another host":              {AlertRule{Host: "b.test"}, reused, 0},
		"of one host of a proxy's":     {AlertRule{Host: "b.test"}, []*Event{http("c", "a.test", 100, 0), http("c", "b.test", 10, 0), conn("c", "", 150, 0)}, 10},
		"of requests":                  {AlertRule{Kind: "http"}, reused, 150},
		"of connections":               {AlertRule{Kind: "conn"}, reused, 180},
		"without a connection":         {AlertRule{}, []*Event{http("", "a.test", 5, 0), http("", "a.test", 5, 0)}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.rule
			r.Name, r.Threshold, r.Window = "r", 1, 24*time.Hour
			if r.Sum == "" {
				r.Sum = "bytes_sent"
			}
			b := newBench(t, AlertOptions{Rules: []AlertRule{r}})
			for _, e := range test.play {
				if line := append(appendHead(nil, e), appendBody(nil, e)...); !b.mayMatch(line) && test.want > 0 && r.Kind == "" {
					t.Errorf("not read: %s", line)
				}
				b.observe1(e)
			}
			got := uint64(0)
			for _, a := range b.Active() {
				got += a.Count
			}
			if got != test.want {
				t.Errorf("%d bytes counted, want %d", got, test.want)
			}
		})
	}
}

// TestBytesOfPolicyRules: a decision whose rule names an alert that sums bytes
// has none to add.
func TestBytesOfPolicyRules(t *testing.T) {
	b := newBench(t, AlertOptions{Rules: []AlertRule{{Name: "upload", Sum: "bytes_sent", Threshold: 10}}})
	e := denial("a.test")
	e.Alert = "upload"
	b.observe1(e)
	expect(t, "a decision", b.told(), "")
	b.observe1(ended(KindConn, "c", "a.test", 10, 0))
	expect(t, "bytes", b.told(), "upload firing 10/10")
}

func TestConnEndsAreBounded(t *testing.T) {
	var c connEnds
	for i := range 3 * maxConnBytes {
		c.add(ended(KindHTTP, fmt.Sprint(i), "a.test", 1, 0))
		c.add(ended(KindHTTP, "busy", "a.test", 1, 0))
	}
	if n := len(c.recent) + len(c.before); n > 2*maxConnBytes {
		t.Errorf("%d connections are remembered", n)
	}
	if got := c.add(ended(KindConn, "busy", "a.test", 1, 0)).sent; got != 3*maxConnBytes {
		t.Errorf("%d bytes of a connection that is in use, want %d", got, 3*maxConnBytes)
	}
}

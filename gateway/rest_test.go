package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
)

// resting is how many connections rest.
func (l *lab) resting() (n int) {
	r := &l.g.front.rests
	r.mu.Lock()
	defer r.mu.Unlock()
	for fc := range r.conns {
		if fc.asleep {
			n++
		}
	}
	return n
}

// rest waits until want connections rest.
func (l *lab) rest(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); l.resting() != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections rest, want %d", l.resting(), want)
		}
	}
}

// idle opens a connection that has been asked on once: within TLS, or not.
func (l *lab) idle(t *testing.T, port uint16, within bool) net.Conn {
	t.Helper()
	var c net.Conn
	if within {
		c = l.rawTLS(t, "api.test", port, "http/1.1")
	} else {
		c = l.raw(t, "plain.test", port)
	}
	asked(t, c, within)
	return c
}

// asked asks once more.
func asked(t *testing.T, c net.Conn, within bool) {
	t.Helper()
	host := "plain.test"
	if within {
		host = "api.test"
	}
	fmt.Fprintf(c, "GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	if r, b, err := body(readResponse(t, c), nil); err != nil || r.StatusCode != http.StatusOK || b == "" {
		t.Fatalf("%v, %q, %v", r.Status, b, err)
	}
}

// TestRest: a connection that is idle rests, is served again when a request
// comes, and rests again, as often as that is.
func TestRest(t *testing.T) {
	for name, within := range map[string]bool{"TLS": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			port := l.origin(t).port
			if within {
				port = l.origin(t, "http/1.1").port
			}
			l.allow("api.test", port)
			l.allow("plain.test", port)
			l.load()
			c := l.idle(t, port, within)
			for range 2 {
				l.rest(t, 1)
				asked(t, c, within)
				l.rest(t, 0)
			}
			l.rest(t, 1)
			must(t, c.Close())
			l.await(t, "end of the connection", func(e *audit.Event) bool { return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd })
			if n := len(l.events(func(e *audit.Event) bool { return e.Kind == audit.KindConn && e.Phase == audit.PhaseDecision })); n != 1 {
				t.Errorf("%d connections on record, want 1", n)
			}
		})
	}
}

// TestRestEnds: what rests ends as what does not: when it has been idle for too
// long, when its sandbox ends, and when the gateway does.
func TestRestEnds(t *testing.T) {
	t.Run("idle for too long", func(t *testing.T) {
		const idle = restLooks*lookEvery + time.Second
		l := newLab(t, func(d *Deps, _ *upstream.Options) { d.Limits.IdleTimeout = idle })
		o := l.origin(t, "http/1.1")
		l.allow("api.test", o.port)
		l.load()
		start := time.Now()
		c := l.idle(t, o.port, true)
		l.rest(t, 1)
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the client reads %v, want %v", err, io.EOF)
		}
		if after := time.Since(start); after < idle-lookEvery {
			t.Errorf("it ended after %v, want %v", after, idle)
		}
	})
	t.Run("with its sandbox", func(t *testing.T) {
		l := newLab(t)
		o := l.origin(t, "http/1.1")
		l.allow("api.test", o.port)
		l.load()
		c := l.idle(t, o.port, true)
		l.rest(t, 1)
		l.g.Forget(l.sandbox.ID)
		ended(t, c, 10*time.Second)
	})
	t.Run("with the gateway", func(t *testing.T) {
		l := newLab(t)
		o := l.origin(t, "http/1.1")
		l.allow("api.test", o.port)
		l.load()
		var all []net.Conn
		for range 3 {
			all = append(all, l.idle(t, o.port, true))
		}
		l.rest(t, len(all))
		l.stop()
		for _, c := range all {
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the client reads %v, want %v", err, io.EOF)
			}
		}
	})
}

// TestNoRestMeanwhile: a request that takes long is none that is idle.
func TestNoRestMeanwhile(t *testing.T) {
	l := newLab(t)
	o := l.origin(t, "http/1.1")
	l.allow("api.test", o.port)
	l.load()
	c := l.idle(t, o.port, true)
	fmt.Fprint(c, "GET /hang HTTP/1.1\r\nHost: api.test\r\n\r\n")
	for end := time.Now().Add(10 * time.Second); len(o.saw()) < 2 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	for range 2 * restLooks {
		if n := l.g.front.look(); n != 0 {
			t.Errorf("%d connections are to rest", n)
		}
	}
	select {
	case <-o.cancelled:
		t.Error("the request was broken off")
	case <-time.After(200 * time.Millisecond):
	}
	must(t, c.Close())
	<-o.cancelled
}

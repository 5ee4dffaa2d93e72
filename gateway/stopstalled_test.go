package gateway

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// stopWithin is far more than a gateway takes to end that does not wait for
// its clients, and less than one that gives each 5 s.
const stopWithin = 12 * time.Second

// TestStopStalled: clients that do not read hold nothing up when the gateway
// stops, however many they are.
func TestStopStalled(t *testing.T) {
	const clients = 6
	h1 := func(t *testing.T, l *lab, o *origin, secure bool) {
		var c net.Conn
		if secure {
			c = l.rawTLS(t, "api.test", o.port, "http/1.1")
		} else {
			c = l.raw(t, "api.test", o.port)
		}
		_, err := fmt.Fprintf(c, "GET /down?n=100000000&cl=1 HTTP/1.1\r\nHost: api.test:%d\r\n\r\n", o.port)
		must(t, err)
		_, err = c.Read(make([]byte, 500))
		must(t, err)
	}
	h2 := func(t *testing.T, l *lab, o *origin, _ bool) {
		s, _ := l.framer(t, "api.test", o.port)
		s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/down?n=100000000&cl=1", ":authority", "api.test")
		must(t, s.WriteWindowUpdate(0, 1<<30))
		must(t, s.WriteWindowUpdate(1, 1<<30))
	}
	for name, tt := range map[string]struct {
		offers []string
		open   func(*testing.T, *lab, *origin, bool)
	}{
		"plain":  {nil, h1},
		"TLS":    {[]string{"http/1.1"}, h1},
		"HTTP/2": {[]string{"http/1.1", "h2"}, h2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			o := l.origin(t, tt.offers...)
			l.allow("api.test", o.port)
			l.load()
			for range clients {
				tt.open(t, l, o, len(tt.offers) > 0)
			}
			time.Sleep(500 * time.Millisecond) // until nothing more fits on the way
			began := time.Now()
			l.stop()
			if took := time.Since(began); took > stopWithin {
				t.Errorf("the gateway took %v to stop", took)
			} else {
				t.Logf("the gateway took %v to stop", took)
			}
		})
	}
}

package gateway

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"sallyport/audit"
)

// TestAClientThatBreaksOffEndsItsRequest, whatever way it came: nothing is kept
// open towards an upstream that has not answered.
func TestAClientThatBreaksOffEndsItsRequest(t *testing.T) {
	for _, way := range []string{"transparent", "proxy"} {
		t.Run(way, func(t *testing.T) {
			l := newLab(t)
			asked, left := make(chan struct{}), make(chan struct{})
			port := scripted(listen(t), func(c net.Conn) { // the head has been read
				close(asked)
				_, _ = io.Copy(io.Discard, c)
				close(left)
			})
			l.allow("plain.test", port)
			l.load()
			authority := fmt.Sprintf("plain.test:%d", port)
			var c net.Conn
			if way == "proxy" {
				c, _ = speak(t, l.proxy(t), "GET http://"+authority+"/ HTTP/1.1\r\nHost: "+authority+"\r\nProxy-Authorization: "+basic("ci", proxyPassword)+"\r\n\r\n")
			} else {
				c = l.raw(t, "plain.test", port)
				_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
				must(t, err)
			}
			select {
			case <-asked:
			case <-time.After(20 * time.Second):
				t.Fatal("the upstream was not asked")
			}
			must(t, c.(interface{ SetLinger(int) error }).SetLinger(0))
			must(t, c.Close())
			select {
			case <-left:
			case <-time.After(20 * time.Second):
				t.Error("the upstream is still asked for a client that has gone")
			}
			l.await(t, "end of the request", func(e *audit.Event) bool { return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd })
		})
	}
}

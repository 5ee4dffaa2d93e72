package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/audit"
)

// TestNothingIsServedBehindAnAnswerThatFailed: a client that is gone when its
// answer is sent has no other request served, also if that came before it went.
func TestNothingIsServedBehindAnAnswerThatFailed(t *testing.T) {
	l := newLab(t)
	var requests atomic.Int64
	goOn := make(chan struct{})
	// An answer comes as one record, as those of most servers do.
	port := scripted(tls.NewListener(listen(t), &tls.Config{DynamicRecordSizingDisabled: true,
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return l.origins.Leaf(h.ServerName) }}), func(c net.Conn) { // the head has been read
		for b := make([]byte, 4<<10); ; {
			requests.Add(1)
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 8192\r\n\r\n%s", strings.Repeat("x", 3000))
			<-goOn
			fmt.Fprint(c, strings.Repeat("x", 8192-3000))
			if n, err := c.Read(b); n == 0 || err != nil {
				return
			}
		}
	})
	l.allow("api.test", port)
	l.load()
	c := l.rawTLS(t, "api.test", port, "http/1.1")
	request := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: api.test\r\n\r\n" }
	_, err := c.Write([]byte(request("/first") + request("/second")))
	must(t, err)
	_, err = io.ReadFull(c, make([]byte, 3000))
	must(t, err)
	must(t, c.NetConn().(interface{ SetLinger(int) error }).SetLinger(0))
	must(t, c.NetConn().Close())
	time.Sleep(200 * time.Millisecond) // for the reset to have come
	close(goOn)
	l.await(t, "end of the connection", func(e *audit.Event) bool { return e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd })
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests were served, want 1", n)
	}
}

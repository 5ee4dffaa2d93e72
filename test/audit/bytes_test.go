//go:build linux

package audit_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/test/lab"
)

// closed closes a connection when what is to come back has come, and no more
// that is under way would make it a reset, which ends the other direction too.
func closed(t *testing.T, c net.Conn, back int64) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	if n, err := io.CopyN(io.Discard, c, back); err != nil {
		t.Fatalf("%d bytes of %d came back: %v", n, back, err)
	}
	must(t, c.Close())
}

// TestUploadsCountOnce: an alert that sums bytes counts what connections of every
// kind carried once, requests and WebSockets on them included.
func TestUploadsCountOnce(t *testing.T) {
	l := begin(t)
	b := &inbox{}
	serve(t, "127.0.0.1:8107", b)
	const body = 50_000
	g := l.Gateway(t, lab.GatewayOptions{Policy: one(`
sandbox "dev" {
  allow "up.count.test" { addresses = DOCS }
  passthrough "pass.count.test" { addresses = DOCS }
  tcp "raw.count.test:7107" { addresses = DOCS }
}
alert "upload" {
  sum       = "bytes_sent"
  threshold = 1
  interval  = "2s"
  notify    = ["ops"]
}
notify "ops" {
  otlp { url = "http://127.0.0.1:8107" }
}
`)})
	s := g.Attach(t, "dev")
	l.DNS.Set("raw.count.test", "60 A "+lab.Raw)
	l.Peer(t, lab.Raw+":7107", func(_ *lab.Peer, c *net.TCPConn) { _, _ = io.Copy(c, c) })

	for _, h2 := range []bool{false, true} {
		c := s.Client(t, h2)
		for range 2 {
			a, err := lab.Try(c, lab.NewRequest(t, "POST", "https://up.count.test/lab/count", strings.Repeat("x", body)))
			if err != nil || a.Status != 200 {
				t.Fatalf("HTTP/2 %t: status %d, %v", h2, a.Status, err)
			}
		}
		c.CloseIdleConnections()
	}
	ws := s.Secure(t, "up.count.test:443")
	ws.Send(t, "GET /lab/ws HTTP/1.1\r\nHost: up.count.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if a, err := ws.TryAnswer("GET"); err != nil || a.Status != 101 {
		t.Fatalf("WebSocket: %d %v", a.Status, err)
	}
	ws.Send(t, "\x82\xfe\xc3\x50\x00\x00\x00\x00"+strings.Repeat("x", body)) // one frame, masked with nothing
	closed(t, ws, 4+body)                                                    // one that is not masked
	tcp := s.Plain(t, "raw.count.test:7107")
	tcp.Send(t, strings.Repeat("x", body))
	closed(t, tcp, body)
	through, err := s.TLS("pass.count.test:443", &tls.Config{InsecureSkipVerify: true, ServerName: "pass.count.test"})
	must(t, err)
	_, err = io.WriteString(through, strings.Repeat("x", body))
	must(t, err)
	must(t, through.CloseWrite())
	must(t, through.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, _ = io.Copy(io.Discard, through) // the origin hangs up on what is no request
	must(t, through.Close())

	var carried, counted int64
	var conns int
	eventually(t, "every byte counted once", func() bool {
		carried, counted, conns = 0, 0, 0
		for _, e := range g.Events(audit.Filter{}) {
			switch {
			case e.Kind == audit.KindConn && e.Phase == audit.PhaseEnd:
				conns++
				carried += e.Bytes.Sent
			case e.Kind == audit.KindAlert && e.Alert == "upload" && strings.HasPrefix(e.Message, audit.Resolved):
				counted += int64(e.Count)
			}
		}
		return conns >= 5 && counted >= carried
	})
	if conns != 5 || counted != carried || carried < 7*body {
		t.Errorf("%d connections carried %d bytes, %d were counted", conns, carried, counted)
	}
}

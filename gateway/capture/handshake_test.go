//go:build linux

package capture

import (
	"os"
	"testing"
)

// TestHandshakeByCookie: connections are captured while the queue of the
// listener is full, which one sandbox of a bridge can see to for the others.
func TestHandshakeByCookie(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, namespace := captureNamespace(t)
	s := newSite(t)
	link := s.open(t, s.options())
	for name, test := range map[string]struct {
		sandbox, listener *os.File
		sockets           *Sockets
	}{"namespace": {ns, ns, namespace}, "interface": {s.sandbox, s.host, link}} {
		t.Run(name, func(t *testing.T) {
			serveDestination(t, test.sockets)
			inside(t, test.listener, func() error {
				return os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", []byte("2"), 0) // as if it were full
			})
			for _, address := range []string{"203.0.113.10:443", "[2001:db8:1::10]:443"} {
				inside(t, test.sandbox, func() error { _, err := ask(address); return err })
			}
		})
	}
}

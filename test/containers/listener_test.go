//go:build linux

package containers

import (
	"net"
	"sync"
	"testing"
)

// listener notes every datagram that comes to an address of the gateway's
// host, and answers none.
type listener struct {
	mu    sync.Mutex
	lines []string
}

func (l *listener) listen(t testing.TB, address string) {
	t.Helper()
	var c net.PacketConn
	err := world.lab.GW.Do(func() (err error) {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // nothing was written
	go func() {
		b := make([]byte, 1500)
		for {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			l.mu.Lock()
			l.lines = append(l.lines, string(b[:n]))
			l.mu.Unlock()
		}
	}()
}

func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

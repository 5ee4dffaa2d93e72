//go:build linux

package capture

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClientsAreProbed: a connection is accepted with the keep-alive that its
// listener has, in both versions of IP.
func TestClientsAreProbed(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	for i, address := range []string{"203.0.113.9:443", "[2001:db8:1::9]:443"} {
		var client net.Conn
		inside(t, ns, func() (err error) {
			client, err = net.DialTimeout("tcp", address, 5*time.Second)
			return err
		})
		defer client.Close()
		c, err := s.TCP[i].Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]struct{ level, option, want int }{
			"SO_KEEPALIVE":  {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			"TCP_KEEPIDLE":  {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
			"TCP_KEEPINTVL": {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
			"TCP_KEEPCNT":   {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 9},
			"TCP_NODELAY":   {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		} {
			if err := onSocket(raw, func(fd int) error {
				if got, err := unix.GetsockoptInt(fd, o.level, o.option); err != nil || got != o.want {
					t.Errorf("%s: %s is %d, want %d: %v", address, name, got, o.want, err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
}

//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

func TestNET07InterfaceInANamespaceOfItsOwn(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	o := s.options()
	o.Namespace = filepath.Join(t.TempDir(), "net", "sb0")
	t.Cleanup(func() { // also when the test failed half way
		if err := syscall.Unmount(o.Namespace, syscall.MNT_DETACH); err == nil {
			t.Error("the namespace was still mounted")
		}
	})
	inside(t, s.host, func() error { // a service that the sandbox must not reach
		l, err := net.Listen("tcp4", "203.0.113.1:22")
		t.Cleanup(func() { l.Close() })
		return err
	})
	sockets := s.open(t, o)
	serveDestination(t, sockets)
	reach := func() {
		t.Helper()
		inside(t, s.sandbox, func() error {
			got, err := ask("203.0.113.1:22")
			if err == nil && got != "203.0.113.1:22" {
				err = fmt.Errorf("destination %q", got)
			}
			return err
		})
	}
	reach()
	sockets.Close()
	s.attempts(t)
	own, err := os.Open(o.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	inside(t, own, RemoveRules) // by a hand: there is still nowhere to go
	s.attempts(t)
	inside(t, s.sandbox, func() error {
		d := net.Dialer{Timeout: 500 * time.Millisecond}
		if c, err := d.Dial("tcp", "203.0.113.1:22"); err == nil {
			c.Close()
			return errors.New("the host answers")
		}
		return nil
	})
	again := s.open(t, o)
	serveDestination(t, again)
	reach()
	if n := s.seenOutside(t); n != 0 {
		t.Errorf("%d packets outside", n)
	}
	again.Close()
	inside(t, s.host, func() error {
		if err := errors.Join(ReleaseInterface("sb0", o.Namespace), ReleaseInterface("sb0", o.Namespace)); err != nil {
			return err
		}
		_, err := netlink.LinkByName("sb0")
		return err
	})
}

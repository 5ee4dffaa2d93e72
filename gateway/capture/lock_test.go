//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// laterLink adds a second sandbox to a host, whose link appears only now.
func (s site) laterLink(t *testing.T, name string) {
	t.Helper()
	other := newNamespace(t)
	inside(t, s.host, func() error {
		return errors.Join(addVeth(name, "eth0", other), configure(name, "10.77.5.1/24", "fd77:5::1/64"))
	})
	inside(t, other, func() error {
		return errors.Join(configure("lo"), configure("eth0", "10.77.5.2/24", "fd77:5::2/64"), defaultRoute("eth0", "10.77.5.1"), defaultRoute("eth0", "fd77:5::1"))
	})
	site{host: s.host, sandbox: other, outside: s.outside}.attempts(t)
	inside(t, s.host, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
}

func TestLockHoldsBeforeTheGateway(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	inside(t, s.host, func() error { return configure("sb0", "10.77.4.1/24", "fd77::1/64") })
	s.getOut(t)
	var service net.Listener // of the host
	inside(t, s.host, func() (err error) {
		service, err = net.Listen("tcp", "10.77.4.1:8080")
		return err
	})
	defer service.Close()
	globs := []string{"sb*", "named"}
	inside(t, s.host, func() error {
		return errors.Join(LockInterfaces(globs), LockInterfaces(globs), LockInterfaces(globs[:1]))
	})
	before := s.seenOutside(t)
	hold := func(what string) {
		t.Helper()
		s.attempts(t)
		s.laterLink(t, "named")
		if n := s.seenOutside(t) - before; n != 0 {
			t.Fatalf("%s: %d packets outside", what, n)
		}
	}
	hold("locked")
	s.laterLink(t, "sb7")
	if n := s.seenOutside(t) - before; n != 0 {
		t.Fatalf("an interface made later: %d packets outside", n)
	}
	for _, address := range []string{"10.77.4.1:8080", "203.0.113.10:443"} {
		inside(t, s.sandbox, func() error {
			if _, err := ask(address); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%s: %v, want connection refused", address, err)
			}
			return nil
		})
	}
	t.Run("the gateway opens what is locked", func(t *testing.T) {
		sockets := s.open(t, s.options())
		serveDestination(t, sockets)
		for _, address := range []string{"203.0.113.10:443", "[fd77::1]:9090"} {
			inside(t, s.sandbox, func() error { _, err := ask(address); return err })
		}
		hold("open")
		if err := sockets.Close(); err != nil {
			t.Fatal(err)
		}
		hold("closed again")
	})
	inside(t, s.host, func() error { return errors.Join(removeTable(tableName), removeTable(lockTable)) })
	hold("the nft tables gone")
	inside(t, s.host, func() error { return errors.Join(RemoveRules(), RemoveRules()) })
	s.getOut(t)
}

// TestLockWithoutRoutes: the nft table alone holds, too.
func TestLockWithoutRoutes(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	inside(t, s.host, func() error { return configure("sb0", "10.77.4.1/24", "fd77::1/64") })
	s.getOut(t)
	inside(t, s.host, func() error {
		return errors.Join(LockInterfaces([]string{"sb0"}), removeRouting(ipv4()), removeRouting(ipv6()))
	})
	before := s.seenOutside(t)
	s.attempts(t)
	if n := s.seenOutside(t) - before; n != 0 {
		t.Errorf("%d packets outside", n)
	}
}

func TestLockIsOfNamesAndBeginnings(t *testing.T) {
	for glob, want := range map[string]string{
		"br-ci": "", "vm*": "", "t*": "", "*": "uplink", "": "neither", "br-?": "neither", "vm*x": "neither", "*vm": "neither", `v\*`: "neither",
		"[a-b]*": "neither", "a123456789abcdef": "not the name", "a b": "not the name",
	} {
		err := Lockable(glob)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", glob, err, want)
		}
	}
}

func TestLockRefusesUplink(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	inside(t, s.host, func() error {
		err := LockInterfaces([]string{"sb*", "up*"})
		if err == nil || !strings.Contains(err.Error(), "uplink") {
			return fmt.Errorf("an uplink: %v", err)
		}
		return nil
	})
	inside(t, s.host, func() error { // nothing was done by half
		rules, err := netlink.RuleList(netlink.FAMILY_V4)
		for _, r := range rules {
			if r.Table == closedTable {
				err = errors.Join(err, fmt.Errorf("a rule for %s was left", r.IifName))
			}
		}
		return err
	})
}

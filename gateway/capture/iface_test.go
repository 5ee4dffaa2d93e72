//go:build linux

package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// site is a host that forwards, with a sandbox on one side and a network on the
// other:
//
//	sandbox eth0 10.77.4.2 — sb0 (10.77.4.1) host up0 203.0.113.1 — net0 203.0.113.10 outside
//	        fd77::2               fd77::1        2001:db8:1::1              2001:db8:1::10
type site struct {
	host, sandbox, outside *os.File
}

const outsideCounter = "outside"

func newSite(t *testing.T) site {
	t.Helper()
	s := site{newNamespace(t), newNamespace(t), newNamespace(t)}
	inside(t, s.host, func() error {
		return errors.Join(
			addVeth("sb0", "eth0", s.sandbox), addVeth("up0", "net0", s.outside),
			configure("lo"), configure("up0", "203.0.113.1/24", "2001:db8:1::1/64"),
			defaultRoute("up0", "203.0.113.10"), defaultRoute("up0", "2001:db8:1::10"),
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0))
	})
	inside(t, s.sandbox, func() error {
		return errors.Join(configure("lo"), configure("eth0", "10.77.4.2/24", "fd77::2/64"),
			defaultRoute("eth0", "10.77.4.1"), defaultRoute("eth0", "fd77::1"))
	})
	inside(t, s.outside, func() error {
		return errors.Join(configure("lo"), configure("net0", "203.0.113.10/24", "2001:db8:1::10/64"),
			defaultRoute("net0", "203.0.113.1"), defaultRoute("net0", "2001:db8:1::1"),
			countOutside())
	})
	s.knowOutside(t)
	return s
}

// knowOutside tells the host who is outside, so that it never keeps a packet
// back while it asks.
func (s site) knowOutside(t *testing.T) {
	t.Helper()
	var mac net.HardwareAddr
	inside(t, s.outside, func() error {
		l, err := netlink.LinkByName("net0")
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	inside(t, s.host, func() error {
		l, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		for _, a := range []string{"203.0.113.10", "2001:db8:1::10"} {
			err = errors.Join(err, netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index,
				State: netlink.NUD_PERMANENT, IP: net.ParseIP(a), HardwareAddr: mac}))
		}
		return err
	})
}

func addVeth(name, peer string, ns *os.File) error {
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name},
		PeerName: peer, PeerNamespace: netlink.NsFd(int(ns.Fd()))})
}

func configure(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	var prefixes []netip.Prefix
	for _, a := range addresses {
		prefixes = append(prefixes, netip.MustParsePrefix(a))
	}
	return errors.Join(netlink.LinkSetUp(link), addAddresses(link, prefixes, false))
}

func defaultRoute(name, gateway string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)})
}

// countOutside counts packets whose source is a sandbox's, in a table of the
// outside namespace.
func countOutside() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	b := &batch{conn: conn, table: conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})}
	conn.AddObj(&nftables.CounterObj{Table: b.table, Name: counterName(outsideCounter, classOther)})
	accept, priority := nftables.ChainPolicyAccept, nftables.ChainPriority(basePriority)
	b.chain = conn.AddChain(&nftables.Chain{Table: b.table, Name: baseChain, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: &priority, Policy: &accept})
	for _, p := range []string{"10.77.0.0/16", "fd77::/16"} {
		b.rule(source(netip.MustParsePrefix(p)), count(outsideCounter, classOther))
	}
	return conn.Flush()
}

// seenOutside returns how many packets of sandboxes have arrived outside.
func (s site) seenOutside(t *testing.T) (n uint64) {
	t.Helper()
	inside(t, s.outside, func() error {
		c, err := openNetfilter()
		if err != nil {
			return err
		}
		defer c.Close()
		n, err = readCounter(c, counterName(outsideCounter, classOther))
		return err
	})
	return n
}

func (s site) options() InterfaceOptions {
	return InterfaceOptions{
		Interface: "sb0",
		Sources:   []netip.Prefix{netip.MustParsePrefix("10.77.4.2/32"), netip.MustParsePrefix("fd77::2/128")},
		Gateway:   []netip.Prefix{netip.MustParsePrefix("10.77.4.1/24"), netip.MustParsePrefix("fd77::1/64")},
	}
}

func (s site) open(t *testing.T, o InterfaceOptions) *Sockets {
	t.Helper()
	var sockets *Sockets
	inside(t, s.host, func() (err error) {
		sockets, err = OpenInterface(o)
		return err
	})
	t.Cleanup(func() { sockets.Close() })
	s.awaitLink(t)
	return sockets
}

// awaitLink waits until the sandbox's link is up at both ends. The kernel sees
// to that when it gets to it; a packet for which nobody is asked first, as to a
// group, is lost or meets no route before.
func (s site) awaitLink(t *testing.T) {
	t.Helper()
	inside(t, s.sandbox, func() error {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if link.Attrs().OperState == netlink.OperUp {
				return nil
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("the sandbox's link is %s", link.Attrs().OperState)
			}
		}
	})
}

// attempts tries from the sandbox whatever might lead out.
func (s site) attempts(t *testing.T) {
	t.Helper()
	inside(t, s.sandbox, func() error {
		for _, p := range refusals(netip.MustParseAddr("10.77.4.2"), netip.MustParseAddr("fd77::2")) {
			if err := p.send(); err != nil && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EHOSTUNREACH) {
				return err
			}
		}
		for _, address := range []string{"203.0.113.10:443", "203.0.113.10:53", "[2001:db8:1::10]:22"} {
			d := net.Dialer{Timeout: 300 * time.Millisecond}
			if c, err := d.Dial("tcp", address); err == nil {
				c.Close()
			}
		}
		return nil
	})
}

// getOut makes attempts until one gets out. If none does the host does not
// forward, and that nothing gets out later proves nothing.
func (s site) getOut(t *testing.T) {
	t.Helper()
	before := s.seenOutside(t)
	for range 20 {
		s.attempts(t)
		if s.seenOutside(t) > before {
			return
		}
	}
	t.Fatal("nothing gets out without a capture")
}

func TestPOL16InterfaceEveryPortArrives(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	sockets := s.open(t, s.options())
	serveDestination(t, sockets)
	for _, address := range []string{
		"203.0.113.10:22", "203.0.113.10:5432", "203.0.113.10:65535", "203.0.113.10:53", "10.77.4.1:22",
		"[2001:db8:1::10]:8443", "[2001:db8:1::10]:53", "[fd77::1]:9090", "203.0.113.1:80",
	} {
		inside(t, s.sandbox, func() error {
			got, err := ask(address)
			if err == nil && got != address {
				err = fmt.Errorf("destination %q, want %q", got, address)
			}
			return err
		})
	}
	if n := s.seenOutside(t); n != 0 {
		t.Errorf("%d packets outside", n)
	}
}

func TestNET06InterfaceEveryOtherProtocolIsRefusedAndReported(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	sockets := s.open(t, s.options())
	serveDestination(t, sockets)
	testRefusals(t, s.sandbox, sockets.Packets, netip.MustParseAddr("10.77.4.2"), netip.MustParseAddr("fd77::2"))
	if n := s.seenOutside(t); n != 0 {
		t.Errorf("%d packets outside", n)
	}
}

func TestNET07RulesStayWhenTheGatewayIsGone(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	inside(t, s.host, func() error { return configure("sb0", "10.77.4.1/24", "fd77::1/64") })
	s.getOut(t)
	sockets := s.open(t, s.options())
	before := s.seenOutside(t)
	s.attempts(t)
	if err := sockets.Close(); err != nil {
		t.Fatal(err)
	}
	s.attempts(t)
	if n := s.seenOutside(t) - before; n != 0 {
		t.Fatalf("%d packets outside with the gateway gone", n)
	}

	t.Run("refused at once", func(t *testing.T) {
		inside(t, s.sandbox, func() error {
			if _, err := ask("203.0.113.10:443"); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%v, want connection refused", err)
			}
			return nil
		})
	})
	t.Run("rules flushed by a hand", func(t *testing.T) {
		inside(t, s.host, func() error { return removeTable(tableName) })
		s.attempts(t)
		if n := s.seenOutside(t) - before; n != 0 {
			t.Fatalf("%d packets outside with the nft table gone", n)
		}
	})
	t.Run("opened again", func(t *testing.T) {
		again := s.open(t, s.options())
		serveDestination(t, again)
		inside(t, s.sandbox, func() error { _, err := ask("203.0.113.10:443"); return err })
		if n := s.seenOutside(t) - before; n != 0 {
			t.Fatalf("%d packets outside", n)
		}
		again.Close()
	})
	t.Run("removed", func(t *testing.T) {
		inside(t, s.host, func() error { return errors.Join(RemoveRules(), RemoveRules()) })
		s.getOut(t)
	})
}

func TestSpoofedSourceIsDroppedAndReported(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	o := s.options()
	var mac net.HardwareAddr
	inside(t, s.sandbox, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	o.MACs = []net.HardwareAddr{mac}
	sockets := s.open(t, o)
	serveDestination(t, sockets)
	inside(t, s.sandbox, func() error { _, err := ask("203.0.113.10:443"); return err })
	for _, p := range []rawPacket{
		{src: netip.MustParseAddr("10.77.4.3"), dst: netip.MustParseAddr("203.0.113.10"), proto: unix.IPPROTO_TCP, payload: segment(443, 2)},
		{src: netip.MustParseAddr("10.77.4.3"), dst: netip.MustParseAddr("203.0.113.53"), proto: unix.IPPROTO_UDP, payload: ports(1, 53, 0, 8, 0, 0)},
		{src: netip.MustParseAddr("127.0.0.1"), dst: netip.MustParseAddr("203.0.113.11"), proto: unix.IPPROTO_UDP, payload: ports(1, 53, 0, 8, 0, 0)},
		{src: netip.MustParseAddr("fd77::3"), dst: netip.MustParseAddr("2001:db8:1::10"), proto: unix.IPPROTO_TCP, payload: segment(443, 2)},
	} {
		inside(t, s.sandbox, p.send)
		got := next(t, sockets.Packets, func(q Packet) bool { return q.Dst.Addr() == p.dst })
		if got.Verdict != VerdictSpoof || got.Src.Addr() != p.src || got.Proto != p.proto || got.MAC != mac.String() || got.Interface != "sb0" {
			t.Errorf("reported %+v", got)
		}
	}
	t.Run("mac", func(t *testing.T) {
		inside(t, s.sandbox, func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if err := netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 9}); err != nil {
				return err
			}
			return rawPacket{src: netip.MustParseAddr("10.77.4.2"), dst: netip.MustParseAddr("203.0.113.12"),
				proto: unix.IPPROTO_TCP, payload: segment(443, 2)}.send()
		})
		got := next(t, sockets.Packets, func(q Packet) bool { return q.Dst.String() == "203.0.113.12:443" })
		if got.Verdict != VerdictSpoof || got.MAC != "02:00:00:00:00:09" {
			t.Errorf("reported %+v", got)
		}
	})
	if n := s.seenOutside(t); n != 0 {
		t.Errorf("%d packets outside", n)
	}
}

func TestListenersAreNotTheHosts(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	sockets := s.open(t, s.options())
	serveDestination(t, sockets)
	// A process of the host, or another sandbox, must not be taken for this one.
	inside(t, s.host, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := addAddresses(lo, []netip.Prefix{single(ownAddr4()), single(ownAddr6())}, false); err != nil {
			return err
		}
		for _, l := range append(append([]net.Listener{}, sockets.TCP...), sockets.DNSListeners...) {
			_, err := ask(l.Addr().String())
			for range 100 { // the kernel routes a new IPv6 address when it gets to it
				if !errors.Is(err, syscall.ENETUNREACH) {
					break
				}
				time.Sleep(100 * time.Millisecond)
				_, err = ask(l.Addr().String())
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%s from the host: %v, want connection refused", l.Addr(), err)
			}
		}
		return nil
	})
}

// serveName answers every connection with name.
func serveName(s *Sockets, name string) {
	for _, l := range s.TCP {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Write([]byte(name))
				c.Close()
			}
		}()
	}
}

func TestDNS03InterfaceAnyResolverIsOurs(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	echoQuestions(s.open(t, s.options()))
	for _, resolver := range []string{
		"8.8.8.8:53", "203.0.113.10:53", "10.77.4.1:53", "[2001:4860:4860::8888]:53", "[fd77::1]:53",
	} {
		inside(t, s.sandbox, func() error { return question(resolver) })
	}
	if n := s.seenOutside(t); n != 0 {
		t.Errorf("%d packets outside", n)
	}
}

func TestSourceWithoutAddressIsNoSpoof(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	sockets := s.open(t, s.options())
	for _, p := range []rawPacket{
		{src: netip.MustParseAddr("fe80::1"), dst: netip.MustParseAddr("ff02::fb"), proto: unix.IPPROTO_UDP, payload: ports(5353, 5353, 0, 8, 0, 0)},
		{src: netip.MustParseAddr("fe80::1"), dst: netip.MustParseAddr("2001:db8:2::1"), proto: unix.IPPROTO_TCP, payload: segment(443, 2)},
	} {
		stop := resend(t, s.sandbox, p)
		got := next(t, sockets.Packets, func(q Packet) bool { return q.Dst.Addr() == p.dst })
		if got.Verdict != VerdictDeny || got.Src.Addr() != p.src {
			t.Errorf("reported %+v", got)
		}
		stop()
	}
}

// resend sends p until stop is called: the kernel makes a new interface ready
// for IPv6 when it gets to it, and drops what comes before.
func resend(t *testing.T, ns *os.File, p rawPacket) (stop func()) {
	inside(t, ns, p.send)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
				_ = inNamespace(ns, p.send) // the first has shown that it can be sent
			}
		}
	}()
	return func() { cancel(); <-done }
}

func TestTwoInterfacesKeepTheirRules(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	other := newNamespace(t)
	inside(t, s.host, func() error { return addVeth("sb1", "eth0", other) })
	inside(t, other, func() error {
		return errors.Join(configure("lo"), configure("eth0", "10.77.5.2/24"), defaultRoute("eth0", "10.77.5.1"))
	})
	first := s.open(t, s.options())
	serveName(first, "first")
	second := s.open(t, InterfaceOptions{Interface: "sb1", Sources: []netip.Prefix{netip.MustParsePrefix("10.77.5.2/32")},
		Gateway: []netip.Prefix{netip.MustParsePrefix("10.77.5.1/24")}})
	serveName(second, "second")
	reach := func(ns *os.File, want string) {
		t.Helper()
		inside(t, ns, func() error {
			got, err := ask("203.0.113.10:443")
			if err == nil && got != want {
				err = fmt.Errorf("taken for %q, want %q", got, want)
			}
			return err
		})
	}
	reach(s.sandbox, "first")
	reach(other, "second")
	second.Close()
	third := s.open(t, InterfaceOptions{Interface: "sb1", Sources: []netip.Prefix{netip.MustParsePrefix("10.77.5.2/32")}})
	serveName(third, "third")
	reach(s.sandbox, "first")
	reach(other, "third")
	third.Close()
	inside(t, s.host, func() error {
		link, err := netlink.LinkByName("sb1")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	reach(s.sandbox, "first")
	inside(t, s.host, func() error {
		_, err := OpenInterface(s.options())
		if err == nil || !strings.Contains(err.Error(), "another gateway") {
			return fmt.Errorf("a second gateway: %v", err)
		}
		return nil
	})
}

func TestOpenInterfaceRefuses(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	source := []netip.Prefix{netip.MustParsePrefix("10.77.4.2/32")}
	for name, test := range map[string]struct {
		o    InterfaceOptions
		want string
	}{
		"nothing":      {InterfaceOptions{}, "not the name"},
		"no source":    {InterfaceOptions{Interface: "sb0"}, "no source"},
		"long name":    {InterfaceOptions{Interface: "sb0123456789abcdef", Sources: source}, "not the name"},
		"mapped":       {InterfaceOptions{Interface: "sb0", Sources: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.1/128")}}, "not a prefix"},
		"zero prefix":  {InterfaceOptions{Interface: "sb0", Sources: make([]netip.Prefix, 1)}, "not a prefix"},
		"infiniband":   {InterfaceOptions{Interface: "sb0", Sources: source, MACs: []net.HardwareAddr{make([]byte, 20)}}, "not an Ethernet"},
		"no interface": {InterfaceOptions{Interface: "sb7", Sources: source}, "not found"},
		"loopback":     {InterfaceOptions{Interface: "lo", Sources: source}, "loopback"},
		"uplink":       {InterfaceOptions{Interface: "up0", Sources: source}, "uplink"},
	} {
		t.Run(name, func(t *testing.T) {
			inside(t, s.host, func() error {
				_, err := OpenInterface(test.o)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					return fmt.Errorf("error %v, want %q", err, test.want)
				}
				return nil
			})
		})
	}
}

// TestCutConnectionIsOneAttempt: what a sandbox still had on its way when the
// gateway cut a connection is not reported as an attempt of its own.
func TestCutConnectionIsOneAttempt(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, namespace := captureNamespace(t)
	s := newSite(t)
	link := s.open(t, s.options())
	for name, test := range map[string]struct {
		sandbox *os.File
		sockets *Sockets
	}{"namespace": {ns, namespace}, "interface": {s.sandbox, link}} {
		t.Run(name, func(t *testing.T) {
			serveName(test.sockets, "bye") // closes without reading: a reset
			inside(t, test.sandbox, func() error {
				for range 100 {
					for _, address := range []string{"203.0.113.10:443", "[2001:db8::10]:443"} {
						c, err := net.Dial("tcp", address)
						if err != nil {
							return err
						}
						c.Write(make([]byte, 300_000))
						c.Close()
					}
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for {
				p, err := test.sockets.Packets.Next(ctx)
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Proto == unix.IPPROTO_TCP {
					t.Errorf("reported %+v", p)
				}
			}
		})
	}
}

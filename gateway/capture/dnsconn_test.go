//go:build linux

package capture

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// loopbackDNS is a DNSConn at a loopback address. No rule diverts to it, so the
// original destination is its own address.
func loopbackDNS(t *testing.T, addr string, level, option int) (*DNSConn, netip.AddrPort) {
	t.Helper()
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := udp.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := udp.LocalAddr().(*net.UDPAddr).AddrPort()
	udp.Close()
	if option != 0 {
		if err := unix.SetsockoptInt(int(f.Fd()), level, option, 1); err != nil {
			t.Fatal(err)
		}
	}
	c, err := newDNSConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil { // what is lost fails a test and does not hold it
		t.Fatal(err)
	}
	return c, at
}

// room is memory for n datagrams of size bytes each.
func room(n, size int) []Datagram {
	ds := make([]Datagram, n)
	for i := range ds {
		ds[i].B = make([]byte, size)
	}
	return ds
}

// TestDNSConnBatches reads what is there in one go, with who asked whom, and
// answers it from there. What cannot be sent keeps back nothing else.
func TestDNSConnBatches(t *testing.T) {
	for addr, o := range map[string][2]int{
		"127.0.0.1:0": {unix.SOL_IP, unix.IP_RECVORIGDSTADDR},
		"[::1]:0":     {unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR},
	} {
		t.Run(addr, func(t *testing.T) {
			c, at := loopbackDNS(t, addr, o[0], o[1])
			var clients []*net.UDPConn
			for _, text := range []string{"a", "bb", "longer than there is room for"} {
				client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { client.Close() })
				if err := client.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if _, err := client.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				clients = append(clients, client)
			}
			ds := room(8, 4)
			n, err := c.ReadBatch(func() []Datagram { return ds }, func() { t.Error("found nothing") })
			if err != nil || n != len(clients) {
				t.Fatalf("%d read: %v", n, err)
			}
			for i, want := range []string{"a", "bb", "long"} {
				d := ds[i]
				if string(d.B) != want || d.Peer != clients[i].LocalAddr().(*net.UDPAddr).AddrPort() || d.Resolver != at {
					t.Errorf("datagram %d: %q from %s to %s", i, d.B, d.Peer, d.Resolver)
				}
			}
			ds[1].B = make([]byte, 70_000) // too long for UDP
			if err := c.WriteBatch(ds[:n]); !errors.Is(err, unix.EMSGSIZE) {
				t.Errorf("sent: %v", err)
			}
			for _, i := range []int{0, 2} {
				b := make([]byte, 16)
				if n, err := clients[i].Read(b); err != nil || string(b[:n]) != string(ds[i].B) {
					t.Errorf("client %d was answered %q: %v", i, b[:n], err)
				}
			}
		})
	}
}

// TestDNSConnManyAnswers sends more than one system call takes.
func TestDNSConnManyAnswers(t *testing.T) {
	c, at := loopbackDNS(t, "127.0.0.1:0", unix.SOL_IP, unix.IP_RECVORIGDSTADDR)
	client, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	ds := room(2*batchLen+1, 1)
	for i := range ds {
		ds[i].B[0], ds[i].Peer, ds[i].Resolver = byte(i), client.LocalAddr().(*net.UDPAddr).AddrPort(), at
	}
	if err := c.WriteBatch(ds); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2)
	for i := range ds {
		if n, err := client.Read(b); err != nil || n != 1 || b[0] != byte(i) {
			t.Fatalf("answer %d is %v: %v", i, b[:n], err)
		}
	}
}

// TestDNSConnLeavesWhatWasNotDiverted: a datagram of which nobody knows whom it
// was for is not read, and while it waits it keeps no memory.
func TestDNSConnLeavesWhatWasNotDiverted(t *testing.T) {
	c, at := loopbackDNS(t, "127.0.0.1:0", 0, 0)
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{}, 8)
	ended := make(chan error, 1)
	go func() {
		_, err := c.ReadBatch(func() []Datagram { return room(2, 16) }, func() { left <- struct{}{} })
		ended <- err
	}()
	select {
	case <-left:
	case err := <-ended:
		t.Fatalf("read ended with %v", err)
	}
	c.Close()
	c.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read ended with %v", err)
	}
}

// TestDNSConnAnswersLinkLocal: a peer of a link-local address has the zone that
// package net gives it, and is answered where it asked.
func TestDNSConnAnswersLinkLocal(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns := newNamespace(t)
	inside(t, ns, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr("fe80::1/64")
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, addr)); err != nil {
			return err
		}
		if err := awaitLocal(addr.IP); err != nil {
			return err
		}
		c, at := loopbackDNS(t, "[fe80::1%lo]:0", unix.SOL_IPV6, unix.IPV6_RECVORIGDSTADDR)
		client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		defer client.Close()
		if _, err := client.Write([]byte("q")); err != nil {
			return err
		}
		ds := room(2, 4)
		n, err := c.ReadBatch(func() []Datagram { return ds }, func() {})
		if err != nil || n != 1 {
			return fmt.Errorf("%d read: %w", n, err)
		}
		if peer := client.LocalAddr().(*net.UDPAddr).AddrPort(); ds[0].Peer != peer {
			t.Errorf("asked by %s, want %s", ds[0].Peer, peer)
		}
		if err := c.WriteBatch(ds[:n]); err != nil {
			return err
		}
		b := make([]byte, 4)
		if err := client.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if n, err := client.Read(b); err != nil || string(b[:n]) != "q" {
			t.Errorf("answered %q: %v", b[:n], err)
		}
		return nil
	})
}

// awaitLocal waits until an address of lo is the namespace's own. The kernel
// gives an IPv6 address its route in the background; until then what is sent
// to it is lost.
func awaitLocal(ip net.IP) error {
	o := &netlink.RouteGetOptions{Oif: "lo"}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGetWithOptions(ip, o)
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s has no local route: %v, %v", ip, routes, err)
		}
	}
}

// TestZones: a number that no interface has stands for itself.
func TestZones(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	var z zones
	for range 2 {
		for scope, want := range map[uint32]string{uint32(lo.Index): "lo", 4_000_000_000: "4000000000"} {
			if got := z.name(scope); got != want {
				t.Errorf("zone %d is %q, want %q", scope, got, want)
			}
		}
	}
}

//go:build linux

package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// refusals are packets that no capture lets through, sent from src4 and src6.
func refusals(src4, src6 netip.Addr) map[string]rawPacket {
	to, to6 := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:2::1")
	udp := append(ports(4000, 443, 0, 12, 0, 0), "quic"...)
	hop := func(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }
	packets := map[string]rawPacket{
		"ping":                    {dst: to, proto: unix.IPPROTO_ICMP, payload: []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}},
		"ping6":                   {dst: to6, proto: unix.IPPROTO_ICMPV6, payload: []byte{128, 0, 0, 0, 0, 0, 0, 0}},
		"redirect":                {dst: to, proto: unix.IPPROTO_ICMP, payload: []byte{5, 1, 0, 0, 0, 0, 0, 0}},
		"router advertisement":    {dst: to6, proto: unix.IPPROTO_ICMPV6, hops: 255, payload: []byte{134, 0, 0, 0, 0, 0, 0, 0}},
		"neighbour from far away": {dst: to6, proto: unix.IPPROTO_ICMPV6, hops: 254, payload: append([]byte{135}, make([]byte, 23)...)},
		"neighbour outside":       {dst: to6, proto: unix.IPPROTO_ICMPV6, hops: 255, payload: append([]byte{135}, make([]byte, 23)...)},
		"listener report outside": {dst: to6, proto: unix.IPPROTO_HOPOPTS, hops: 1, payload: append(hop(unix.IPPROTO_ICMPV6), 143, 0, 0, 0, 0, 0, 0, 0)},
		"udp":                     {dst: to, proto: unix.IPPROTO_UDP, payload: udp},
		"udp6":                    {dst: to6, proto: unix.IPPROTO_UDP, payload: udp},
		"udplite":                 {dst: to, proto: unix.IPPROTO_UDPLITE, payload: ports(4000, 53, 0, 0, 0, 0)},
		"sctp":                    {dst: to, proto: unix.IPPROTO_SCTP, payload: ports(4000, 80, 0, 0, 0, 0, 0, 0, 0, 0)},
		"sctp6":                   {dst: to6, proto: unix.IPPROTO_SCTP, payload: ports(4000, 80, 0, 0, 0, 0, 0, 0, 0, 0)},
		"gre":                     {dst: to, proto: unix.IPPROTO_GRE, payload: make([]byte, 8)},
		"esp":                     {dst: to, proto: unix.IPPROTO_ESP, payload: make([]byte, 16)},
		"ah6":                     {dst: to6, proto: unix.IPPROTO_AH, payload: append([]byte{unix.IPPROTO_TCP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, segment(443, 2)...)},
		"6in4":                    {dst: to, proto: unix.IPPROTO_IPV6, payload: make([]byte, 40)},
		"unknown protocol":        {dst: to, proto: 253, payload: make([]byte, 8)},
		"first fragment":          {dst: to, proto: unix.IPPROTO_UDP, fragment: 0x2000, payload: append(ports(4000, 53), make([]byte, 12)...)},
		"later fragment":          {dst: to, proto: unix.IPPROTO_TCP, fragment: 0x0004, payload: make([]byte, 16)},
		"fragment6":               {dst: to6, proto: unix.IPPROTO_FRAGMENT, payload: append([]byte{17, 0, 0, 1, 0, 0, 0, 9}, ports(4000, 53, 0, 8, 0, 0)...)},
		"options":                 {dst: to, proto: unix.IPPROTO_TCP, options: []byte{1, 1, 1, 0}, payload: segment(443, 2)},
		"hop-by-hop":              {dst: to6, proto: unix.IPPROTO_HOPOPTS, payload: append(hop(unix.IPPROTO_TCP), segment(443, 2)...)},
		"destination options":     {dst: to6, proto: unix.IPPROTO_DSTOPTS, payload: append(hop(unix.IPPROTO_UDP), ports(4000, 53, 0, 8, 0, 0)...)},
		"tcp ack":                 {dst: to, proto: unix.IPPROTO_TCP, payload: segment(443, 0x10)},
		"tcp null":                {dst: to, proto: unix.IPPROTO_TCP, payload: segment(443, 0)},
		"tcp xmas":                {dst: to, proto: unix.IPPROTO_TCP, payload: segment(443, 0x29)},
		"tcp syn ack":             {dst: to6, proto: unix.IPPROTO_TCP, payload: segment(443, 0x12)},
		"tcp syn fin":             {dst: to6, proto: unix.IPPROTO_TCP, payload: segment(443, 0x03)},
		"tcp rst":                 {dst: to, proto: unix.IPPROTO_TCP, payload: segment(443, 0x04)},
		"multicast":               {dst: netip.MustParseAddr("224.0.0.251"), proto: unix.IPPROTO_UDP, payload: ports(5353, 5353, 0, 8, 0, 0)},
		"multicast dns":           {dst: netip.MustParseAddr("224.0.0.251"), proto: unix.IPPROTO_UDP, payload: ports(5353, 53, 0, 8, 0, 0)},
		"multicast6":              {dst: netip.MustParseAddr("ff02::fb"), proto: unix.IPPROTO_UDP, payload: ports(5353, 5353, 0, 8, 0, 0)},
		"broadcast":               {dst: netip.MustParseAddr("255.255.255.255"), proto: unix.IPPROTO_UDP, payload: ports(68, 67, 0, 8, 0, 0)},
	}
	// Each has a destination of its own, so that none is folded into another.
	for i, name := range slices.Sorted(maps.Keys(packets)) {
		p := packets[name]
		switch p.dst {
		case to:
			p.dst = netip.AddrFrom4([4]byte{198, 51, 100, byte(20 + i)})
		case to6:
			b := to6.As16()
			b[15] = byte(20 + i)
			p.dst = netip.AddrFrom16(b)
		}
		if p.src = src6; p.dst.Is4() {
			p.src = src4
		}
		packets[name] = p
	}
	return packets
}

// testRefusals sends every packet of refusals from ns and finds it in log.
func testRefusals(t *testing.T, ns *os.File, log *PacketLog, src4, src6 netip.Addr) {
	t.Helper()
	for name, packet := range refusals(src4, src6) {
		t.Run(name, func(t *testing.T) {
			inside(t, ns, func() error {
				if err := packet.send(); !errors.Is(err, syscall.EPERM) { // a fragment is refused in the sending call
					return err
				}
				return nil
			})
			var want Packet
			want.decode(packet.bytes())
			got := next(t, log, func(p Packet) bool { return p.Dst.Addr() == packet.dst && p.Proto == want.Proto })
			if got.Verdict != VerdictDeny || got.Src != want.Src || got.Dst != want.Dst ||
				got.ICMPType != want.ICMPType || got.Length != want.Length || got.Count == 0 {
				t.Errorf("reported %+v, want %+v", got, want)
			}
		})
	}
}

func TestNET06EveryOtherProtocolIsRefusedAndReported(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	testRefusals(t, ns, s.Packets, ownAddr4(), ownAddr6())
}

func TestNET06PingIsRefusedAtOnce(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, _ := captureNamespace(t)
	var took time.Duration
	inside(t, ns, func() error {
		c, err := net.Dial("ip4:icmp", "203.0.113.10")
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		start := time.Now()
		if _, err := c.Write([]byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}); err != nil {
			return err
		}
		b := make([]byte, 128)
		_, err = c.Read(b)
		took = time.Since(start)
		if err != nil && !errors.Is(err, syscall.EHOSTUNREACH) {
			return err
		}
		return nil
	})
	if took > time.Second {
		t.Errorf("refused after %v", took)
	}
}

func TestTCPWithoutConnectionIsReset(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	// The gateway is gone: its sockets are closed, the rules stay.
	for _, l := range s.TCP {
		l.Close()
	}
	for _, address := range []string{"203.0.113.10:443", "[2001:db8::10]:443"} {
		inside(t, ns, func() error {
			if _, err := ask(address); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%s: %v, want connection refused", address, err)
			}
			return nil
		})
		next(t, s.Packets, func(p Packet) bool { return p.Proto == unix.IPPROTO_TCP && p.Dst.String() == address })
	}
}

func TestTCPHalfOpen(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	serveDestination(t, s)
	// Openings that are never finished neither reach Accept nor stop others.
	inside(t, ns, func() error {
		for i := range 500 {
			p := rawPacket{src: netip.MustParseAddr("198.51.100.77"), dst: netip.MustParseAddr("203.0.113.10"),
				proto: unix.IPPROTO_TCP, payload: ports(uint16(1000+i), 443, segment(0, 2)[4:]...)}
			if err := p.send(); err != nil {
				return err
			}
		}
		got, err := ask("203.0.113.10:443")
		if err == nil && got != "203.0.113.10:443" {
			err = fmt.Errorf("destination %q", got)
		}
		return err
	})
}

func TestHalfCloseReachesTheSandbox(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	go func() {
		c, err := s.TCP[0].Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 16)
		for err == nil { // until the sandbox has closed its half
			_, err = c.Read(b)
		}
		c.Write([]byte("after"))
	}()
	inside(t, ns, func() error {
		c, err := net.Dial("tcp", "203.0.113.10:5432")
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		b := make([]byte, 16)
		n, err := c.Read(b)
		if err == nil && string(b[:n]) != "after" {
			err = fmt.Errorf("read %q", b[:n])
		}
		return err
	})
}

// flood sends n datagrams to one address and port.
func flood(n int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 10}, Port: 443}
	for sent := 0; sent < n; {
		switch err := unix.Sendto(fd, []byte("x"), 0, to); {
		case err == nil:
			sent++
		case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINTR):
			// the refusal of one before; this one was not sent
		default:
			return err
		}
	}
	return nil
}

func TestNET06CountsAreExactUnderFlood(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	const n = 50_000
	for _, test := range []struct {
		name string
		late bool // nobody reads the log until the flood is over
	}{{"reader", false}, {"late reader", true}} {
		t.Run(test.name, func(t *testing.T) {
			ns, s := captureNamespace(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- inNamespace(ns, func() error { return flood(n) })
				cancel() // the log says the rest at once
			}()
			if test.late {
				<-ctx.Done()
			}
			var total uint64
			records, first := 0, true
			for {
				p, err := s.Packets.Next(ctx)
				if errors.Is(err, context.Canceled) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Verdict != VerdictDeny || p.Proto != unix.IPPROTO_UDP || p.Last.Before(p.First) {
					t.Errorf("reported %+v", p)
				}
				if first && p.Dst.String() != "203.0.113.10:443" {
					t.Errorf("first report %+v", p)
				}
				first = false
				total += p.Count
				records++
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if total != n || records > 100 {
				t.Errorf("%d packets in %d records, sent %d", total, records, n)
			}
		})
	}
}

func TestCountsBecomeExactWithoutEnd(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	const n = 5000
	ns, s := captureNamespace(t)
	inside(t, ns, func() error { return flood(n) })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for total := uint64(0); total < n; {
		p, err := s.Packets.Next(ctx)
		if err != nil {
			t.Fatalf("after %d packets: %v", total, err)
		}
		if total += p.Count; total > n {
			t.Fatalf("%d packets reported, %d sent", total, n)
		}
	}
}

func TestNextEndsWithClose(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	_, s := captureNamespace(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	done := make(chan error, 1)
	go func() {
		_, err := s.Packets.Next(context.Background())
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Next: %v", err)
	}
}

func TestPacketLogOutlivesItsRules(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	ns, s := captureNamespace(t)
	p := rawPacket{src: ownAddr4(), dst: netip.MustParseAddr("192.0.2.1"), proto: 253}
	inside(t, ns, p.send)
	next(t, s.Packets, func(got Packet) bool { return got.Proto == 253 })
	inside(t, ns, func() error { return removeTable(tableName) }) // the sandbox's root can do that
	ctx, cancel := context.WithTimeout(t.Context(), 3*countBusy)
	defer cancel()
	for {
		got, err := s.Packets.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		t.Errorf("%+v, %v", got, err)
		if err != nil {
			return
		}
	}
}

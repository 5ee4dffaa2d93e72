//go:build linux

package closed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// Refused holds of sandboxes that are served: every packet that is neither TCP
// nor DNS is refused, within 200 ms where a client would wait, and recorded with
// its source, destination and protocol; a flood is folded, and its counts are
// exact.
func Refused(t *testing.T, list []*Sandbox) {
	for _, s := range list {
		t.Run(s.Capture, func(t *testing.T) {
			s.fast(t)
			packets := s.attempts()
			if err := s.send(packets); err != nil {
				t.Fatal(err)
			}
			for _, a := range packets {
				if a.fragment && s.Whole {
					continue
				}
				if !lab.Within(10*time.Second, func() bool { return s.recorded(a) }) {
					t.Errorf("%s is not recorded; there are\n%s", a.name, s.seen())
				}
			}
		})
	}
	const datagrams = 20000
	before, written := map[*Sandbox]uint64{}, map[*Sandbox]int{} // of gateways before this one too
	for _, s := range list {
		before[s], written[s] = s.flooded(), len(s.Events(audit.Filter{Kind: "packet"}))
	}
	each(t, list, func(s *Sandbox) error { return s.flood(datagrams) })
	for _, s := range list {
		t.Run(s.Capture+", flooded", func(t *testing.T) {
			var n uint64
			if !lab.Within(20*time.Second, func() bool { n = s.flooded() - before[s]; return n >= datagrams }) || n != datagrams {
				t.Errorf("%d datagrams were sent and %d counted:\n%s", datagrams, n, s.seen())
			}
			if records := len(s.Events(audit.Filter{Kind: "packet"})) - written[s]; records > 1000 {
				t.Errorf("%d records were written", records)
			}
			if n := s.Watch.Packets(t); n != 0 {
				t.Errorf("%d packets arrived in the net", n)
			}
		})
	}
}

// refusedWithin is how soon a client must hear that it is refused, so that it
// does not wait.
const refusedWithin = 200 * time.Millisecond

// fast holds that clients of QUIC and of echo hear at once that they are
// refused, by IPv4 and IPv6. What counts is the best of three: the machine of
// the test may be busy.
func (s *Sandbox) fast(t *testing.T) {
	t.Helper()
	for _, to := range []netip.Addr{s.Watch.IP4, s.Watch.IP6} {
		echo := "ip4:icmp"
		if to.Is6() {
			echo = "ip6:ipv6-icmp"
		}
		for name, ask := range map[string]func() error{
			"QUIC": func() error { return askUDP(netip.AddrPortFrom(to, 443)) },
			"echo": func() error { return askEcho(echo, to) },
		} {
			best := time.Hour
			var err error
			for range 3 {
				began := time.Now()
				err = s.NS.Do(ask)
				if took := time.Since(began); err == nil && took < best {
					best = took
				}
			}
			if best > refusedWithin {
				t.Errorf("%s to %s: refused after %v: %v", name, to, best, err)
			}
		}
	}
}

// askUDP sends a datagram and waits for the refusal.
func askUDP(to netip.AddrPort) error {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("quic")); err != nil {
		return refusal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 16))
	return refusal(err)
}

// askEcho sends an echo request and waits for the message that it is refused.
func askEcho(network string, to netip.Addr) error {
	c, err := net.ListenPacket(network, "")
	if err != nil {
		return err
	}
	defer c.Close()
	request, unreachable := []byte{8, 0, 0, 0, 0, 7, 0, 1}, byte(3)
	if to.Is6() {
		request[0], unreachable = 128, 1 // the kernel fills in the checksum
	} else {
		request[2], request[3] = 0xf7, 0xf7 // of these eight bytes
	}
	if _, err := c.WriteTo(request, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return refusal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	for b := make([]byte, 1500); ; {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		if n > 0 && b[0] == unreachable {
			return nil
		}
	}
}

// refusal is nil if err says that the network refuses.
func refusal(err error) error {
	for _, code := range []unix.Errno{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.EACCES, unix.EPERM} {
		if errors.Is(err, code) {
			return nil
		}
	}
	return fmt.Errorf("not refused: %w", err)
}

func (s *Sandbox) recorded(a attempt) bool {
	from := s.From4
	if a.to.Is6() {
		from = s.From6
	}
	for _, e := range s.Events(audit.Filter{Kind: "packet", Reason: a.reason}) {
		if e.Proto == a.proto && e.Dst != nil && e.Dst.IP == a.to.String() && e.Src != nil && e.Src.IP == from.String() &&
			(a.port == 0 || e.Dst.Port == a.port) &&
			e.Sandbox != nil && e.Sandbox.Name == s.Name && e.Verdict == "deny" {
			return true
		}
	}
	return false
}

func (s *Sandbox) seen() string {
	var b strings.Builder
	for _, e := range s.Events(audit.Filter{Kind: "packet"}) {
		fmt.Fprintf(&b, "%s %s %+v > %+v %d\n", e.Reason, e.Proto, e.Src, e.Dst, e.Count)
	}
	return b.String()
}

// flood sends n datagrams to an address that nobody has.
func (s *Sandbox) flood(n int) error {
	return s.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		to := &unix.SockaddrInet4{Port: 9, Addr: netip.MustParseAddr(lab.Spare).As4()}
		for range n { // not connected: it does not hear of refusals
			err := unix.Sendto(fd, []byte("flood"), 0, to)
			if err != nil && !errors.Is(err, unix.EPERM) { // refused where it is sent
				return err
			}
		}
		return nil
	})
}

// flooded is how many datagrams of the flood were recorded. Those that the
// kernel counted and did not log have no address.
func (s *Sandbox) flooded() uint64 {
	var n uint64
	for _, e := range s.Events(audit.Filter{Kind: "packet"}) {
		if e.Proto == "udp" && (e.Dst == nil || e.Dst.IP == lab.Spare) && e.Sandbox != nil && e.Sandbox.Name == s.Name {
			n += max(e.Count, 1)
		}
	}
	return n
}

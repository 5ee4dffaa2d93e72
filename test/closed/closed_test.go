//go:build linux

// Package closed_test holds, for each kind of capture on a host that forwards,
// that everything which is neither TCP nor DNS is refused and recorded, and
// that nothing leaves whatever becomes of the gateway or of its rules.
package closed_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/audit"
	"sallyport/test/lab"
)

// one is a sandbox of one kind of capture.
type one struct {
	kind  string
	g     *lab.Gateway
	s     *lab.Sandbox
	watch *lab.Watch
	from4 netip.Addr
	from6 netip.Addr
}

func sandboxes(t *testing.T, l *lab.Lab) []one {
	t.Helper()
	const n = 91
	policy := func(name, match string) map[string]string {
		return map[string]string{"p.hcl": fmt.Sprintf("sandbox %q {\n  ipv6 = true\n  %s\n}\n", name, match)}
	}
	g1 := l.Gateway(t, lab.GatewayOptions{Policy: policy("ns", "")})
	g2 := l.Gateway(t, lab.GatewayOptions{Interfaces: []string{fmt.Sprintf("sb%d", n)},
		Policy: policy("if", fmt.Sprintf(`match { cidrs = ["10.66.%d.0/24", "fd66:%d::/64"] }`, n, n))})
	return []one{
		{"netns", g1, g1.Attach(t, "ns"), l.Watch(t), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
		{"interface", g2, g2.Interface(t, "if", n), l.Watch(t), netip.MustParseAddr(fmt.Sprintf("10.66.%d.2", n)), netip.MustParseAddr(fmt.Sprintf("fd66:%d::2", n))},
	}
}

// attempts are packets of every kind that is neither TCP nor DNS, with what is
// recorded of each.
func (o one) attempts() []attempt {
	to4, to6 := o.watch.IP4, o.watch.IP6
	group := netip.MustParseAddr("239.9.9.9")
	return []attempt{
		{"UDP", "udp_blocked", "udp", to4, packet4(o.from4, to4, 17, 0)},
		{"ICMP", "icmp_blocked", "icmp", to4, packet4(o.from4, to4, 1, 0)},
		{"SCTP", "proto_blocked", "sctp", to4, packet4(o.from4, to4, 132, 0)},
		{"GRE", "proto_blocked", "gre", to4, packet4(o.from4, to4, 47, 0)},
		{"ESP", "proto_blocked", "esp", to4, packet4(o.from4, to4, 50, 0)},
		{"multicast", "udp_blocked", "udp", group, packet4(o.from4, group, 17, 0)},
		{"UDP over IPv6", "udp_blocked", "udp", to6, packet6(o.from6, to6, 17)},
		{"SCTP over IPv6", "proto_blocked", "sctp", to6, packet6(o.from6, to6, 132)},
		{"echo over IPv6", "icmp_blocked", "icmpv6", to6, packet6(o.from6, to6, 58)},
		{"routing header", "proto_blocked", "proto-48", to6, packet6(o.from6, to6, 43)},
		{"destination options", "proto_blocked", "proto-48", to6, packet6(o.from6, to6, 60)},
	}
}

type attempt struct {
	name, reason, proto string
	to                  netip.Addr
	packet              []byte
}

// send sends whole packets, as root in the sandbox can.
func (o one) send(t *testing.T, list []attempt) {
	t.Helper()
	err := o.s.NS.Do(func() error {
		fd4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd4)
		fd6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd6)
		for _, a := range list {
			if a.to.Is4() {
				err = unix.Sendto(fd4, a.packet, 0, &unix.SockaddrInet4{Addr: a.to.As4()})
			} else {
				err = unix.Sendto(fd6, a.packet, 0, &unix.SockaddrInet6{Addr: a.to.As16()})
			}
			_ = err // the kernel of the sandbox may be the first to refuse, once it has learned to
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// knock tries TCP, UDP and DNS as any program does.
func (o one) knock() {
	for _, address := range []string{net.JoinHostPort(o.watch.IP4.String(), "443"), net.JoinHostPort(o.watch.IP6.String(), "22")} {
		_ = o.s.NS.Do(func() error {
			d := net.Dialer{Timeout: 300 * time.Millisecond}
			if c, err := d.Dial("tcp", address); err == nil {
				_, _ = c.Write([]byte("leak"))
				_ = c.Close()
			}
			if c, err := d.Dial("udp", address); err == nil {
				_, _ = c.Write([]byte("leak"))
				_ = c.Close()
			}
			return nil // each may be refused
		})
	}
	m := new(dns.Msg)
	m.SetQuestion("leak.test.", dns.TypeA)
	_ = o.s.NS.Do(func() error {
		c := &dns.Client{Timeout: 300 * time.Millisecond}
		_, _, err := c.Exchange(m, net.JoinHostPort(o.watch.IP4.String(), "53"))
		return err
	})
}

func (o one) recorded(a attempt) bool {
	for _, e := range o.g.Events(audit.Filter{Kind: "packet", Reason: a.reason}) {
		if e.Proto == a.proto && e.Dst != nil && e.Dst.IP == a.to.String() && e.Sandbox != nil && e.Sandbox.Name == o.s.Name {
			return true
		}
	}
	return false
}

// TestEveryOtherProtocolIsRefusedAndRecorded: NET-02.
func TestEveryOtherProtocolIsRefusedAndRecorded(t *testing.T) {
	l := lab.New(t)
	for _, o := range sandboxes(t, l) {
		t.Run(o.kind, func(t *testing.T) {
			list := o.attempts()
			o.send(t, list)
			for _, a := range list {
				if !within(10*time.Second, func() bool { return o.recorded(a) }) {
					t.Errorf("%s is not recorded; there are\n%s", a.name, o.seen())
				}
			}
			began := time.Now()
			c, err := o.s.DialIP("udp", net.JoinHostPort(o.watch.IP4.String(), "443"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // shows in the read
			_, err = c.Write([]byte("quic"))
			for err == nil {
				_, err = c.Read(make([]byte, 16))
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("QUIC is refused after %v: %v", took, err)
			}
			if n := o.watch.Packets(t); n != 0 {
				t.Errorf("%d packets arrived in the net", n)
			}
		})
	}
}

func (o one) seen() string {
	var b strings.Builder
	for _, e := range o.g.Events(audit.Filter{Kind: "packet"}) {
		fmt.Fprintf(&b, "%s %s %+v\n", e.Reason, e.Proto, e.Dst)
	}
	return b.String()
}

// TestNothingLeavesWhateverHappens: the gateway without descriptors, without
// its rules, and dead without them, on a host that forwards.
func TestNothingLeavesWhateverHappens(t *testing.T) {
	l := lab.New(t)
	list := sandboxes(t, l)
	hold := func(t *testing.T, state string) {
		t.Helper()
		for _, o := range list {
			o.send(t, o.attempts())
			o.knock()
			if n := o.watch.Packets(t); n != 0 {
				t.Fatalf("%s, %s: %d packets arrived in the net", state, o.kind, n)
			}
		}
	}
	served := func(t *testing.T) {
		t.Helper()
		for _, o := range list {
			if !within(lab.StartTime, func() bool { _, err := o.s.Ask("sallyport.internal", dns.TypeA); return err == nil }) {
				t.Fatalf("%s: no question is answered:\n%s", o.kind, o.g.Stderr())
			}
		}
	}
	hold(t, "at rest")
	var was unix.Rlimit
	for _, o := range list {
		must(t, unix.Prlimit(o.g.PID(), unix.RLIMIT_NOFILE, nil, &was))
		must(t, unix.Prlimit(o.g.PID(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: was.Max}, nil))
	}
	hold(t, "out of descriptors")
	for _, o := range list {
		must(t, unix.Prlimit(o.g.PID(), unix.RLIMIT_NOFILE, &was, nil))
	}
	served(t)
	for _, o := range list {
		must(t, o.g.Signal(syscall.SIGSTOP))
	}
	hold(t, "stopped")
	flush(t, l)
	hold(t, "stopped, the host's rules flushed")
	for _, o := range list {
		must(t, o.g.Signal(syscall.SIGCONT))
	}
	hold(t, "up, the host's rules flushed")
	for _, o := range list {
		must(t, o.g.Kill())
	}
	hold(t, "dead, the host's rules flushed")
	for _, o := range list {
		must(t, o.g.Start())
	}
	served(t)
	hold(t, "back")
	for _, o := range list {
		must(t, o.g.Kill())
	}
	hold(t, "killed")
}

// flush takes every nft rule of the gateway's host away, and holds that it
// still forwards.
func flush(t *testing.T, l *lab.Lab) {
	t.Helper()
	must(t, l.GW.Do(func() error {
		if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		b, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
		if err == nil && strings.TrimSpace(string(b)) != "1" {
			err = fmt.Errorf("ip_forward is %s", b)
		}
		return err
	}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(wait time.Duration, f func() bool) bool {
	for end := time.Now().Add(wait); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// payload is 16 bytes that could begin a datagram to port 4433.
func payload() []byte {
	return []byte{0x30, 0x39, 0x11, 0x51, 0, 16, 0, 0, 'l', 'e', 'a', 'k', 'l', 'e', 'a', 'k'}
}

// packet4 is an IPv4 packet (RFC 791, section 3.1); the kernel fills in the
// checksum.
func packet4(from, to netip.Addr, proto byte, fragment uint16) []byte {
	b := make([]byte, 20, 36)
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], 36)
	binary.BigEndian.PutUint16(b[4:], 1)
	binary.BigEndian.PutUint16(b[6:], fragment)
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.AsSlice())
	return append(b, payload()...)
}

// packet6 is an IPv6 packet (RFC 8200, section 3).
func packet6(from, to netip.Addr, next byte) []byte {
	b := make([]byte, 40, 56)
	b[0], b[5], b[6], b[7] = 0x60, 16, next, 64
	copy(b[8:], from.AsSlice())
	copy(b[24:], to.AsSlice())
	return append(b, payload()...)
}

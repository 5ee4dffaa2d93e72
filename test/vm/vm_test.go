//go:build linux

// Package vm_test boots a virtual machine behind a tap and holds that it gets
// what its policy allows and nothing else.
package vm_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/audit"
	"sallyport/gateway/capture"
	"sallyport/test/lab"
)

// value is what API_KEY stands for.
const value = "REAL-77d1c09ee4-value"

// Addresses of the machine and of the gateway on its link.
const (
	vmMAC    = "02:5a:00:00:77:02"
	vm4, gw4 = "10.77.5.2", "10.77.5.1"
	vm6, gw6 = "fd77:5::2", "fd77:5::1"
)

const policy = `
secret "API_KEY" {
  hosts = ["good.test"]
  source "env" { name = "REAL_KEY" }
}
sandbox "vm" {
  ipv6 = true
  match {
    interfaces = ["TAP"]
    cidrs      = ["10.77.5.2/32", "fd77:5::2/128"]
    macs       = ["02:5a:00:00:77:02"]
  }
  allow "good.test" {
    addresses = DOCS
    inject    = ["API_KEY"]
  }
}
`

// recordTime is how long the record of a packet is waited for. Those of one kind
// to one address are told together every 5 s, after the first.
const recordTime = 20 * time.Second

// site is a gateway with a tap.
type site struct {
	t         *testing.T
	lab       *lab.Lab
	g         *lab.Gateway
	tap       string
	namespace string
	watch     *lab.Watch
	m         *machine
	gateway   net.HardwareAddr // of the gateway's end
}

func TestVirtualMachine(t *testing.T) {
	l := lab.New(t)
	s := &site{t: t, lab: l, tap: fmt.Sprintf("vm%d", os.Getpid()%100000)}
	s.namespace = "/run/sallyport/net/" + s.tap
	t.Cleanup(func() { // also after a failure half way
		if err := l.GW.Do(func() error { return capture.ReleaseInterface(s.tap, s.namespace) }); err != nil {
			t.Error(err)
		}
	})
	s.g = l.Gateway(t, lab.GatewayOptions{Env: []string{"REAL_KEY=" + value},
		Policy: map[string]string{"p.hcl": strings.NewReplacer("DOCS", lab.Documentation, "TAP", s.tap).Replace(policy)},
		More:   fmt.Sprintf("capture \"vm\" {\n  tap = [%q]\n  address = [%q, %q]\n}\n", s.tap, gw4+"/24", gw6+"/64")})
	s.watch = l.Watch(t)
	s.m = boot(t, l, card{tap: s.tap, mac: vmMAC, namespace: s.namespace, networks: []string{vm4 + "/24>" + gw4, vm6 + "/64>" + gw6}}, s.g.CA)
	err := capture.InNamespace(s.namespace, func() error {
		link, err := net.InterfaceByName(s.tap)
		if err == nil {
			s.gateway = link.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name string
		f    func(*site, *testing.T)
	}{
		{"allowed", (*site).allowed},
		{"refused", (*site).refused},
		{"every other protocol", (*site).otherProtocols},
		{"spoofed", (*site).spoofed},
		{"clock", (*site).clock},
		{"alone in its namespace", (*site).alone},
		{"gateway killed and back", (*site).killed},
		{"removed", (*site).removed},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.f(s, t) }) {
			break
		}
	}
	if n := s.watch.Packets(t); n != 0 {
		t.Errorf("%d packets of the machine arrived in the net", n)
	}
}

// works holds that the machine is served.
func (s *site) works(t *testing.T) {
	t.Helper()
	var a answer
	if !lab.Within(time.Minute, func() bool {
		a = s.m.do(t, order{Op: "get", URL: "https://good.test/"})
		return a.Status == 200
	}) {
		t.Fatalf("the machine is not served: %+v\n%s", a, s.g.Stderr())
	}
}

func (s *site) allowed(t *testing.T) {
	good := s.lab.Origins.Host("good.test")
	for _, h2 := range []bool{false, true} {
		before := len(good.Requests())
		a := s.m.do(t, order{Op: "get", URL: "https://good.test/v1", H2: h2, Headers: map[string]string{"Authorization": "Bearer $API_KEY"}})
		if a.Status != 200 || strings.Contains(a.Body, value) {
			t.Fatalf("answer %+v", a)
		}
		got := good.Requests()[before:]
		if len(got) != 1 || len(got[0].Header["Authorization"]) != 1 || got[0].Header["Authorization"][0] != "Bearer "+value {
			t.Errorf("the origin received %+v", got)
		}
	}
	a := s.m.do(t, order{Op: "resolve", Name: "good.test"})
	if !strings.Contains(a.Body, "198.18.") || !strings.Contains(a.Body, ":") {
		t.Errorf("resolved %+v: not an address of each version", a)
	}
	for _, e := range s.g.Events(audit.Filter{Host: "good.test"}) {
		if e.Sandbox == nil || e.Sandbox.Name != "vm" || e.Src != nil && e.Src.IP != vm4 && e.Src.IP != vm6 {
			t.Errorf("event of %+v from %+v", e.Sandbox, e.Src)
		}
	}
}

func (s *site) refused(t *testing.T) {
	a := s.m.do(t, order{Op: "get", URL: "https://evil.test/"})
	if a.Status != 403 || a.Headers["X-Sallyport-Reason"] != "host_not_allowed" {
		t.Errorf("evil.test: %+v", a)
	}
	if e := s.g.Await(t, 1, audit.Filter{Host: "evil.test", Kind: "http"}); e[0].Req != a.Headers["X-Sallyport-Request"] {
		t.Errorf("recorded as %s, the machine was told %s", e[0].Req, a.Headers["X-Sallyport-Request"])
	}
	for _, to := range []string{lab.Origin + ":22", "169.254.169.254:80", "[" + lab.Origin6 + "]:443", s.watch.IP4.String() + ":443", gw4 + ":9090"} {
		if a := s.m.do(t, order{Op: "tcp", Address: to}); a.Body != "" || a.Error == "" || a.Took > 3 {
			t.Errorf("TCP to %s: %+v", to, a)
		}
	}
	for _, to := range []string{s.watch.IP4.String() + ":443", "[" + s.watch.IP6.String() + "]:4433", gw4 + ":123"} {
		if a := s.m.do(t, order{Op: "udp", Address: to}); a.Error == "" || a.Took > 1 {
			t.Errorf("UDP to %s: %+v", to, a)
		}
	}
	if !lab.Within(recordTime, func() bool { return len(s.packets("quic_blocked", "udp", s.watch.IP4)) > 0 }) {
		t.Errorf("QUIC is not recorded; there are\n%s", s.seen())
	}
	if !s.lab.Origins.Host("evil.test").Silent() {
		t.Error("evil.test received something")
	}
}

// otherProtocols: ICMP, SCTP, GRE, fragments, extension headers and multicast,
// as frames that no kernel of the machine looks at. A record names the protocol
// behind the headers.
func (s *site) otherProtocols(t *testing.T) {
	to4, to6 := s.watch.IP4, s.watch.IP6
	for _, c := range []struct {
		name, reason, proto string
		to                  netip.Addr
		packet              []byte
	}{
		{"ICMP", "icmp_blocked", "icmp", to4, packet4(vm4, to4, 1, 0)},
		{"SCTP", "proto_blocked", "sctp", to4, packet4(vm4, to4, 132, 0)},
		{"GRE", "proto_blocked", "gre", to4, packet4(vm4, to4, 47, 0)},
		{"first fragment", "udp_blocked", "udp", to4, packet4(vm4, to4, 17, 0x2000)},
		{"later fragment of TCP", "proto_blocked", "tcp", to4, packet4(vm4, to4, 6, 0x0002)},
		{"multicast", "udp_blocked", "udp", netip.MustParseAddr("239.1.2.3"), packet4(vm4, netip.MustParseAddr("239.1.2.3"), 17, 0)},
		{"SCTP over IPv6", "proto_blocked", "sctp", to6, packet6(vm6, to6, 132)},
		{"hop-by-hop header", "udp_blocked", "udp", to6, hopByHop(vm6, to6)},
		{"routing header", "proto_blocked", "proto-48", to6, packet6(vm6, to6, 43)},
		{"fragment header", "proto_blocked", "proto-48", to6, packet6(vm6, to6, 44)},
		{"destination options", "proto_blocked", "proto-48", to6, packet6(vm6, to6, 60)},
		{"echo over IPv6", "icmp_blocked", "icmpv6", to6, packet6(vm6, to6, 58)},
	} {
		sent := func() int { return len(s.packets(c.reason, c.proto, c.to)) }
		before := sent()
		if a := s.m.do(t, order{Op: "frame", Hex: s.frame(vmMAC, c.packet)}); a.Error != "" {
			t.Fatalf("%s: %+v", c.name, a)
		}
		if !lab.Within(recordTime, func() bool { return sent() > before }) {
			t.Errorf("%s is not recorded; there are\n%s", c.name, s.seen())
		}
	}
}

// packets are the records of packets of a protocol.
func (s *site) packets(reason, proto string, to netip.Addr) (out []*audit.Event) {
	for _, e := range s.g.Events(audit.Filter{Kind: "packet", Reason: reason}) {
		if e.Proto == proto && e.Dst != nil && e.Dst.IP == to.String() {
			out = append(out, e)
		}
	}
	return out
}

// seen lists the records of packets.
func (s *site) seen() string {
	var out strings.Builder
	for _, e := range s.g.Events(audit.Filter{Kind: "packet"}) {
		fmt.Fprintf(&out, "%s %s %+v\n", e.Reason, e.Proto, e.Dst)
	}
	return out.String()
}

// spoofed: another source than the machine's own, of IP or of Ethernet, gets
// no answer and a record of its own.
func (s *site) spoofed(t *testing.T) {
	q := new(dns.Msg)
	q.SetQuestion("spoofed.test.", dns.TypeA)
	question, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	resolver := netip.MustParseAddr("192.0.2.53")
	for _, c := range []struct {
		name, mac, from string
	}{
		{"another address", vmMAC, "10.77.5.3"},
		{"the gateway's address", vmMAC, gw4},
		{"an address of elsewhere", vmMAC, "203.0.113.7"},
		{"another Ethernet address", "02:5a:00:00:77:99", vm4},
	} {
		before := len(s.g.Events(audit.Filter{Reason: "spoofed_source"}))
		if a := s.m.do(t, order{Op: "frame", Hex: s.frame(c.mac, datagram4(c.from, resolver, 53, question))}); a.Error != "" {
			t.Fatalf("%s: %+v", c.name, a)
		}
		var events []*audit.Event
		if !lab.Within(recordTime, func() bool {
			events = s.g.Events(audit.Filter{Reason: "spoofed_source"})[before:]
			return slices.ContainsFunc(events, func(e *audit.Event) bool { return e.Verdict == "deny" && e.Src != nil && e.Src.IP == c.from })
		}) {
			t.Errorf("%s is recorded as %+v", c.name, events)
		}
	}
	if e := s.g.Events(audit.Filter{Host: "spoofed.test"}); len(e) > 0 {
		t.Errorf("the question was taken: %+v", e[0])
	}
	// The same, from where it should come, is taken: the frames are right.
	if a := s.m.do(t, order{Op: "frame", Hex: s.frame(vmMAC, datagram4(vm4, resolver, 53, question))}); a.Error != "" {
		t.Fatal(a.Error)
	}
	s.g.Await(t, 1, audit.Filter{Host: "spoofed.test"})
}

// clock: a machine that was resumed from a snapshot lags behind; certificates
// begin early enough for that.
func (s *site) clock(t *testing.T) {
	for _, by := range []string{"-20h", "30h"} {
		if a := s.m.do(t, order{Op: "clock", Shift: by}); a.Error != "" {
			t.Fatal(a.Error)
		}
		if a := s.m.do(t, order{Op: "get", URL: "https://good.test/" + by}); a.Status != 200 {
			t.Errorf("clock moved by %s: %+v", by, a)
		}
	}
}

// alone: where the tap is there is nothing else, and where the gateway is
// there is no tap.
func (s *site) alone(t *testing.T) {
	err := capture.InNamespace(s.namespace, func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			if l.Name != "lo" && l.Name != s.tap && !strings.Contains("sit0 ip6tnl0 tunl0 gre0 gretap0 erspan0 ip_vti0 ip6_vti0 ip6gre0", l.Name) {
				t.Errorf("%s is in the tap's namespace", l.Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.lab.GW.Do(func() error { _, err := net.InterfaceByName(s.tap); return err }); err == nil {
		t.Error("the tap is where the gateway is")
	}
	// What is removed elsewhere is not this gateway's.
	cmd := exec.Command(s.lab.Binary, "serve", "--remove")
	if err := s.lab.Net.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	s.works(t)
}

// killed: nothing leaves while the gateway is out of descriptors, frozen, killed,
// stopped or its rules are flushed, and the machine is served when it is back,
// also by another program. The whole matrix is tried with a tap and no machine
// (test/closed).
func (s *site) killed(t *testing.T) {
	attack := func(state string) {
		t.Helper()
		for _, o := range []order{{Op: "get", URL: "https://good.test/"}, {Op: "tcp", Address: s.watch.IP4.String() + ":443"},
			{Op: "udp", Address: s.watch.IP4.String() + ":53"}, {Op: "frame", Hex: s.frame(vmMAC, packet4(vm4, s.watch.IP4, 132, 0))},
			{Op: "frame", Hex: s.frame(vmMAC, packet6(vm6, s.watch.IP6, 17))}} {
			if a := s.m.do(t, o); a.Status != 0 || a.Body != "" {
				t.Errorf("%s: %s %s%s: %+v", state, o.Op, o.URL, o.Address, a)
			}
		}
		if n := s.watch.Packets(t); n != 0 {
			t.Fatalf("%s: %d packets arrived in the net", state, n)
		}
	}
	flush := func() {
		t.Helper()
		for _, line := range []string{"nft flush ruleset", "ip rule flush", "ip -6 rule flush", "ip route flush table all", "sysctl -qw net.ipv4.ip_forward=1"} {
			_ = exec.Command("nsenter", "--net="+s.namespace, "sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; "+line).Run() // some leave nothing to flush
		}
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	limit := func(soft string) {
		t.Helper()
		if out, err := exec.Command("prlimit", "--pid", fmt.Sprint(s.g.PID()), "--nofile="+soft+":").CombinedOutput(); err != nil {
			t.Fatalf("prlimit: %v: %s", err, out)
		}
	}
	limit("1")
	attack("out of descriptors")
	limit("512")
	s.works(t)
	step(s.g.Freeze())
	attack("frozen")
	step(s.g.Signal(syscall.SIGCONT))
	s.works(t)
	step(s.g.Kill())
	attack("killed")
	flush()
	attack("killed and flushed")
	step(s.g.Start())
	s.works(t)
	flush()
	attack("flushed")
	step(s.g.Stop())
	attack("stopped")
	binary := s.lab.Binary
	program, err := os.ReadFile(binary)
	step(err)
	s.lab.Binary = filepath.Join(s.lab.Dir, "newer")
	step(os.WriteFile(s.lab.Binary, append(program, "newer"...), 0o755))
	step(s.g.Start())
	s.works(t)
	s.lab.Binary = binary
}

// removed: "serve --remove" takes the tap and its namespace away, under a
// machine that runs on.
func (s *site) removed(t *testing.T) {
	if err := s.g.Stop(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.lab.Binary, "serve", "--remove")
	if err := s.lab.GW.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.namespace); !os.IsNotExist(err) {
		t.Errorf("the namespace is still there (%v)", err)
	}
	if err := s.lab.GW.Do(func() error { _, err := net.InterfaceByName(s.tap); return err }); err == nil {
		t.Error("the tap is where the gateway was")
	}
	if a := s.m.do(t, order{Op: "tcp", Address: s.watch.IP4.String() + ":443"}); a.Error == "" {
		t.Errorf("TCP: %+v", a)
	}
}

// frame is an Ethernet frame to the gateway, in hex.
func (s *site) frame(from string, packet []byte) string {
	mac, err := net.ParseMAC(from)
	if err != nil {
		s.t.Fatal(err)
	}
	kind := []byte{0x08, 0x00}
	if packet[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	b := append(append(append([]byte{}, s.gateway...), mac...), kind...)
	return hex.EncodeToString(append(b, packet...))
}

// payload is 16 bytes that could begin a datagram to port 4433.
func payload() []byte {
	return []byte{0x30, 0x39, 0x11, 0x51, 0, 16, 0, 0, 'l', 'e', 'a', 'k', 'l', 'e', 'a', 'k'}
}

// packet4 is an IPv4 packet (RFC 791, section 3.1).
func packet4(from string, to netip.Addr, proto byte, fragment uint16) []byte {
	return whole4(from, to, proto, fragment, payload())
}

func whole4(from string, to netip.Addr, proto byte, fragment uint16, content []byte) []byte {
	b := make([]byte, 20, 20+len(content))
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(content)))
	binary.BigEndian.PutUint16(b[4:], 1)
	binary.BigEndian.PutUint16(b[6:], fragment)
	copy(b[12:], netip.MustParseAddr(from).AsSlice())
	copy(b[16:], to.AsSlice())
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum))
	return append(b, content...)
}

// datagram4 is a UDP datagram without a checksum (RFC 768).
func datagram4(from string, to netip.Addr, port uint16, content []byte) []byte {
	b := make([]byte, 8, 8+len(content))
	binary.BigEndian.PutUint16(b, 40000)
	binary.BigEndian.PutUint16(b[2:], port)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(content)))
	return whole4(from, to, 17, 0, append(b, content...))
}

// packet6 is an IPv6 packet (RFC 8200, section 3).
func packet6(from string, to netip.Addr, next byte) []byte {
	b := make([]byte, 40, 56)
	b[0], b[5], b[6], b[7] = 0x60, 16, next, 64
	copy(b[8:], netip.MustParseAddr(from).AsSlice())
	copy(b[24:], to.AsSlice())
	return append(b, payload()...)
}

// hopByHop is a datagram behind a header for every hop, which the kernel of
// the gateway reads before its rules see the packet: it must be in order.
func hopByHop(from string, to netip.Addr) []byte {
	b := packet6(from, to, 0)
	return append(b[:40], 17, 0, 1, 4, 0, 0, 0, 0, 0x30, 0x39, 0x11, 0x51, 0, 8, 0, 0) // options: padding
}

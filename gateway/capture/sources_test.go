//go:build linux

package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSourcesOfASandboxThatMayHaveAny: such a sandbox may not have that of the
// host or one that nobody has, which leave no trace in the kernel, nor more than
// the kernel can ask for.
func TestSourcesOfASandboxThatMayHaveAny(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	o := s.options()
	o.Sources = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	sockets := s.open(t, o)
	serveDestination(t, sockets)
	inside(t, s.sandbox, func() error { _, err := ask("203.0.113.10:443"); return err }) // each end knows the other now
	send := func(src netip.Addr, proto uint8, payload []byte) {
		inside(t, s.sandbox, rawPacket{src: src, dst: netip.MustParseAddr("203.0.113.11"), proto: proto, payload: payload}.send)
	}
	for _, text := range []string{"127.0.0.5", "10.77.4.1", "203.0.113.1", "224.0.0.7", "240.0.0.1", "0.0.0.9"} {
		src := netip.MustParseAddr(text)
		send(src, unix.IPPROTO_TCP, segment(443, 2))
		got := next(t, sockets.Packets, func(p Packet) bool { return p.Src.Addr() == src })
		if got.Verdict != VerdictSpoof {
			t.Errorf("reported %+v", got)
		}
	}
	const more = 100
	src := netip.MustParseAddr("10.200.0.1") // no route leads there: nobody is asked for
	for range sourcesMax + more {
		send(src, unix.IPPROTO_UDP, ports(4000, 99, 0, 8, 0, 0))
		src = src.Next()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := map[string]uint64{}
	for {
		p, err := sockets.Packets.Next(ctx)
		if errors.Is(err, context.Canceled) {
			break // all that there was has been told
		}
		if err != nil {
			t.Fatalf("after %v: %v", seen, err)
		}
		seen[p.Verdict] += p.Count
		if seen[VerdictDeny]+seen[VerdictSpoof] >= sourcesMax+more { // the last may have been on its way
			cancel()
		}
	}
	if seen[VerdictDeny] != sourcesMax-1 || seen[VerdictSpoof] != more+1 { // one is the sandbox's own
		t.Errorf("%v of %d packets", seen, sourcesMax+more)
	}
}

// TestForgedQuestionsHoldNoAnswerBack: answers to addresses that the sandbox
// made up wait in the kernel while it asks for those, some three seconds.
// Other answers of the capture pass them.
func TestForgedQuestionsHoldNoAnswerBack(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	const env = "SALLYPORT_TEST_USER_NAMESPACE"
	inUserNamespace := os.Getenv(env) != "" || !mapsAll(t)
	if !inUserNamespace {
		t.Run("user namespace", func(t *testing.T) {
			cmd := inNewNamespaces(t, "TestForgedQuestionsHoldNoAnswerBack")
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
			cmd.Env = append(os.Environ(), env+"=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	s := newSite(t)
	o := s.options()
	o.Sources = []netip.Prefix{netip.MustParsePrefix("10.77.4.0/24"), netip.MustParsePrefix("fd77::/64")}
	echoQuestions(s.open(t, o))
	inside(t, s.host, func() error {
		for _, version := range []string{"ipv4", "ipv6"} {
			b, err := os.ReadFile("/proc/sys/net/" + version + "/neigh/sb0/unres_qlen_bytes")
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil || n < waitingMax && !inUserNamespace || n > waitingMax {
				t.Errorf("%s: %d bytes may wait for an address, %v", version, n, err)
			}
		}
		return nil
	})
	for name, test := range map[string]struct {
		first    netip.Addr // that is made up
		resolver string
	}{
		"IPv4": {netip.MustParseAddr("10.77.4.3"), "8.8.8.8:53"},
		"IPv6": {netip.MustParseAddr("fd77::3"), "[2001:4860:4860::8888]:53"},
	} {
		t.Run(name, func(t *testing.T) {
			inside(t, s.sandbox, func() error {
				if err := question(test.resolver); err != nil { // each end knows the other now
					return err
				}
				p := rawPacket{src: test.first, dst: netip.MustParseAddrPort(test.resolver).Addr(), proto: unix.IPPROTO_UDP}
				for range sourcesMax - 6 {
					p.payload = questionFrom(p.src, p.dst)
					for range 8 {
						if err := p.send(); err != nil {
							return err
						}
					}
					p.src = p.src.Next()
				}
				return answered(20, test.resolver) // within a second
			})
		})
	}
}

// mapsAll reports whether the users here are all that there are: in another user
// namespace than the machine's they are not.
func mapsAll(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), " ") == "0 0 4294967295"
}

// questionFrom is a UDP datagram to port 53 with the right checksum, which IPv6
// asks for.
func questionFrom(src, dst netip.Addr) []byte {
	const length = 12
	b := append(ports(4000, dnsPort, 0, length, 0, 0), "long"...)
	sum := uint32(length + unix.IPPROTO_UDP)
	for _, part := range [][]byte{src.AsSlice(), dst.AsSlice(), b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[6:], ^uint16(sum+sum>>16))
	return b
}

// answered asks resolver, again and again as clients do, until it answers, but
// no more than times. A second of a machine that stands still is one time.
func answered(times int, resolver string) error {
	c, err := net.Dial("udp", resolver)
	if err != nil {
		return err
	}
	defer c.Close()
	for try := 1; ; try++ {
		if _, err := c.Write([]byte("q")); err != nil {
			return err
		}
		c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := c.Read(make([]byte, 64))
		if err == nil || try == times {
			return err
		}
	}
}

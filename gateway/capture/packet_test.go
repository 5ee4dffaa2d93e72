//go:build linux

package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// rawPacket is an IP packet written by hand.
type rawPacket struct {
	src, dst netip.Addr
	proto    uint8  // or IPv6 next header
	fragment uint16 // IPv4 flags and offset
	options  []byte // of IPv4, a multiple of 4 bytes
	hops     uint8
	payload  []byte
}

func (r rawPacket) bytes() []byte {
	if r.hops == 0 {
		r.hops = 64
	}
	if r.dst.Is4() {
		b := make([]byte, ipv4HeaderLen, 60+len(r.payload))
		b[0] = 0x40 | uint8((ipv4HeaderLen+len(r.options))/4)
		binary.BigEndian.PutUint16(b[2:], uint16(ipv4HeaderLen+len(r.options)+len(r.payload)))
		binary.BigEndian.PutUint16(b[4:], 1)
		binary.BigEndian.PutUint16(b[6:], r.fragment)
		b[8], b[9] = r.hops, r.proto
		copy(b[12:], r.src.AsSlice())
		copy(b[16:], r.dst.AsSlice())
		return append(append(b, r.options...), r.payload...)
	}
	b := make([]byte, ipv6HeaderLen, ipv6HeaderLen+len(r.payload))
	b[0] = 0x60
	binary.BigEndian.PutUint16(b[4:], uint16(len(r.payload)))
	b[6], b[7] = r.proto, r.hops
	copy(b[8:], r.src.AsSlice())
	copy(b[24:], r.dst.AsSlice())
	return append(b, r.payload...)
}

// send sends r from the namespace of the calling thread.
func (r rawPacket) send() error {
	domain := unix.AF_INET
	if r.dst.Is6() {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("raw socket", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return err
	}
	if err := unix.Sendto(fd, r.bytes(), 0, sockaddr(netip.AddrPortFrom(r.dst, 0))); err != nil {
		return errors.Join(fmt.Errorf("send to %s", r.dst), err)
	}
	return nil
}

// ports is the beginning of a TCP, UDP or SCTP header.
func ports(src, dst uint16, rest ...byte) []byte {
	return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), dst), rest...)
}

// segment is a TCP header with the given flags.
func segment(dst uint16, flags byte) []byte {
	return ports(4000, dst, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, flags, 0, 0, 0, 0, 0, 0)
}

func TestDecode(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.2")
	a6, b6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	at := netip.AddrPortFrom
	hopByHop := []byte{unix.IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0}
	for _, test := range []struct {
		name string
		in   []byte
		want Packet
		bad  bool
	}{
		{name: "empty", bad: true},
		{name: "short", in: []byte{0x45, 0}, bad: true},
		{name: "short IPv6", in: make([]byte, 39), bad: true},
		{name: "no version", in: make([]byte, 64), bad: true},
		{name: "udp", in: rawPacket{src: a, dst: b, proto: 17, payload: ports(5000, 443, 0, 8, 0, 0)}.bytes(),
			want: Packet{Proto: 17, Src: at(a, 5000), Dst: at(b, 443), Length: 28}},
		{name: "udp cut in its ports", in: rawPacket{src: a, dst: b, proto: 17, payload: ports(5000, 443)}.bytes()[:23],
			want: Packet{Proto: 17, Src: at(a, 0), Dst: at(b, 0), Length: 24}},
		{name: "options", in: rawPacket{src: a, dst: b, proto: 6, options: make([]byte, 8), payload: segment(80, 2)}.bytes(),
			want: Packet{Proto: 6, Src: at(a, 4000), Dst: at(b, 80), Length: 48}},
		{name: "header length beyond the end", in: append([]byte{0x4f}, rawPacket{src: a, dst: b, proto: 17, payload: ports(1, 2)}.bytes()[1:]...),
			want: Packet{Proto: 17, Src: at(a, 0), Dst: at(b, 0), Length: 24}},
		{name: "header length below 20", in: append([]byte{0x41}, rawPacket{src: a, dst: b, proto: 17, payload: ports(1, 2)}.bytes()[1:]...),
			want: Packet{Proto: 17, Src: at(a, 0), Dst: at(b, 0), Length: 24}},
		{name: "first fragment", in: rawPacket{src: a, dst: b, proto: 17, fragment: 0x2000, payload: ports(1, 2)}.bytes(),
			want: Packet{Proto: 17, Src: at(a, 1), Dst: at(b, 2), Length: 24}},
		{name: "later fragment", in: rawPacket{src: a, dst: b, proto: 17, fragment: 1, payload: ports(1, 2)}.bytes(),
			want: Packet{Proto: 17, Src: at(a, 0), Dst: at(b, 0), Length: 24}},
		{name: "icmp", in: rawPacket{src: a, dst: b, proto: 1, payload: []byte{8, 1}}.bytes(),
			want: Packet{Proto: 1, Src: at(a, 0), Dst: at(b, 0), ICMPType: 8, ICMPCode: 1, Length: 22}},
		{name: "gre", in: rawPacket{src: a, dst: b, proto: 47, payload: ports(1, 2)}.bytes(),
			want: Packet{Proto: 47, Src: at(a, 0), Dst: at(b, 0), Length: 24}},
		{name: "udp behind hop-by-hop", in: rawPacket{src: a6, dst: b6, proto: 0, payload: append(hopByHop, ports(1, 2)...)}.bytes(),
			want: Packet{Proto: 17, Src: at(a6, 1), Dst: at(b6, 2), Length: 52}},
		{name: "extension cut", in: rawPacket{src: a6, dst: b6, proto: 43, payload: []byte{6, 0, 0}}.bytes(),
			want: Packet{Proto: 43, Src: at(a6, 0), Dst: at(b6, 0), Length: 43}},
		{name: "extension longer than the packet", in: rawPacket{src: a6, dst: b6, proto: 60, payload: []byte{6, 255, 0, 0, 0, 0, 0, 0}}.bytes(),
			want: Packet{Proto: 6, Src: at(a6, 0), Dst: at(b6, 0), Length: 48}},
		{name: "later IPv6 fragment", in: rawPacket{src: a6, dst: b6, proto: 44, payload: append([]byte{17, 0, 0, 8, 0, 0, 0, 1}, ports(1, 2)...)}.bytes(),
			want: Packet{Proto: 17, Src: at(a6, 0), Dst: at(b6, 0), Length: 52}},
		{name: "no next header", in: rawPacket{src: a6, dst: b6, proto: 59}.bytes(),
			want: Packet{Proto: 59, Src: at(a6, 0), Dst: at(b6, 0), Length: 40}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got Packet
			if ok := got.decode(test.in); ok == test.bad {
				t.Fatalf("decode says %v", ok)
			}
			if diff := cmp.Diff(test.want, got, cmp.Comparer(func(x, y netip.AddrPort) bool { return x == y })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.2")
	a6, b6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	f.Add(rawPacket{src: a, dst: b, proto: 6, payload: segment(80, 2)}.bytes())
	f.Add(rawPacket{src: a, dst: b, proto: 1, fragment: 0x2000, options: make([]byte, 40), payload: []byte{8, 0}}.bytes())
	f.Add(rawPacket{src: a6, dst: b6, proto: 0, payload: []byte{43, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 51, 0}}.bytes())
	f.Add(rawPacket{src: a6, dst: b6, proto: 44, payload: []byte{51, 0, 0, 0, 0, 0, 0, 0, 17, 255}}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		ok := p.decode(b)
		if !ok && p != (Packet{}) {
			t.Fatalf("not a packet, but %+v", p)
		}
		if ok && (!p.Src.IsValid() || !p.Dst.IsValid() || p.Src.Addr().Is4() != p.Dst.Addr().Is4()) {
			t.Fatalf("addresses %v and %v", p.Src, p.Dst)
		}
		if ok && p.ICMPType != 0 && p.Dst.Port() != 0 {
			t.Fatalf("both ports and an ICMP type: %+v", p)
		}
	})
}

// FuzzParseLog: a packet's bytes are the sandbox's, so whatever surrounds them
// in the kernel's message, reading it must not fail in any worse way than by an
// error.
func FuzzParseLog(f *testing.F) {
	f.Add([]byte{})
	payload := rawPacket{src: ownAddr4(), dst: netip.MustParseAddr("192.0.2.1"), proto: 17, payload: ports(1, 2)}.bytes()
	f.Add(logMessage("udp", payload))
	f.Add(logMessage("spoof", payload[:3]))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = parseLog(b, func(l logged) {
			if l.class >= classes || l.packet.Count != 1 || l.packet.Verdict == "" {
				t.Fatalf("logged %+v", l)
			}
		})
	})
}

// logMessage is a message of the kernel's log.
func logMessage(prefix string, payload []byte) []byte {
	attribute := func(b []byte, kind uint16, data []byte) []byte {
		b = binary.NativeEndian.AppendUint16(b, uint16(4+len(data)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		return pad(append(b, data...))
	}
	body := attribute(nfgenmsg(unix.AF_INET, 1), nfulaPrefix, []byte(prefix+"\x00"))
	body = attribute(body, nfulaHardwareAddress, []byte{0, 6, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0})
	body = attribute(body, nfulaPayload, payload)
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	b = binary.NativeEndian.AppendUint16(b, netfilterType(unix.NFNL_SUBSYS_ULOG, nfulMessagePacket))
	return append(append(b, make([]byte, 10)...), body...)
}

func TestParseLog(t *testing.T) {
	payload := rawPacket{src: ownAddr4(), dst: netip.MustParseAddr("192.0.2.1"), proto: 17, payload: ports(1, 2)}.bytes()
	var got []logged
	b := append(logMessage("spoof", payload), logMessage("udp", payload)...)
	b = append(b, logMessage("somebody else's", payload)...)
	if err := parseLog(b, func(l logged) { got = append(got, l) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].class != classSpoof || got[0].packet.Verdict != VerdictSpoof ||
		got[1].class != classUDP || got[1].packet.Verdict != VerdictDeny ||
		got[0].packet.MAC != "02:00:00:00:00:01" || got[1].packet.Dst.String() != "192.0.2.1:2" {
		t.Errorf("got %+v", got)
	}
}

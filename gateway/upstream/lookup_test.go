package upstream

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// record is one line of an answer: an alias or an address.
type record struct {
	owner string
	value string // an address, or the name that owner is an alias of
}

// server is a DNS server on loopback that answers what its zone says.
type server struct {
	addr  string
	zone  func(name string, qtype uint16) (rcode byte, answer []record)
	mu    sync.Mutex
	asked []string
}

// newServer listens on UDP and TCP at the same port. With truncate its answers
// over UDP say that they did not fit.
func newServer(t *testing.T, truncate bool, zone func(string, uint16) (byte, []record)) *server {
	t.Helper()
	ln, pc := samePort(t)
	s := &server{zone: zone, addr: ln.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); pc.Close(); wg.Wait() })
	wg.Go(func() {
		b := make([]byte, 2048)
		for {
			n, peer, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if out := s.answer(b[:n], truncate); out != nil {
				pc.WriteTo(out, peer)
			}
		}
	})
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(5 * time.Second))
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err == nil {
				b := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(c, b); err == nil {
					out := s.answer(b, false)
					c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
				}
			}
			c.Close()
		}
	})
	return s
}

// samePort listens on TCP and UDP at one port of loopback.
func samePort(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	var failed error
	for range 50 { // whoever else uses UDP may have the port that is free on TCP
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		pc, err := net.ListenPacket("udp", ln.Addr().String())
		if err == nil {
			return ln, pc
		}
		failed = errors.Join(failed, err, ln.Close())
	}
	t.Fatal(failed)
	return nil, nil
}

// questions returns the names that were asked for so far.
func (s *server) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// answer builds the response to a question; a nil answer of rcode 255 is none.
func (s *server) answer(q []byte, truncate bool) []byte {
	var labels []string
	at := 12
	for q[at] != 0 {
		labels = append(labels, string(q[at+1:at+1+int(q[at])]))
		at += 1 + int(q[at])
	}
	name, qtype := strings.ToLower(strings.Join(labels, ".")), binary.BigEndian.Uint16(q[at+1:])
	s.mu.Lock()
	s.asked = append(s.asked, name)
	s.mu.Unlock()
	rcode, records := s.zone(name, qtype)
	if rcode == 255 {
		return nil
	}
	out := append([]byte{q[0], q[1], 0x81, 0x80 | rcode, 0, 1, 0, byte(len(records)), 0, 0, 0, 0}, q[12:at+5]...)
	if truncate {
		out[2] |= 2
		out[7] = 0
		return out
	}
	for _, r := range records {
		out = appendName(out, r.owner)
		a, err := netip.ParseAddr(r.value)
		kind, data := uint16(5), appendName(nil, r.value)
		if err == nil {
			kind, data = map[bool]uint16{true: 1, false: 28}[a.Is4()], a.AsSlice()
		}
		out = binary.BigEndian.AppendUint16(out, kind)
		out = append(out, 0, 1, 0, 0, 0, 60)
		out = binary.BigEndian.AppendUint16(out, uint16(len(data)))
		out = append(out, data...)
	}
	return out
}

func appendName(b []byte, name string) []byte {
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}

const typeA = 1

// both answers good.test with one address of each family.
func both(_ string, qtype uint16) (byte, []record) {
	if qtype == typeA {
		return 0, []record{{"good.test", "203.0.113.10"}}
	}
	return 0, []record{{"good.test", "2001:db8::10"}}
}

func documentation() []netip.Prefix { return prefixes("203.0.113.0/24", "2001:db8::/32") }

func withResolvers(t *testing.T, servers ...string) *Upstream {
	t.Helper()
	lookup, err := newLookup(servers)
	if err != nil {
		t.Fatal(err)
	}
	return newUpstream(t, Options{Hosts: map[string][]netip.Addr{}, Lookup: lookup})
}

func TestLookupAsksTheConfiguredServers(t *testing.T) {
	for _, truncate := range []bool{false, true} {
		s := newServer(t, truncate, both)
		u := withResolvers(t, s.addr)
		r, err := u.Route(t.Context(), Target{Host: "good.test", Port: 443, Addresses: documentation()}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := texts(r.Addrs)
		slices.Sort(got)
		if diff := cmp.Diff([]string{"2001:db8::10", "203.0.113.10"}, got); diff != "" {
			t.Errorf("truncated %v: %s", truncate, diff)
		}
		for _, q := range s.questions() {
			if q != "good.test" {
				t.Errorf("asked for %q", q)
			}
		}
	}
}

// chain returns a zone in which good.test is an alias at n removes.
func chain(n int) func(string, uint16) (byte, []record) {
	return func(name string, qtype uint16) (byte, []record) {
		if name != "good.test" || qtype != typeA {
			return 0, nil
		}
		var out []record
		owner := "good.test"
		for i := range n {
			next := "edge" + strings.Repeat("x", i) + ".cdn.test"
			out = append(out, record{owner, next})
			owner = next
		}
		return 0, append(out, record{owner, "203.0.113.10"})
	}
}

func TestDNS08Aliases(t *testing.T) {
	for _, n := range []int{1, 3, 12} {
		u := withResolvers(t, newServer(t, false, chain(n)).addr)
		r, err := u.Route(t.Context(), Target{Host: "good.test", Port: 443, Addresses: documentation()}, nil)
		if err != nil || len(r.Addrs) != 1 || r.Host != "good.test" {
			t.Errorf("chain of %d: %+v %v", n, r, err)
		}
	}
}

func TestDNS08AliasLoop(t *testing.T) {
	s := newServer(t, false, func(string, uint16) (byte, []record) {
		return 0, []record{{"good.test", "edge.test"}, {"edge.test", "good.test"}}
	})
	_, err := withResolvers(t, s.addr).Route(t.Context(), Target{Host: "good.test", Port: 443}, nil)
	if class, detail := ErrorClass(err); class != "dns" {
		t.Errorf("%s: %s (%v)", class, detail, err)
	}
	if len(s.questions()) > 8 {
		t.Errorf("%d questions left", len(s.questions()))
	}
}

func TestDNS09AliasToAPrivateAddress(t *testing.T) {
	s := newServer(t, false, func(name string, qtype uint16) (byte, []record) {
		if qtype != typeA {
			return 0, nil
		}
		return 0, []record{{"good.test", "inside.test"}, {"inside.test", "169.254.169.254"}}
	})
	_, err := withResolvers(t, s.addr).Route(t.Context(), Target{Host: "good.test", Port: 443}, nil)
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Reason != "resolves_metadata" {
		t.Error(err)
	}
}

func TestNET03MappedAnswerIsSeen(t *testing.T) {
	s := newServer(t, false, func(_ string, qtype uint16) (byte, []record) {
		if qtype == typeA {
			return 0, []record{{"good.test", "203.0.113.10"}}
		}
		return 0, []record{{"good.test", "::ffff:10.0.0.1"}}
	})
	_, err := withResolvers(t, s.addr).Route(t.Context(), Target{Host: "good.test", Port: 443, Addresses: documentation()}, nil)
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Reason != "resolves_embedded" && refusal.Reason != "address_not_in_rule" {
		t.Errorf("%v", err)
	}
}

func TestLookupGoesToTheNextServer(t *testing.T) {
	broken := newServer(t, false, func(string, uint16) (byte, []record) { return 2, nil }) // SERVFAIL
	good := newServer(t, false, both)
	to := Target{Host: "good.test", Port: 443, Addresses: documentation()}
	if _, err := withResolvers(t, broken.addr, good.addr).Route(t.Context(), to, nil); err != nil {
		t.Error(err)
	}
	missing := newServer(t, false, func(string, uint16) (byte, []record) { return 3, nil }) // NXDOMAIN
	asked := len(good.questions())
	_, err := withResolvers(t, missing.addr, good.addr).Route(t.Context(), to, nil)
	if class, detail := ErrorClass(err); class != "dns" || detail != "no such host" {
		t.Errorf("%s: %s", class, detail)
	}
	if len(good.questions()) != asked {
		t.Error("a name that does not exist was asked for again")
	}
	if strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("the error names the server: %v", err)
	}
}

func TestLookupServerIsSilent(t *testing.T) {
	silent := newServer(t, false, func(string, uint16) (byte, []record) { return 255, nil })
	lookup, err := newLookup([]string{silent.addr})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = lookup(ctx, "good.test")
	if class, detail := ErrorClass(err); class != "dns" && class != "timeout" {
		t.Errorf("%s: %s (%v)", class, detail, err)
	}
}

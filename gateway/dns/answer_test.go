package dns

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

func TestDNS05NoDataInsteadOfNXDOMAIN(t *testing.T) {
	only4 := NewServer(func(context.Context, Question) Answer {
		return Answer{Addrs: []netip.Addr{testLease}}
	}, Options{})
	m := exchange(t, only4, TransportUDP, wire(t, "good.test.", dns.TypeAAAA))
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
		t.Fatalf("AAAA of a name with A alone: %v", m)
	}
	if ttl := soaTTL(t, m); ttl == 0 || ttl > MaxNegativeTTL {
		t.Errorf("negative TTL %d, want 1 to %d", ttl, MaxNegativeTTL)
	}
	m = exchange(t, only4, TransportUDP, wire(t, "good.test.", dns.TypeA))
	if a, ok := m.Answer[0].(*dns.A); !ok || a.A.String() != testLease.String() || len(m.Ns) != 0 {
		t.Errorf("A: %v", m)
	}
}

func TestDNS06RefusalIsTheSameForEveryType(t *testing.T) {
	types := []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeMX, dns.TypeTXT, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeANY, dns.TypePTR, 65280}
	for _, rcode := range []int{dns.RcodeNameError, dns.RcodeRefused} {
		s := NewServer(func(context.Context, Question) Answer {
			// Addresses beside a refusal must not leave, and no TTL is too long.
			return Answer{RCode: rcode, TTL: 86400, Addrs: []netip.Addr{testLease}, PTR: "x.test"}
		}, Options{})
		for _, qtype := range types {
			m := exchange(t, s, TransportUDP, wire(t, "evil.test.", qtype))
			if m.Rcode != rcode || len(m.Answer) != 0 {
				t.Errorf("type %d: %v", qtype, m)
			}
			if rcode == dns.RcodeNameError {
				if ttl := soaTTL(t, m); ttl != MaxNegativeTTL {
					t.Errorf("type %d: negative TTL %d, want %d", qtype, ttl, MaxNegativeTTL)
				}
			}
		}
	}
}

func TestDNS07NoTypeButAddressesHasData(t *testing.T) {
	s := NewServer(leaseHandler, Options{})
	for qtype := range uint16(300) {
		if qtype == dns.TypeA || qtype == dns.TypeAAAA || qtype == dns.TypeAXFR || qtype == dns.TypeIXFR {
			continue
		}
		m := exchange(t, s, TransportUDP, wire(t, "good.test.", qtype, withEDNS(4096)))
		if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
			t.Errorf("type %d: %v", qtype, m)
		}
		soaTTL(t, m)
	}
}

func TestAnswer(t *testing.T) {
	lease := []netip.Addr{testLease}
	tests := []struct {
		name   string
		qtype  uint16
		answer Answer
		rcode  int
		want   []string
	}{
		{"zero value is no data", dns.TypeA, Answer{}, 0, nil},
		{"default TTL", dns.TypeA, Answer{Addrs: lease}, 0, []string{"gOoD.test.\t30\tIN\tA\t198.18.0.9"}},
		{"short TTL", dns.TypeA, Answer{Addrs: lease, TTL: 7}, 0, []string{"gOoD.test.\t7\tIN\tA\t198.18.0.9"}},
		{"long TTL is cut", dns.TypeA, Answer{Addrs: lease, TTL: 3600}, 0, []string{"gOoD.test.\t60\tIN\tA\t198.18.0.9"}},
		{"mapped address is IPv4", dns.TypeA, Answer{Addrs: []netip.Addr{netip.MustParseAddr("::ffff:198.18.0.9")}}, 0, []string{"gOoD.test.\t30\tIN\tA\t198.18.0.9"}},
		{"mapped address is not IPv6", dns.TypeAAAA, Answer{Addrs: []netip.Addr{netip.MustParseAddr("::ffff:198.18.0.9")}}, 0, nil},
		{"IPv6", dns.TypeAAAA, Answer{Addrs: []netip.Addr{testLease, testLease6}}, 0, []string{"gOoD.test.\t30\tIN\tAAAA\tfd73:616c:6c79::9"}},
		{"invalid address", dns.TypeA, Answer{Addrs: []netip.Addr{{}}}, 0, nil},
		{"no data in spite of addresses", dns.TypeA, Answer{Addrs: lease, NoData: true}, 0, nil},
		{"pointer", dns.TypePTR, Answer{PTR: "host.test"}, 0, []string{"gOoD.test.\t30\tIN\tPTR\thost.test."}},
		{"pointer to no name", dns.TypePTR, Answer{PTR: strings.Repeat("x", 64)}, 0, nil},
		{"pointer for another type", dns.TypeA, Answer{PTR: "host.test"}, 0, nil},
		{"SERVFAIL", dns.TypeA, Answer{RCode: dns.RcodeServerFailure, Addrs: lease}, dns.RcodeServerFailure, nil},
		{"code that needs EDNS", dns.TypeA, Answer{RCode: dns.RcodeBadCookie}, dns.RcodeServerFailure, nil},
		{"code that is none", dns.TypeA, Answer{RCode: -1, Addrs: lease}, dns.RcodeServerFailure, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewServer(func(context.Context, Question) Answer { return tt.answer }, Options{})
			m := exchange(t, s, TransportUDP, wire(t, "gOoD.test.", tt.qtype))
			var got []string
			for _, rr := range m.Answer {
				got = append(got, rr.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || m.Rcode != tt.rcode {
				t.Errorf("rcode %d, answers (-want +got):\n%s", m.Rcode, diff)
			}
			if m.IsEdns0() != nil {
				t.Error("OPT record towards a client without EDNS")
			}
		})
	}
}

func TestHeaderAndCaseEchoed(t *testing.T) {
	s := NewServer(leaseHandler, Options{})
	for _, name := range []string{"wWw.GoOd.TeSt.", "UPPER.TEST.", "lower.test.", ".", `odd\.label\000.tEst.`} {
		msg := wire(t, name, dns.TypeA, func(m *dns.Msg) {
			m.CheckingDisabled, m.AuthenticatedData, m.RecursionDesired = true, true, false
		})
		out := s.respond(t.Context(), source{TransportUDP, testPeer, testResolver}, msg, nil)
		if !cmp.Equal(out[headerLen:len(msg)], msg[headerLen:]) {
			t.Errorf("%s: question came back as %x, was %x", name, out[headerLen:len(msg)], msg[headerLen:])
		}
		m := unpack(t, out)
		if m.Id != 0xBEEF || !m.Response || m.RecursionDesired || !m.CheckingDisabled || m.AuthenticatedData || m.Authoritative || !m.RecursionAvailable {
			t.Errorf("%s: header %+v", name, m.MsgHdr)
		}
	}
	if m := exchange(t, s, TransportUDP, wire(t, "good.test.", dns.TypeA)); !m.RecursionDesired {
		t.Error("RD was set in the question but not in the answer")
	}
}

func TestExtendedError(t *testing.T) {
	long := strings.Repeat("é", 400)
	s := NewServer(func(_ context.Context, q Question) Answer {
		text := "host_not_allowed"
		if q.Host == "long.test" {
			text = long
		}
		return Answer{RCode: dns.RcodeRefused, EDECode: dns.ExtendedErrorCodeProhibited, EDEText: text}
	}, Options{})
	find := func(m *dns.Msg) *dns.EDNS0_EDE {
		for _, o := range m.IsEdns0().Option {
			if ede, ok := o.(*dns.EDNS0_EDE); ok {
				return ede
			}
		}
		return nil
	}
	if m := exchange(t, s, TransportUDP, wire(t, "evil.test.", dns.TypeA)); m.IsEdns0() != nil {
		t.Error("extended error towards a client without EDNS")
	}
	ede := find(exchange(t, s, TransportUDP, wire(t, "evil.test.", dns.TypeA, withEDNS(1232))))
	if ede == nil || ede.InfoCode != dns.ExtendedErrorCodeProhibited || ede.ExtraText != "host_not_allowed" {
		t.Errorf("extended error %v", ede)
	}
	for _, size := range []uint16{0, 512, 1232} {
		ede := find(exchange(t, s, TransportUDP, wire(t, "long.test.", dns.TypeA, withEDNS(size))))
		if ede == nil || ede.ExtraText == "" || !strings.HasPrefix(long, ede.ExtraText) || len(ede.ExtraText) > maxEDEText {
			t.Errorf("size %d: extended error %v", size, ede)
		}
	}
}

func TestDNS13TruncationAndEDNSSize(t *testing.T) {
	addrs := make([]netip.Addr, 60)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{198, 18, 1, byte(i)})
	}
	s := NewServer(func(context.Context, Question) Answer { return Answer{Addrs: addrs} }, Options{})
	tests := []struct {
		name      string
		transport string
		edits     []func(*dns.Msg)
		truncated bool
		limit     int
	}{
		{"no EDNS", TransportUDP, nil, true, 512},
		{"512", TransportUDP, []func(*dns.Msg){withEDNS(512)}, true, 512},
		{"less than the least", TransportUDP, []func(*dns.Msg){withEDNS(1)}, true, 512},
		{"1232", TransportUDP, []func(*dns.Msg){withEDNS(1232)}, false, 1232},
		{"65535", TransportUDP, []func(*dns.Msg){withEDNS(65535)}, false, 1232},
		{"TCP", TransportTCP, nil, false, 65535},
		{"TCP with a small EDNS size", TransportTCP, []func(*dns.Msg){withEDNS(512)}, false, 65535},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			msg := wire(t, "good.test.", dns.TypeA, tt.edits...)
			out := s.respond(t.Context(), source{tt.transport, testPeer, testResolver}, msg, nil)
			m := unpack(t, out)
			if m.Truncated != tt.truncated || len(out) > tt.limit {
				t.Errorf("TC %v, %d bytes; want %v, at most %d", m.Truncated, len(out), tt.truncated, tt.limit)
			}
			if want := map[bool]int{false: 60, true: 0}[tt.truncated]; len(m.Answer) != want {
				t.Errorf("%d answers, want %d", len(m.Answer), want)
			}
		})
	}
	t.Run("more than TCP can carry", func(t *testing.T) {
		many := make([]netip.Addr, 5000)
		for i := range many {
			many[i] = netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
		}
		s := NewServer(func(context.Context, Question) Answer { return Answer{Addrs: many} }, Options{})
		out := s.respond(t.Context(), source{TransportTCP, testPeer, testResolver}, wire(t, "good.test.", dns.TypeA, withEDNS(512)), nil)
		if m := unpack(t, out); len(out) > 65535 || len(m.Answer) < 4000 || m.IsEdns0() == nil {
			t.Errorf("%d bytes, %d answers", len(out), len(m.Answer))
		}
	})
}

func TestDNS16OptionsAreNotEchoed(t *testing.T) {
	var seen Question
	s := NewServer(func(_ context.Context, q Question) Answer {
		seen = q
		return Answer{Addrs: []netip.Addr{testLease}}
	}, Options{})
	carrier := strings.Repeat("ABC", 1300)
	msg := wire(t, "good.test.", dns.TypeA, func(m *dns.Msg) {
		m.SetEdns0(4096, true)
		m.IsEdns0().Option = []dns.EDNS0{
			&dns.EDNS0_LOCAL{Code: 65001, Data: []byte(carrier)},
			&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: []byte{10, 9, 8, 7}},
			&dns.EDNS0_NSID{Code: dns.EDNS0NSID},
			&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1223344556"},
			&dns.EDNS0_PADDING{Padding: make([]byte, 64)},
		}
	})
	m := exchange(t, s, TransportUDP, msg)
	opt := m.IsEdns0()
	if opt == nil || len(opt.Option) != 0 || opt.Do() || opt.Version() != 0 || opt.UDPSize() != MaxUDPBytes {
		t.Errorf("OPT of the answer: %v", opt)
	}
	if len(m.Answer) != 1 {
		t.Errorf("answer: %v", m)
	}
	want := Question{Name: "good.test", Host: "good.test", Type: dns.TypeA, TypeName: "A", Transport: TransportUDP, Peer: testPeer, Resolver: testResolver}
	if seen != want {
		t.Errorf("question %+v, want %+v: nothing of an option", seen, want)
	}
}

func TestDNS16Version(t *testing.T) {
	var seen []Malformed
	s := NewServer(leaseHandler, Options{Malformed: func(_ context.Context, m Malformed) { seen = append(seen, m) }})
	m := exchange(t, s, TransportUDP, wire(t, "good.test.", dns.TypeA, func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().SetVersion(1)
	}))
	if m.Rcode != dns.RcodeBadVers || m.IsEdns0().Version() != 0 || len(m.Answer) != 0 {
		t.Errorf("EDNS version 1: %v", m)
	}
	if len(seen) != 1 || !errors.Is(seen[0].Err, ErrVersion) || seen[0].Name != "good.test" || seen[0].RCode != dns.RcodeBadVers {
		t.Errorf("reported %+v", seen)
	}
}

func TestHandlerPanicIsAFailureOfItsQuestionAlone(t *testing.T) {
	s := NewServer(func(context.Context, Question) Answer { panic("bug") }, Options{})
	if m := exchange(t, s, TransportUDP, wire(t, "good.test.", dns.TypeA)); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("answer: %v", m)
	}
}

func TestNoHandlerRefuses(t *testing.T) {
	if m := exchange(t, NewServer(nil, Options{}), TransportUDP, wire(t, "good.test.", dns.TypeA)); m.Rcode != dns.RcodeRefused {
		t.Errorf("answer: %v", m)
	}
}

func TestDrop(t *testing.T) {
	s := NewServer(func(context.Context, Question) Answer { return Answer{Drop: true} }, Options{})
	if m := exchange(t, s, TransportUDP, wire(t, "good.test.", dns.TypeA)); m != nil {
		t.Errorf("answer: %v", m)
	}
}

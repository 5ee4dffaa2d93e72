package dns

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// TestRespondAllocations is the ceiling of the hot path: the question's name,
// and nothing more.
func TestRespondAllocations(t *testing.T) {
	addrs := []netip.Addr{testLease}
	tests := []struct {
		name   string
		msg    []byte
		answer Answer
		most   float64
	}{
		{"address", wire(t, "www.good.test.", dns.TypeA), Answer{Addrs: addrs}, 1},
		{"address with EDNS", wire(t, "www.good.test.", dns.TypeA, withEDNS(1232)), Answer{Addrs: addrs}, 1},
		{"denied and explained", wire(t, "evil.test.", dns.TypeA, withEDNS(1232)), Answer{RCode: dns.RcodeNameError, EDECode: 15, EDEText: "host_not_allowed"}, 1},
		{"no data", wire(t, "www.good.test.", dns.TypeHTTPS), Answer{}, 1},
		{"mixed case", wire(t, "wWw.gOOd.test.", dns.TypeA), Answer{Addrs: addrs}, 2},
		{"malformed", make([]byte, 64), Answer{}, 0},
	}
	for _, tt := range tests {
		s := NewServer(func(context.Context, Question) Answer { return tt.answer }, Options{})
		out := make([]byte, 0, MaxUDPBytes)
		ctx := t.Context()
		respond := func() { out = s.respond(ctx, source{TransportUDP, testPeer, testResolver}, tt.msg, out) }
		// All of the process is counted, also the end of what other tests served.
		got := min(testing.AllocsPerRun(200, respond), testing.AllocsPerRun(200, respond), testing.AllocsPerRun(200, respond))
		if got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.most)
		}
	}
}

func BenchmarkRespond(b *testing.B) {
	addrs := []netip.Addr{testLease}
	s := NewServer(func(context.Context, Question) Answer { return Answer{Addrs: addrs} }, Options{})
	msg := wire(b, "www.good.test.", dns.TypeA, withEDNS(1232))
	out := make([]byte, 0, MaxUDPBytes)
	b.ReportAllocs()
	for b.Loop() {
		out = s.respond(b.Context(), source{TransportUDP, testPeer, testResolver}, msg, out)
	}
}

// BenchmarkUDP asks over a loopback socket, from 32 sockets with one question
// each on its way. Client and server share the machine.
func BenchmarkUDP(b *testing.B) {
	addrs := []netip.Addr{testLease}
	s := NewServer(func(context.Context, Question) Answer { return Answer{Addrs: addrs} }, Options{})
	server := serveUDP(b, s)
	msg := wire(b, "www.good.test.", dns.TypeA)
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("udp", server.String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		in := make([]byte, 512)
		for pb.Next() {
			if _, err := conn.Write(msg); err != nil {
				b.Error(err)
				return
			}
			if _, err := conn.Read(in); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "q/s")
}

package dns

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/miekg/dns"
)

// crowd is a PacketConn with datagrams that are there from the beginning. Each
// is asked by a peer of its own port.
type crowd struct {
	*fakeSocket
	waiting [][]byte
	mu      sync.Mutex
	writes  []int // how many answers each call of WriteBatch sent
}

func (c *crowd) ReadBatch(take func() []Datagram, leave func()) (int, error) {
	if len(c.waiting) == 0 {
		return c.fakeSocket.ReadBatch(take, leave)
	}
	ds := take()
	n := min(len(ds), len(c.waiting))
	for i := range n {
		port := uint16(10000 + len(c.waiting) - i)
		ds[i].B = ds[i].B[:copy(ds[i].B, c.waiting[i])]
		ds[i].Peer, ds[i].Resolver = netip.AddrPortFrom(testPeer.Addr(), port), testResolver
	}
	c.waiting = c.waiting[n:]
	return n, nil
}

func (c *crowd) WriteBatch(ds []Datagram) error {
	c.mu.Lock()
	c.writes = append(c.writes, len(ds))
	c.mu.Unlock()
	return c.fakeSocket.WriteBatch(ds)
}

// quickly decides what is asked about names in good.test.
func quickly(asked []Asked) {
	for i := range asked {
		if strings.HasSuffix(asked[i].Host, "good.test") {
			asked[i].Answer, asked[i].Decided = Answer{Addrs: []netip.Addr{testLease}}, true
		}
	}
}

// TestQuestionsThatCameTogether are decided by one call and answered by one
// call; each answer goes to who asked. What is no question, or is dropped, does
// not stand in their way.
func TestQuestionsThatCameTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &crowd{fakeSocket: newFakeSocket()}
		const n = fewDatagrams + 2*manyDatagrams
		for i := range n {
			b := wire(t, fmt.Sprintf("n%d.good.test.", i), dns.TypeA)
			switch i {
			case n - 2:
				b = b[:11] // no message
			case n - 1:
				b = append(b, 0) // malformed
			}
			conn.waiting = append(conn.waiting, b)
		}
		var calls []int
		s := NewServer(leaseHandler, Options{Quick: func(_ context.Context, asked []Asked) {
			quickly(asked)
			asked[0].Answer.Drop = true
			calls = append(calls, len(asked))
		}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { synctest.Wait(); cancel() }()
		if err := s.ServePackets(ctx, conn); err != nil {
			t.Error(err)
		}
		if got, want := fmt.Sprint(calls, conn.writes), fmt.Sprint([]int{2, 32, 30}, []int{1, 31, 30}); got != want {
			t.Errorf("decided and answered %s at a time, want %s", got, want)
		}
		answered := 0
		for len(conn.out) > 0 {
			out := <-conn.out
			m := unpack(t, out.b)
			want := fmt.Sprintf("n%d.good.test.", n+10000-int(out.peer.Port()))
			if m.Rcode == dns.RcodeSuccess && (m.Question[0].Name != want || len(m.Answer) != 1) {
				t.Errorf("port %d was answered %v", out.peer.Port(), m)
			}
			answered++
		}
		if want := n - 3 - 1; answered != want {
			t.Errorf("%d answers, want %d", answered, want)
		}
	})
}

// TestQuestionThatWaitsHoldsUpNoOther: what Quick leaves undecided has its own
// goroutine, and what comes after it is answered meanwhile.
func TestQuestionThatWaitsHoldsUpNoOther(t *testing.T) {
	conn := newFakeSocket()
	release := make(chan struct{})
	s := NewServer(func(ctx context.Context, q Question) Answer {
		<-release
		return leaseHandler(ctx, q)
	}, Options{Workers: 4, Quick: func(_ context.Context, asked []Asked) { quickly(asked) }})
	stopAfter(t, func(ctx context.Context) error { return s.ServePackets(ctx, conn) })
	for range 3 {
		conn.in <- packet{wire(t, "slow.test.", dns.TypeA), testPeer}
	}
	for range 100 {
		conn.in <- packet{wire(t, "good.test.", dns.TypeA), testPeer}
		if m := unpack(t, (<-conn.out).b); m.Question[0].Name != "good.test." || len(m.Answer) != 1 {
			t.Fatalf("answered %v", m)
		}
	}
	close(release)
	for range 3 {
		if m := unpack(t, (<-conn.out).b); m.Question[0].Name != "slow.test." {
			t.Errorf("answered %v", m)
		}
	}
}

// TestQuickThatPanics: the questions that came with the one that is the cause
// are decided all the same.
func TestQuickThatPanics(t *testing.T) {
	conn := &crowd{fakeSocket: newFakeSocket()}
	for _, name := range []string{"good.test.", "bad.test.", "good.test."} {
		conn.waiting = append(conn.waiting, wire(t, name, dns.TypeA))
	}
	var panics atomic.Int32
	s := NewServer(func(ctx context.Context, q Question) Answer {
		if q.Host == "bad.test" {
			panics.Add(1)
			panic("bad")
		}
		return leaseHandler(ctx, q)
	}, Options{Quick: func(_ context.Context, asked []Asked) {
		for i := range asked {
			if asked[i].Host == "bad.test" {
				panics.Add(1)
				panic("bad")
			}
			asked[i].Answer, asked[i].Decided = Answer{RCode: dns.RcodeNameError}, true // is not sent
		}
	}})
	stopAfter(t, func(ctx context.Context) error { return s.ServePackets(ctx, conn) })
	codes := map[string]int{}
	for range 3 {
		m := unpack(t, (<-conn.out).b)
		codes[m.Question[0].Name+dns.RcodeToString[m.Rcode]]++
	}
	if got := fmt.Sprint(codes); got != "map[bad.test.SERVFAIL:1 good.test.NOERROR:1 good.test.NXDOMAIN:1]" || panics.Load() != 2 {
		t.Errorf("answered %v after %d panics", codes, panics.Load())
	}
}

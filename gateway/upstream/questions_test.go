package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// heard is a question that a nameServer got.
type heard struct {
	from  netip.AddrPort
	bytes []byte
}

// nameServer is a server on loopback whose answers the test sends.
func nameServer(t *testing.T) (*net.UDPConn, netip.AddrPort) {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func hear(t *testing.T, c *net.UDPConn) heard {
	t.Helper()
	b := make([]byte, 512)
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatal(err)
	}
	return heard{from, b[:n]}
}

// portsOf returns the source ports of a lookup's questions, in order.
func portsOf(t *testing.T, answer func(name string, qtype uint16, nth int) (byte, []record)) []uint16 {
	t.Helper()
	c, to := nameServer(t)
	s := &server{}
	var ports []uint16
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			ports = append(ports, from.Port())
			s.zone = func(name string, qtype uint16) (byte, []record) { return answer(name, qtype, len(ports)) }
			_, _ = c.WriteToUDPAddrPort(s.answer(b[:n], false), from)
		}
	})
	_, err := (&questions{server: to.String()}).lookup(t.Context(), "good.test.")
	c.Close()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// TestQuestionsOfALookupShareAPort, and those of another have another.
func TestQuestionsOfALookupShareAPort(t *testing.T) {
	seen := map[uint16]bool{}
	for range 4 {
		ports := portsOf(t, func(name string, qtype uint16, _ int) (byte, []record) { return both(name, qtype) })
		if len(ports) != 2 || ports[0] != ports[1] {
			t.Fatalf("the questions came from ports %d", ports)
		}
		seen[ports[0]] = true
	}
	if len(seen) < 2 {
		t.Errorf("every lookup came from port %v", seen)
	}
}

// TestRefusedAnswerIsAskedAgainFromThePort: a server that answered is there.
func TestRefusedAnswerIsAskedAgainFromThePort(t *testing.T) {
	ports := portsOf(t, func(name string, qtype uint16, nth int) (byte, []record) {
		if nth <= 2 {
			return 2, nil // SERVFAIL
		}
		return both(name, qtype)
	})
	slices.Sort(ports)
	if len(slices.Compact(ports)) != 1 {
		t.Errorf("the questions came from ports %d", ports)
	}
}

// ask2 asks for A and AAAA of good.test over q and returns both.
func ask2(t *testing.T, q *questions, until time.Time) (a, aaaa net.Conn) {
	t.Helper()
	var out [2]net.Conn
	for i, qtype := range []byte{1, 28} {
		c, err := q.dial(t.Context(), "udp", "")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(until)
		m := appendName([]byte{0x12, 0x30 + byte(i), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, "good.test")
		if _, err := c.Write(append(m, 0, qtype, 0, 1)); err != nil {
			t.Fatal(err)
		}
		out[i] = c
	}
	return out[0], out[1]
}

func read(t *testing.T, c net.Conn) string {
	t.Helper()
	b := make([]byte, maxAnswer)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// TestAnswersFindTheirQuestions in whatever order they come, and what answers
// neither, which is what somebody sends who guesses, takes no answer's place.
func TestAnswersFindTheirQuestions(t *testing.T) {
	c, to := nameServer(t)
	q := &questions{server: to.String()}
	defer q.end()
	a, aaaa := ask2(t, q, time.Now().Add(10*time.Second))
	first, second := hear(t, c), hear(t, c)
	send := func(b []byte, change func([]byte)) {
		b = slices.Clone(b)
		change(b)
		if _, err := c.WriteToUDPAddrPort(b, first.from); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		send(first.bytes, func(b []byte) { b[0]++ })          // another ID
		send(first.bytes, func(b []byte) { b[13] = 'f' })     // another name
		send(first.bytes, func(b []byte) { b[len(b)-3] = 5 }) // another type
		send(first.bytes[:8], func([]byte) {})
	}
	send(second.bytes, func(b []byte) { b[2] = 0x81; b[13] = 'G' }) // a name in any case
	send(first.bytes, func(b []byte) { b[2] = 0x82 })
	if got := read(t, a); got[1] != 0x30 || got[2] != 0x82 {
		t.Errorf("A was answered with %q", got)
	}
	if got := read(t, aaaa); got[1] != 0x31 || got[2] != 0x81 {
		t.Errorf("AAAA was answered with %q", got)
	}
}

// TestSilentServerIsAskedAgainFromAnotherPort: the way from this one may be
// what is broken.
func TestSilentServerIsAskedAgainFromAnotherPort(t *testing.T) {
	c, to := nameServer(t)
	q := &questions{server: to.String()}
	defer q.end()
	a, aaaa := ask2(t, q, time.Now().Add(50*time.Millisecond))
	before := hear(t, c).from
	hear(t, c)
	for _, c := range []net.Conn{a, aaaa} {
		var failed net.Error
		if _, err := c.Read(make([]byte, 512)); !errors.As(err, &failed) || !failed.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("no answer: %v", err)
		}
		c.Close()
	}
	if err := q.sockets[0].SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket that nothing came from is open: %v", err)
	}
	ask2(t, q, time.Now().Add(time.Minute))
	if after := hear(t, c).from; after == before {
		t.Errorf("asked again from %v", after)
	}
}

// TestNobodyListens: all questions of a socket learn at once what the system
// tells one.
func TestNobodyListens(t *testing.T) {
	c, to := nameServer(t)
	c.Close()
	start := time.Now()
	_, err := (&questions{server: to.String()}).lookup(t.Context(), "good.test.")
	var d *net.DNSError
	if !errors.As(err, &d) || d.IsTimeout || !d.IsTemporary {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 4*time.Second { // an attempt is given five
		t.Errorf("it took %v", took)
	}
}

// TestQuestionsEndWithTheLookup: one that is given up leaves no socket and no
// reader, and asks nothing more.
func TestQuestionsEndWithTheLookup(t *testing.T) {
	c, to := nameServer(t)
	q := &questions{server: to.String()}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := q.lookup(ctx, "good.test."); failed <- err }()
	hear(t, c)
	hear(t, c)
	cancel()
	if err := <-failed; err == nil {
		t.Error("a lookup that was given up came to something")
	}
	if err := q.sockets[0].SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is open: %v", err)
	}
	if _, err := q.dial(t.Context(), "udp", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("another question: %v", err)
	}
}

func BenchmarkLookup(b *testing.B) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	go func() {
		s, q := &server{zone: both}, make([]byte, 512)
		for {
			n, from, err := c.ReadFromUDPAddrPort(q)
			if err != nil {
				return
			}
			s.asked = nil
			_, _ = c.WriteToUDPAddrPort(s.answer(q[:n], false), from)
		}
	}()
	lookup := ask(c.LocalAddr().String())
	b.ReportAllocs()
	for b.Loop() {
		addrs, err := lookup(b.Context(), "good.test")
		if diff := cmp.Diff(2, len(addrs)); diff != "" || err != nil {
			b.Fatal(diff, err)
		}
	}
}

// TestQuestionsSentBackTakeNoAnswersPlace: the resolver passes over what is no
// answer, and reads on; as much as comes of it before it does.
func TestQuestionsSentBackTakeNoAnswersPlace(t *testing.T) {
	c, to := nameServer(t)
	q := &questions{server: to.String()}
	defer q.end()
	a, aaaa := ask2(t, q, time.Now().Add(10*time.Second))
	first, second := hear(t, c), hear(t, c)
	send := func(b []byte) {
		if _, err := c.WriteToUDPAddrPort(b, first.from); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		send(first.bytes)
	}
	for _, b := range [][]byte{first.bytes, second.bytes} {
		b[2] |= 0x80 // an answer
		send(b)
	}
	read(t, aaaa) // which came last
	if got := read(t, a); got[2]&0x80 == 0 {
		t.Errorf("a question took the answer's place: %q", got)
	}
}

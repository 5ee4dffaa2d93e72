package dns

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testPeer     = netip.MustParseAddrPort("192.0.2.7:40000")
	testResolver = netip.MustParseAddrPort("198.51.100.53:53")
	testLease    = netip.MustParseAddr("198.18.0.9")
	testLease6   = netip.MustParseAddr("fd73:616c:6c79::9")
)

// leaseHandler answers every good host with an address of either family.
func leaseHandler(_ context.Context, q Question) Answer {
	if q.Bad != nil {
		return Answer{RCode: dns.RcodeNameError, EDECode: dns.ExtendedErrorCodeFiltered, EDEText: "bad_hostname"}
	}
	return Answer{Addrs: []netip.Addr{testLease, testLease6}}
}

// wire returns a question in wire form, changed by each edit.
func wire(t testing.TB, name string, qtype uint16, edits ...func(*dns.Msg)) []byte {
	t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	m.Id = 0xBEEF
	for _, edit := range edits {
		edit(m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatalf("pack question %s: %v", name, err)
	}
	return b
}

func withEDNS(size uint16) func(*dns.Msg) {
	return func(m *dns.Msg) { m.SetEdns0(size, false) }
}

// exchange sends a message through a Server in memory; nil is no answer.
func exchange(t testing.TB, s *Server, transport string, msg []byte) *dns.Msg {
	t.Helper()
	out := s.respond(t.Context(), source{transport, testPeer, testResolver}, msg, nil)
	if out == nil {
		return nil
	}
	return unpack(t, out)
}

func unpack(t testing.TB, out []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(out); err != nil {
		t.Fatalf("answer %x: %v", out, err)
	}
	return m
}

// soaTTL returns the TTL by which a negative answer may be cached.
func soaTTL(t testing.TB, m *dns.Msg) uint32 {
	t.Helper()
	if len(m.Ns) != 1 {
		t.Fatalf("authority section has %d records, want one SOA:\n%v", len(m.Ns), m)
	}
	soa, ok := m.Ns[0].(*dns.SOA)
	if !ok {
		t.Fatalf("authority record is %T, want SOA", m.Ns[0])
	}
	if !dns.IsSubDomain(soa.Hdr.Name, m.Question[0].Name) {
		t.Fatalf("SOA of %q cannot speak for %q", soa.Hdr.Name, m.Question[0].Name)
	}
	return min(soa.Minttl, soa.Hdr.Ttl)
}

// memoryStore is a Store that can be made to fail.
type memoryStore struct {
	mu      sync.Mutex
	buckets map[string]map[string]string
	fail    func(key string) (keep bool, err error) // of Put and PutAll
	puts    int                                     // calls of both
}

func newMemoryStore() *memoryStore {
	return &memoryStore{buckets: map[string]map[string]string{}}
}

func (m *memoryStore) Put(bucket string, key, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	keep, err := true, error(nil)
	if m.fail != nil {
		keep, err = m.fail(string(key))
	}
	if keep {
		if m.buckets[bucket] == nil {
			m.buckets[bucket] = map[string]string{}
		}
		m.buckets[bucket][string(key)] = string(value)
	}
	return err
}

func (m *memoryStore) PutAll(bucket string, pairs map[string][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts++
	keep, err := true, error(nil)
	if m.fail != nil {
		keep, err = m.fail("")
	}
	if m.buckets[bucket] == nil {
		m.buckets[bucket] = map[string]string{}
	}
	for k, v := range pairs {
		if keep {
			m.buckets[bucket][k] = string(v)
		}
	}
	return err
}

func (m *memoryStore) ForEach(bucket string, fn func(k, v []byte) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, v := range m.buckets[bucket] {
		if err := fn([]byte(k), []byte(v)); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryStore) Delete(bucket string, key []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.buckets[bucket], string(key))
	return nil
}

// udpSocket is a PacketConn over a plain UDP socket.
type udpSocket struct{ *net.UDPConn }

func (u udpSocket) ReadBatch(take func() []Datagram, _ func()) (int, error) {
	d := &take()[0]
	n, peer, err := u.ReadFromUDPAddrPort(d.B)
	d.B, d.Peer, d.Resolver = d.B[:n], peer, u.LocalAddr().(*net.UDPAddr).AddrPort()
	return 1, err
}

func (u udpSocket) WriteBatch(ds []Datagram) error {
	var errs []error
	for _, d := range ds {
		_, err := u.WriteToUDPAddrPort(d.B, d.Peer)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// serveUDP serves s on a loopback socket until the test ends.
func serveUDP(t testing.TB, s *Server) net.Addr {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, func(ctx context.Context) error { return s.ServePackets(ctx, udpSocket{conn}) })
	return conn.LocalAddr()
}

// serveTCP serves s on a loopback listener until the test ends.
func serveTCP(t testing.TB, s *Server) net.Addr {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, func(ctx context.Context) error { return s.ServeTCP(ctx, ln) })
	return ln.Addr()
}

func stopAfter(t testing.TB, serve func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("serve ended with %v, want nil after its context", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("serve did not end with its context")
		}
	})
}

// packet and fakeSocket are a PacketConn in memory.
type packet struct {
	b    []byte
	peer netip.AddrPort
}

type fakeSocket struct {
	in     chan packet
	out    chan packet
	failed chan error // errors that ReadFrom returns
	done   chan struct{}
	once   sync.Once
	waits  func() // called before it waits for the first packet
}

func newFakeSocket() *fakeSocket {
	return &fakeSocket{in: make(chan packet), out: make(chan packet, 1024), failed: make(chan error), done: make(chan struct{})}
}

func (f *fakeSocket) ReadBatch(take func() []Datagram, leave func()) (int, error) {
	take()
	leave() // nothing is there at first
	if f.waits != nil {
		f.waits()
	}
	var first packet
	select {
	case first = <-f.in:
	case err := <-f.failed:
		return 0, err
	case <-f.done:
		return 0, net.ErrClosed
	}
	ds := take()
	for n := range ds {
		if n > 0 {
			select {
			case first = <-f.in:
			default:
				return n, nil
			}
		}
		ds[n].B, ds[n].Peer, ds[n].Resolver = ds[n].B[:copy(ds[n].B, first.b)], first.peer, testResolver
	}
	return len(ds), nil
}

func (f *fakeSocket) WriteBatch(ds []Datagram) error {
	for _, d := range ds {
		if d.Resolver != testResolver {
			return errors.New("answer does not come from the resolver that was asked")
		}
		select {
		case f.out <- packet{bytes.Clone(d.B), d.Peer}:
		case <-f.done:
			return net.ErrClosed
		}
	}
	return nil
}

func (f *fakeSocket) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// readFramed reads one answer of a TCP connection.
func readFramed(t testing.TB, r io.Reader) *dns.Msg {
	t.Helper()
	b, err := readFrame(r)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	return unpack(t, b)
}

func readFrame(r io.Reader) ([]byte, error) {
	var prefix [2]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	b := make([]byte, int(prefix[0])<<8|int(prefix[1]))
	_, err := io.ReadFull(r, b)
	return b, err
}

func framed(msgs ...[]byte) []byte {
	var b []byte
	for _, m := range msgs {
		b = append(append(b, byte(len(m)>>8), byte(len(m))), m...)
	}
	return b
}

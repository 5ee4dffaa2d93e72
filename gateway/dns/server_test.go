package dns

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// TestDNS03AnyResolverIsThisOne asks over real sockets, by a real client.
func TestDNS03AnyResolverIsThisOne(t *testing.T) {
	var mu sync.Mutex
	var resolvers []netip.AddrPort
	s := NewServer(func(ctx context.Context, q Question) Answer {
		mu.Lock()
		defer mu.Unlock()
		resolvers = append(resolvers, q.Resolver)
		return leaseHandler(ctx, q)
	}, Options{})
	for network, addr := range map[string]net.Addr{"udp": serveUDP(t, s), "tcp": serveTCP(t, s)} {
		m := new(dns.Msg).SetQuestion("good.test.", dns.TypeA)
		in, _, err := (&dns.Client{Net: network, Timeout: 20 * time.Second}).Exchange(m, addr.String())
		if err != nil || len(in.Answer) != 1 {
			t.Errorf("%s: %v, %v", network, in, err)
		}
		mu.Lock()
		if got := resolvers[len(resolvers)-1]; got.String() != addr.String() {
			t.Errorf("%s: resolver %v, want %v", network, got, addr)
		}
		mu.Unlock()
	}
}

func TestAnswerLeavesFromTheResolverAsked(t *testing.T) {
	conn := newFakeSocket()
	stopAfter(t, func(ctx context.Context) error {
		return NewServer(leaseHandler, Options{}).ServePackets(ctx, conn)
	})
	conn.in <- packet{wire(t, "good.test.", dns.TypeA), testPeer}
	if out := <-conn.out; out.peer != testPeer || len(unpack(t, out.b).Answer) != 1 {
		t.Errorf("answer %x to %v", out.b, out.peer)
	}
}

func TestSourcePortZeroIsNotAnswered(t *testing.T) {
	conn := newFakeSocket()
	seen := make(chan Malformed, 1)
	stopAfter(t, func(ctx context.Context) error {
		return NewServer(leaseHandler, Options{Malformed: func(_ context.Context, m Malformed) { seen <- m }}).ServePackets(ctx, conn)
	})
	conn.in <- packet{wire(t, "good.test.", dns.TypeA), netip.AddrPortFrom(testPeer.Addr(), 0)}
	if m := <-seen; !errors.Is(m.Err, ErrSource) || !m.Dropped {
		t.Errorf("reported %+v", m)
	}
	if len(conn.out) != 0 {
		t.Error("answered")
	}
}

type sandboxKey struct{}

// TestDNS23FloodStaysBounded stalls every decision of one sandbox under a
// flood: the goroutines stay bounded, and another sandbox is answered.
func TestDNS23FloodStaysBounded(t *testing.T) {
	const workers = 16
	var deciding, most atomic.Int32
	release := make(chan struct{})
	s := NewServer(func(ctx context.Context, q Question) Answer {
		if ctx.Value(sandboxKey{}) != "s1" {
			return leaseHandler(ctx, q)
		}
		now := deciding.Add(1)
		defer deciding.Add(-1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		<-release
		return Answer{RCode: dns.RcodeNameError}
	}, Options{Workers: workers})
	flooded, quiet := newFakeSocket(), newFakeSocket()
	stopAfter(t, func(ctx context.Context) error {
		return s.ServePackets(context.WithValue(ctx, sandboxKey{}, "s1"), flooded)
	})
	stopAfter(t, func(ctx context.Context) error {
		return s.ServePackets(context.WithValue(ctx, sandboxKey{}, "s2"), quiet)
	})
	before := runtime.NumGoroutine()
	evil := wire(t, "x.evil.test.", dns.TypeA)
	taken := 0
	for range 10_000 { // as a socket's buffer: what is not read is lost
		select {
		case flooded.in <- packet{evil, testPeer}:
			taken++
		case <-time.After(time.Duration(max(0, workers-taken)) * time.Second):
		}
	}
	if taken != workers {
		t.Errorf("%d questions taken while none is decided, want %d", taken, workers)
	}
	for range 100 {
		quiet.in <- packet{wire(t, "good.test.", dns.TypeA), testPeer}
		if m := unpack(t, (<-quiet.out).b); len(m.Answer) != 1 {
			t.Fatalf("the other sandbox got %v", m)
		}
	}
	// Who has answered the quiet one may not have come to read again yet.
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before+workers; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%d goroutines under flood, %d before", runtime.NumGoroutine(), before)
			break
		}
	}
	close(release)
	for range workers {
		<-flooded.out
	}
	if got := most.Load(); got > workers {
		t.Errorf("%d questions decided at a time, want at most %d", got, workers)
	}
}

// TestDNS23CrewShrinks lets a busy socket become quiet: no goroutine but the one
// that reads is left, and no memory for datagrams.
func TestDNS23CrewShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(func(context.Context, Question) Answer {
			time.Sleep(time.Second)
			return Answer{}
		}, Options{Workers: 64})
		conn := newFakeSocket()
		c := &crew{server: s, conn: conn, apart: make(chan struct{}, 64)}
		conn.waits = func() {
			if c.held != nil {
				t.Error("a socket that waits holds memory")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range 200 {
				conn.in <- packet{wire(t, "good.test.", dns.TypeA), testPeer}
			}
			time.Sleep(time.Minute)
			if n := len(c.apart); n > 0 {
				t.Errorf("%d goroutines decide on a quiet socket", n)
			}
			cancel()
		}()
		if err := c.run(ctx); err != nil {
			t.Error(err)
		}
		if len(conn.out) != 200 {
			t.Errorf("%d answers, want 200", len(conn.out))
		}
	})
}

func TestSocketErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeSocket()
		ended := make(chan error)
		go func() { ended <- NewServer(leaseHandler, Options{}).ServePackets(t.Context(), conn) }()
		for range 20 {
			conn.failed <- errors.New("no buffer space available")
		}
		conn.in <- packet{wire(t, "good.test.", dns.TypeA), testPeer}
		if out := <-conn.out; len(unpack(t, out.b).Answer) != 1 {
			t.Error("no answer after errors that pass")
		}
		conn.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed socket: %v, want net.ErrClosed", err)
		}
	})
}

func TestTCPPipelining(t *testing.T) {
	addr := serveTCP(t, NewServer(leaseHandler, Options{}))
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	const n = 300
	var batch []byte
	for i := range n {
		batch = append(batch, framed(wire(t, "good.test.", dns.TypeA, func(m *dns.Msg) { m.Id = uint16(i) }))...)
	}
	half := framed(wire(t, "last.test.", dns.TypeA))
	go conn.Write(append(batch, half[:9]...)) // the answers must not wait for the rest
	for i := range n {
		if m := readFramed(t, conn); m.Id != uint16(i) || len(m.Answer) != 1 {
			t.Fatalf("answer %d: %v", i, m)
		}
	}
	if _, err := conn.Write(half[9:]); err != nil {
		t.Fatal(err)
	}
	conn.(*net.TCPConn).CloseWrite()
	if m := readFramed(t, conn); m.Question[0].Name != "last.test." {
		t.Errorf("answer after half-close: %v", m)
	}
	if b, err := readFrame(conn); err == nil {
		t.Errorf("after the last answer came %x", b)
	}
}

func TestDNS15TCPMessages(t *testing.T) {
	good := wire(t, "good.test.", dns.TypeA)
	tests := []struct {
		name   string
		send   []byte
		rcodes []int // of the answers, then the connection is closed
	}{
		{"FORMERR and on", framed(make([]byte, 64), good), []int{dns.RcodeFormatError, dns.RcodeSuccess}},
		{"zero length", framed(nil, good), nil},
		{"fragment", framed(good, make([]byte, 11), good), []int{dns.RcodeSuccess}},
		{"64 KiB of zeros", framed(make([]byte, 65535)), nil},
		{"cut off", framed(good)[:20], nil},
		{"response", framed(append([]byte{1, 2, 0x80}, good[3:]...), good), []int{dns.RcodeSuccess}},
	}
	addr := serveTCP(t, NewServer(leaseHandler, Options{}))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			go func() { conn.Write(tt.send); conn.(*net.TCPConn).CloseWrite() }()
			for i, want := range tt.rcodes {
				if m := readFramed(t, conn); m.Rcode != want {
					t.Errorf("answer %d: %v, want rcode %d", i, m, want)
				}
			}
			if b, err := readFrame(conn); err == nil {
				t.Errorf("then came %x", b)
			} else if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				t.Error("connection stays open")
			}
		})
	}
}

func TestTCPConnectionLimits(t *testing.T) {
	busy := make(chan Malformed, 1)
	addr := serveTCP(t, NewServer(leaseHandler, Options{MaxTCP: 8, MaxTCPPeer: 2, Malformed: func(_ context.Context, m Malformed) {
		select {
		case busy <- m:
		default:
		}
	}}))
	var conns []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		conns = append(conns, conn)
		if len(conns) < 3 {
			conn.Write(framed(wire(t, "good.test.", dns.TypeA)))
			readFramed(t, conn)
		}
	}
	if m := <-busy; !errors.Is(m.Err, ErrBusy) || !m.Dropped || m.Peer.String() != conns[2].LocalAddr().String() {
		t.Errorf("reported %+v", m)
	}
	if _, err := readFrame(conns[2]); err == nil {
		t.Error("a third connection of one address was served")
	}
	// Its place is free again once one has ended.
	conns[0].Close()
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		conn.Write(framed(wire(t, "good.test.", dns.TypeA)))
		_, err = readFrame(conn)
		conn.Close()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no connection is served after one has ended")
		}
	}
}

// pipeListener hands out connections in memory.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipeListener) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipeListener) Addr() net.Addr { return nil }

func TestTCPTimeouts(t *testing.T) {
	tests := []struct {
		name   string
		client func(c net.Conn, msg []byte)
	}{
		{"silent", func(net.Conn, []byte) {}},
		{"a byte a second", func(c net.Conn, msg []byte) {
			for i := range msg {
				c.Write(msg[i : i+1])
				time.Sleep(time.Second)
			}
		}},
		{"does not read its answer", func(c net.Conn, msg []byte) { c.Write(msg) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- NewServer(leaseHandler, Options{}).ServeTCP(ctx, ln) }()
				client, server := net.Pipe()
				watched := &closeWatcher{Conn: server, closed: make(chan struct{})}
				start := time.Now()
				ln.conns <- watched
				go tt.client(client, framed(wire(t, strings.Repeat("x", 40)+".test.", dns.TypeA)))
				<-watched.closed
				if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
					t.Errorf("closed after %v, want 10 s", took)
				}
				client.Close()
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				time.Sleep(time.Hour) // lets the client end
			})
		})
	}
}

type closeWatcher struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

func (c *closeWatcher) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestStopCutsConnections ends a Server whose client stays.
func TestStopCutsConnections(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewServer(leaseHandler, Options{}).ServeTCP(ctx, ln) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	conn.Write(framed(wire(t, "good.test.", dns.TypeA)))
	readFramed(t, conn)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := readFrame(conn); err == nil {
		t.Error("connection is still served")
	}
}

func TestAnswersOverOneConnectionKeepTheirBuffersApart(t *testing.T) {
	s := NewServer(leaseHandler, Options{})
	src := source{TransportTCP, testPeer, testResolver}
	first := s.respond(t.Context(), src, wire(t, "a.test.", dns.TypeA, withEDNS(1232)), nil)
	kept := bytes.Clone(first)
	second := s.respond(t.Context(), src, wire(t, "a.test.", dns.TypeA, withEDNS(1232)), first)
	if !bytes.Equal(kept, second) {
		t.Errorf("second answer in the first's buffer is %x, want %x", second, kept)
	}
}

package upstream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fakeNet connects to addresses as it is told: after a time, with an error,
// or, for one that it does not know, never.
type fakeNet struct {
	mu    sync.Mutex
	after map[string]time.Duration
	fail  map[string]error
	tried []string
	open  int
}

type fakeConn struct {
	net.Conn
	net *fakeNet
	to  netip.AddrPort
}

func (c *fakeConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.open--
	return nil
}

func (c *fakeConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

func (f *fakeNet) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	name := to.Addr().String()
	f.mu.Lock()
	f.tried = append(f.tried, name)
	after, known := f.after[name]
	err := f.fail[name]
	f.mu.Unlock()
	if !known && err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return &fakeConn{net: f, to: to}, nil
}

func TestOPS06BrokenAddresses(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	unreachable := &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}
	for _, tc := range []struct {
		name   string
		addrs  []netip.Addr
		net    *fakeNet
		want   string        // address, or class of the error
		within time.Duration // exactly
	}{
		{"blackholed IPv6", addrs("2606::1", "1.1.1.1"), &fakeNet{after: map[string]time.Duration{"1.1.1.1": 10 * time.Millisecond}}, "1.1.1.1", 260 * time.Millisecond},
		{"no IPv6 at all", addrs("2606::1", "1.1.1.1"), &fakeNet{fail: map[string]error{"2606::1": unreachable}, after: map[string]time.Duration{"1.1.1.1": 10 * time.Millisecond}}, "1.1.1.1", 10 * time.Millisecond},
		{"four of five dead", addrs("1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5"), &fakeNet{after: map[string]time.Duration{"1.1.1.5": 10 * time.Millisecond}}, "1.1.1.5", 710 * time.Millisecond},
		{"first refused", addrs("1.1.1.1", "1.1.1.2"), &fakeNet{fail: map[string]error{"1.1.1.1": refused}, after: map[string]time.Duration{"1.1.1.2": 0}}, "1.1.1.2", 0},
		{"all refused", addrs("1.1.1.1", "1.1.1.2"), &fakeNet{fail: map[string]error{"1.1.1.1": refused, "1.1.1.2": refused}}, "dial", 0},
		{"all dead", addrs("1.1.1.1", "1.1.1.2"), &fakeNet{}, "timeout", DefaultDialTimeout},
		{"one, dead", addrs("1.1.1.1"), &fakeNet{}, "timeout", DefaultDialTimeout},
		{"slow but first", addrs("1.1.1.1", "1.1.1.2"), &fakeNet{after: map[string]time.Duration{"1.1.1.1": 300 * time.Millisecond, "1.1.1.2": 300 * time.Millisecond}}, "1.1.1.1", 300 * time.Millisecond},
		{"two at the same instant", addrs("1.1.1.1", "1.1.1.2"), &fakeNet{after: map[string]time.Duration{"1.1.1.1": 300 * time.Millisecond, "1.1.1.2": 50 * time.Millisecond}}, "", 300 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream(t, Options{})
				u.connect = tc.net.connect
				var info Info
				start := time.Now()
				c, err := u.Dial(WithAttempt(t.Context(), &Attempt{Info: &info}), Route{Target{Host: "x.test", Port: 443}, tc.addrs})
				if took := time.Since(start); took != tc.within {
					t.Errorf("took %v, want %v", took, tc.within)
				}
				if info.Connect != tc.within {
					t.Errorf("info says %v", info.Connect)
				}
				switch class, _ := ErrorClass(err); {
				case err != nil && class != tc.want:
					t.Errorf("%s: %v", class, err)
				case err == nil && tc.want != "" && (remote(c).Addr().String() != tc.want || info.Addr != remote(c)):
					t.Errorf("connected to %v, info says %v", remote(c), info.Addr)
				case err == nil:
					c.Close()
				}
				if tc.net.open != 0 {
					t.Errorf("%d connections left open", tc.net.open)
				}
			})
		})
	}
}

func TestOPS06CallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, Options{})
		fake := &fakeNet{}
		u.connect = fake.connect
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := u.Dial(ctx, Route{Target{Host: "x.test", Port: 443}, addrs("1.1.1.1", "1.1.1.2", "1.1.1.3")})
		if class, _ := ErrorClass(err); class != "timeout" || len(fake.tried) != 2 {
			t.Errorf("%s: %v after %v", class, err, fake.tried)
		}
	})
}

func TestDialRealSockets(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := netip.MustParseAddrPort(ln.Addr().String()).Port()
	u := newUpstream(t, Options{})
	to := Target{Host: "x.test", Port: port, Addresses: loopback()}
	var info Info
	c, err := u.Dial(WithAttempt(t.Context(), &Attempt{Info: &info}), Route{to, addrs("127.0.0.2", "127.0.0.1")}) // nobody listens on the first
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, ok := c.(*net.TCPConn); !ok || info.Addr.Addr() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("a %T to %v", c, info.Addr)
	}
	_, err = u.Dial(t.Context(), Route{to, addrs("127.0.0.2")})
	if class, detail := ErrorClass(err); class != "dial" || detail != "connection refused" {
		t.Errorf("%s: %s", class, detail)
	}
}

func TestDNS09SocketGoesWhereItWasChecked(t *testing.T) {
	want := netip.MustParseAddrPort("127.0.0.1:443")
	if err := sameDestination("tcp4", "127.0.0.1:443", want); err != nil {
		t.Error(err)
	}
	for _, tc := range [][2]string{
		{"tcp4", "127.0.0.2:443"}, {"tcp4", "127.0.0.1:80"}, {"udp4", "127.0.0.1:443"}, {"tcp6", "[::1]:443"}, {"tcp4", ""}, {"unix", "127.0.0.1:443"},
	} {
		if err := sameDestination(tc[0], tc[1], want); err == nil {
			t.Errorf("%v is let through", tc)
		}
	}
}

func TestDialWhenClosed(t *testing.T) {
	u := newUpstream(t, Options{})
	u.Close()
	if _, err := u.Route(t.Context(), Target{Host: "x.test", Port: 443}, nil); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if _, err := u.Transport("s1").transport(Target{}, wideHTTP2); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

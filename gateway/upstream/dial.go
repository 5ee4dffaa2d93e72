package upstream

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Delays before the next address is tried beside those under way (RFC 8305,
// section 5). The later ones are shorter, so that a name with four dead
// addresses before a good one still connects within a second.
const (
	firstDelay = 250 * time.Millisecond
	laterDelay = 150 * time.Millisecond
)

// Dial connects to one of a route's addresses, each of which it checks again
// for the route's target. The connection is a plain *net.TCPConn, so that a
// relay can splice it, and belongs to the caller.
func (u *Upstream) Dial(ctx context.Context, r Route) (net.Conn, error) {
	start := time.Now()
	c, err := u.dial(ctx, r)
	if a := attemptOf(ctx); a != nil && a.Info != nil {
		info := a.Info
		*info = Info{Connect: time.Since(start)}
		if err == nil {
			info.Addr = remote(c)
		}
	}
	if err != nil {
		return nil, u.failed(r.Target, err)
	}
	return c, nil
}

func (u *Upstream) dial(ctx context.Context, r Route) (net.Conn, error) {
	addrs, err := u.check(r.Target, r.Addrs, u.selfNow())
	if err != nil {
		return nil, err
	}
	if r.Port == 0 {
		return nil, &Error{Class: "dial", Detail: "no port"}
	}
	ctx, cancel := context.WithTimeout(ctx, u.dialTimeout)
	defer cancel()
	if len(addrs) == 1 {
		c, err := u.connect(ctx, netip.AddrPortFrom(addrs[0], r.Port))
		return c, wrap(err)
	}
	return u.race(ctx, cancel, addrs, r.Port)
}

// dialed is the outcome of one address.
type dialed struct {
	conn net.Conn
	err  error
}

// race dials the addresses one after another without waiting for each to
// fail, and returns the first that connects. Nothing it started is under way
// when it returns.
func (u *Upstream) race(ctx context.Context, cancel context.CancelFunc, addrs []netip.Addr, port uint16) (net.Conn, error) {
	results := make(chan dialed, len(addrs))
	next, running := 0, 0
	start := func() {
		addr := netip.AddrPortFrom(addrs[next], port)
		next++
		running++
		go func() {
			c, err := u.connect(ctx, addr)
			results <- dialed{c, err}
		}()
	}
	start()
	timer := time.NewTimer(firstDelay)
	defer timer.Stop()
	var first error
	for running > 0 {
		select {
		case <-timer.C:
			if next < len(addrs) {
				start()
				timer.Reset(laterDelay)
			}
		case d := <-results:
			running--
			if d.err == nil {
				cancel()
				drop(results, running)
				return d.conn, nil
			}
			if first == nil {
				first = d.err
			}
			if next < len(addrs) && ctx.Err() == nil {
				start()
				timer.Reset(laterDelay)
			}
		}
	}
	return nil, wrap(first)
}

// drop waits for the losers of a race, which have been cancelled, and closes
// one that connected all the same.
func drop(results <-chan dialed, running int) {
	for range running {
		if d := <-results; d.err == nil {
			d.conn.Close()
		}
	}
}

// dialOne connects to exactly one address.
func dialOne(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 15 * time.Second, Count: 4},
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return sameDestination(network, address, to)
		},
	}
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, "tcp", to.String())
}

// sameDestination is the last look before a socket connects: it must be a TCP
// socket to the address that was checked.
func sameDestination(network, address string, want netip.AddrPort) error {
	got, err := netip.ParseAddrPort(address)
	if err != nil || got != want || (network != "tcp4" && network != "tcp6") {
		return fmt.Errorf("upstream: the socket does not go to the address that was checked")
	}
	return nil
}

func remote(c net.Conn) netip.AddrPort {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		p := a.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

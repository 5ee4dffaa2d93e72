package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"sallyport/gateway/capture"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
	"sallyport/gateway/upstream"
)

// Inbound is one way in: the sockets of a capture, and who speaks on them.
// The one that serves closes what it was given.
type Inbound struct {
	Name         string         // for the operational log
	TCP          []net.Listener // LocalAddr of what they accept is the original destination
	DNSPackets   []dns.PacketConn
	DNSListeners []net.Listener
	Packets      *capture.PacketLog // refused packets; may be nil

	// Identify says which sandbox speaks from src.
	Identify func(src netip.Addr) (*identity.Sandbox, bool)

	// Owner makes TCP an explicit proxy: it says whose a credential is, and
	// Identify is not asked. It is nil otherwise.
	Owner Credential
}

// NewInbound returns the way in that a capture's sockets are.
func NewInbound(name string, s *capture.Sockets, identify func(netip.Addr) (*identity.Sandbox, bool)) *Inbound {
	in := &Inbound{Name: name, TCP: s.TCP, DNSListeners: s.DNSListeners, Packets: s.Packets, Identify: identify}
	for _, p := range s.DNSPackets {
		in.DNSPackets = append(in.DNSPackets, p)
	}
	return in
}

// Serve serves in until ctx ends or its sockets fail; then it closes them.
// Connections that are open live on, until Run ends.
func (g *Gateway) Serve(ctx context.Context, in *Inbound) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSocketSet(ctx, cancel)
	questions := dns.NewServer(g.serveQuestions(in), dns.Options{
		Logger:    g.Logger.Named("dns"),
		Rest:      restAfter,
		Quick:     func(_ context.Context, asked []dns.Asked) { g.questions(in, asked) },
		Malformed: func(_ context.Context, m dns.Malformed) { sb, _ := in.Identify(m.Peer.Addr()); g.malformed(sb, m) },
	})
	for _, p := range in.DNSPackets {
		s.serve(p, func() error { return questions.ServePackets(ctx, p) })
	}
	for _, l := range in.DNSListeners {
		s.serve(l, func() error { return questions.ServeTCP(ctx, l) })
	}
	for _, l := range in.TCP {
		s.serve(l, func() error { return g.accept(ctx, l, in) })
	}
	if in.Packets != nil {
		s.serve(nil, func() error { return g.packets(ctx, in) })
	}
	s.watch()
	in.closeListeners()
	s.end() // the packet log first tells what was refused until now
	in.Close()
	return s.err
}

// Close closes the sockets. Serve does it too.
func (in *Inbound) Close() {
	in.closeListeners()
	if in.Packets != nil {
		_ = in.Packets.Close()
	}
}

// closeListeners closes all but the packet log.
func (in *Inbound) closeListeners() {
	for _, l := range in.TCP {
		_ = l.Close()
	}
	for _, l := range in.DNSListeners {
		_ = l.Close()
	}
	for _, p := range in.DNSPackets {
		_ = p.Close()
	}
}

// accept hands each connection to serveConn on a goroutine of its own. It
// returns dns.ErrRest after restAfter, however many have come: to wait anew
// costs little.
func (g *Gateway) accept(ctx context.Context, l net.Listener, in *Inbound) error {
	wait := time.Duration(0)
	if l, ok := l.(*net.TCPListener); ok {
		_ = l.SetDeadline(time.Now().Add(restAfter)) // an error comes again from Accept
	}
	for {
		nc, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			wait = 0
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return dns.ErrRest
		case errors.As(err, &temporary) && temporary.Temporary(): // out of descriptors
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			g.Logger.Warn("connection was not accepted", "capture", in.Name, "error", err, "again_in", wait)
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				return nil
			}
		default:
			return err
		}
		if !g.serving.enter() {
			_ = nc.Close() // the gateway has ended
			return nil
		}
		go func() {
			defer g.serving.leave()
			upstream.GrowStack16K()
			if in.Owner != nil {
				g.serveProxied(ctx, nc, in.Owner)
				return
			}
			g.serveConn(context.WithoutCancel(ctx), nc, in)
		}()
	}
}

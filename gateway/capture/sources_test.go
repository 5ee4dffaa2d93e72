//go:build linux

package capture

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSourcesOfASandboxThatMayHaveAny: such a sandbox may not have that of the
// host or one that nobody has, which leave no trace in the kernel, nor more than
// the kernel can ask for.
func TestSourcesOfASandboxThatMayHaveAny(t *testing.T) {
	if rerunAsRoot(t) {
		return
	}
	s := newSite(t)
	o := s.options()
	o.Sources = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	sockets := s.open(t, o)
	serveDestination(t, sockets)
	inside(t, s.sandbox, func() error { _, err := ask("203.0.113.10:443"); return err }) // each end knows the other now
	send := func(src netip.Addr, proto uint8, payload []byte) {
		inside(t, s.sandbox, rawPacket{src: src, dst: netip.MustParseAddr("203.0.113.11"), proto: proto, payload: payload}.send)
	}
	for _, text := range []string{"127.0.0.5", "10.77.4.1", "203.0.113.1", "224.0.0.7", "240.0.0.1", "0.0.0.9"} {
		src := netip.MustParseAddr(text)
		send(src, unix.IPPROTO_TCP, segment(443, 2))
		got := next(t, sockets.Packets, func(p Packet) bool { return p.Src.Addr() == src })
		if got.Verdict != VerdictSpoof {
			t.Errorf("reported %+v", got)
		}
	}
	const more = 100
	src := netip.MustParseAddr("10.200.0.1") // no route leads there: nobody is asked for
	for range sourcesMax + more {
		send(src, unix.IPPROTO_UDP, ports(4000, 99, 0, 8, 0, 0))
		src = src.Next()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := map[string]uint64{}
	for {
		p, err := sockets.Packets.Next(ctx)
		if errors.Is(err, context.Canceled) {
			break // all that there was has been told
		}
		if err != nil {
			t.Fatalf("after %v: %v", seen, err)
		}
		seen[p.Verdict] += p.Count
		if seen[VerdictDeny]+seen[VerdictSpoof] >= sourcesMax+more { // the last may have been on its way
			cancel()
		}
	}
	if seen[VerdictDeny] != sourcesMax-1 || seen[VerdictSpoof] != more+1 { // one is the sandbox's own
		t.Errorf("%v of %d packets", seen, sourcesMax+more)
	}
}

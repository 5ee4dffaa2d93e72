//go:build linux

package capture

import (
	"net/netip"
	"testing"
	"time"
)

func foldPacket(dst string, at time.Time) Packet {
	return Packet{Verdict: VerdictDeny, Proto: 17, Src: netip.MustParseAddrPort("192.0.0.8:4000"),
		Dst: netip.MustParseAddrPort(dst), Count: 1, First: at, Last: at}
}

func TestFoldRepeatsOfAWindow(t *testing.T) {
	var f fold
	start := time.Unix(1000, 0)
	if first, ok := f.add(classUDP, foldPacket("203.0.113.10:443", start)); !ok || first.Count != 1 {
		t.Fatalf("first: %+v, %v", first, ok)
	}
	for i := range 3 {
		if _, ok := f.add(classUDP, foldPacket("203.0.113.10:443", start.Add(time.Duration(i+1)*time.Second))); ok {
			t.Fatal("a repeat went out at once")
		}
	}
	if _, ok := f.add(classUDP, foldPacket("203.0.113.10:444", start)); !ok {
		t.Fatal("another port was folded")
	}
	if got := f.due(start.Add(foldWindow - 1)); got != nil {
		t.Fatalf("due before its window ended: %+v", got)
	}
	end := start.Add(foldWindow)
	got := f.due(end)
	if len(got) != 1 || got[0].Count != 3 || !got[0].First.Equal(start.Add(time.Second)) || !got[0].Last.Equal(start.Add(3*time.Second)) {
		t.Fatalf("due %+v", got)
	}
	if got := f.due(end.Add(foldWindow)); got != nil || len(f.flows) != 0 {
		t.Fatalf("a silent flow is kept: %+v, %d flows", got, len(f.flows))
	}
	if _, ok := f.add(classUDP, foldPacket("203.0.113.10:443", end.Add(time.Hour))); !ok {
		t.Fatal("not reported at once after a silence")
	}
}

func TestFoldIsBounded(t *testing.T) {
	var f fold
	now := time.Unix(1000, 0)
	const n = 3 * foldMax
	total := uint64(0)
	for i := range n {
		dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(i))
		if p, ok := f.add(classUDP, foldPacket(dst.String(), now)); ok {
			total += p.Count
		}
	}
	if len(f.flows) > foldMax+int(classes) {
		t.Errorf("%d flows are kept", len(f.flows))
	}
	for _, p := range f.flush() {
		if p.Dst.IsValid() || p.Proto != 17 {
			t.Errorf("overflow reported as %+v", p)
		}
		total += p.Count
	}
	if total != n {
		t.Errorf("%d packets told of %d", total, n)
	}
}

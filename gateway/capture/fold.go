//go:build linux

package capture

import (
	"net/netip"
	"time"
)

const (
	// foldWindow is how long repeats of a packet are kept back to be reported
	// as one.
	foldWindow = 5 * time.Second
	// foldMax is how many different packets are told apart in one window. The
	// rest is folded by class, without addresses.
	foldMax = 4096
)

// flow is what packets that are folded into one have in common.
type flow struct {
	class    class
	proto    uint8
	src      netip.Addr
	dst      netip.AddrPort
	icmpType uint8
	icmpCode uint8
	mac      string
}

// fold turns a stream of packets into few. The first packet of a flow goes out
// at once, its repeats together when the window ends; a flow that was silent for
// a whole window is forgotten. No packet is lost or counted twice.
type fold struct {
	flows map[flow]*Packet // repeats not yet reported; Count may be 0
	ends  time.Time        // of the window; zero while flows is empty
}

// add takes one packet and returns it if it is the first of its flow.
func (f *fold) add(c class, p Packet) (Packet, bool) {
	key := flow{class: c, proto: p.Proto, src: p.Src.Addr(), dst: p.Dst,
		icmpType: p.ICMPType, icmpCode: p.ICMPCode, mac: p.MAC}
	repeats, known := f.flows[key]
	if !known && len(f.flows) >= foldMax {
		key = flow{class: c}
		repeats, known = f.flows[key]
		p = Packet{Interface: p.Interface, Verdict: p.Verdict, Proto: c.protocol(),
			Count: p.Count, First: p.First, Last: p.Last}
	}
	if known {
		repeats.merge(p)
		return Packet{}, false
	}
	if f.flows == nil {
		f.flows = make(map[flow]*Packet)
	}
	if len(f.flows) == 0 {
		f.ends = p.Last.Add(foldWindow)
	}
	held := p
	held.Count = 0
	f.flows[key] = &held
	return p, true
}

// merge adds q to the repeats that p stands for.
func (p *Packet) merge(q Packet) {
	if p.Count == 0 {
		p.First, p.Src, p.Length = q.First, q.Src, q.Length
	}
	p.Count += q.Count
	p.Last = q.Last
}

// due returns the repeats of a window that ended before now.
func (f *fold) due(now time.Time) []Packet {
	if len(f.flows) == 0 || now.Before(f.ends) {
		return nil
	}
	f.ends = now.Add(foldWindow)
	return f.flush()
}

// flush returns all repeats whether or not their window ended.
func (f *fold) flush() []Packet {
	var out []Packet
	for key, p := range f.flows {
		if p.Count == 0 {
			delete(f.flows, key)
			continue
		}
		out = append(out, *p)
		p.Count = 0
	}
	return out
}

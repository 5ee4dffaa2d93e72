package gateway

import (
	"context"
	"strconv"

	"sallyport/audit"
	"sallyport/gateway/capture"
	"sallyport/policy"
)

// packets records what the kernel refused, until ctx ends.
func (g *Gateway) packets(ctx context.Context, in *Inbound) error {
	for {
		p, err := in.Packets.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		g.packet(in, p)
	}
}

// packet records one refused packet, or a number of like ones.
func (g *Gateway) packet(in *Inbound, p capture.Packet) {
	sb, ok := in.Identify(p.Src.Addr())
	if p.Verdict == "spoof" && !p.Src.IsValid() {
		sb = nil // counted only: it was from nobody's address
	}
	d := policy.Decision{Reason: packetReason(p), Message: "only TCP and DNS leave a sandbox"}
	switch {
	case p.Verdict == "spoof":
		d = policy.Decision{Reason: policy.SpoofedSource, Message: "the source address is not the sandbox's own"}
	case !ok:
		d = policy.Decision{Reason: policy.UnknownSandbox, Message: "no sandbox claims this address"}
	}
	e := g.event(g.snap.Load(), audit.KindPacket, audit.PhaseDecision, sb)
	e.decide(d)
	e.peers(p.Src, p.Dst)
	e.Proto = protocol(p.Proto)
	if p.Count > 1 {
		e.Count = p.Count
		first, last := p.First.UTC(), p.Last.UTC()
		e.FirstSeen, e.LastSeen = &first, &last
	}
	g.recordOrLog(e)
}

// Protocol numbers (IANA, assigned internet protocol numbers).
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoGRE    = 47
	protoESP    = 50
	protoICMPv6 = 58
	protoSCTP   = 132
)

func packetReason(p capture.Packet) policy.Reason {
	switch p.Proto {
	case protoUDP:
		switch p.Dst.Port() {
		case 443:
			return policy.QUICBlocked
		case portDoT:
			return policy.DoTBlocked
		}
		return policy.UDPBlocked
	case protoICMP, protoICMPv6:
		return policy.ICMPBlocked
	}
	return policy.ProtoBlocked
}

func protocol(n uint8) string {
	switch n {
	case protoICMP:
		return "icmp"
	case protoTCP:
		return "tcp"
	case protoUDP:
		return "udp"
	case protoGRE:
		return "gre"
	case protoESP:
		return "esp"
	case protoICMPv6:
		return "icmpv6"
	case protoSCTP:
		return "sctp"
	}
	return "proto-" + strconv.Itoa(int(n))
}

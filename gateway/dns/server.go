package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"

	"sallyport/policy"
)

// Server answers the questions of sandboxes. One Server serves any number of
// sockets.
type Server struct {
	handler   Handler
	o         Options
	few, many sync.Pool // of *batch
}

// NewServer returns a Server that asks h. A nil h refuses every question.
func NewServer(h Handler, o Options) *Server {
	if h == nil {
		h = func(context.Context, Question) Answer { return Answer{RCode: dns.RcodeRefused} }
	}
	return &Server{handler: h, o: o.withDefaults()}
}

// source is where a message came from.
type source struct {
	transport      string
	peer, resolver netip.AddrPort
}

// respond answers one message into out[:0]; nil means that nothing is sent.
// Hot path: beyond what the Handler does it allocates the question's name.
func (s *Server) respond(ctx context.Context, src source, msg, out []byte) []byte {
	q, f := parse(msg)
	limit, stream := dns.MaxMsgSize-1, src.transport == TransportTCP
	if !stream {
		limit = datagramLimit(q)
	}
	var a Answer
	if f.err != nil {
		if s.reportFault(ctx, src, msg, q, f); f.drop {
			return nil
		}
		a.RCode = f.rcode
	} else {
		a = s.ask(ctx, newQuestion(src, msg, q))
	}
	if a.Drop {
		return nil
	}
	return reply(out, msg, q, a, limit, stream)
}

// datagramLimit is the longest answer over UDP to q. Bytes.
func datagramLimit(q query) int {
	if !q.edns {
		return dns.MinMsgSize
	}
	return min(max(int(q.size), dns.MinMsgSize), MaxUDPBytes)
}

// ask calls the Handler. A question that makes it panic is answered SERVFAIL:
// one hostile question must not end the network of every sandbox.
func (s *Server) ask(ctx context.Context, q Question) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			s.o.Logger.Error("dns handler panicked", "panic", r, "stack", string(debug.Stack()))
			a = Answer{RCode: dns.RcodeServerFailure}
		}
	}()
	return s.handler(ctx, q)
}

func newQuestion(src source, msg []byte, q query) Question {
	name, plain := presentation(msg[headerLen:q.nameEnd])
	out := Question{
		Name: name, Type: q.qtype, TypeName: typeName(q.qtype),
		Transport: src.transport, Peer: src.peer, Resolver: src.resolver,
	}
	switch {
	case name == ".":
		out.Bad = errRootName
	case !plain:
		out.Bad = errOddBytes
	default:
		out.Host, out.Bad = hostOf(name)
	}
	return out
}

// hostOf returns the canonical host of a name without escapes. An address is
// a name to no resolver.
func hostOf(name string) (string, error) {
	host, err := policy.CanonicalHost(name)
	if err != nil {
		return "", err
	}
	if policy.IsIP(host) {
		return "", errLiteral
	}
	return host, nil
}

func (s *Server) reportFault(ctx context.Context, src source, msg []byte, q query, f fault) {
	m := Malformed{
		Err: f.err, RCode: f.rcode, Dropped: f.drop,
		Transport: src.transport, Peer: src.peer, Resolver: src.resolver,
	}
	if q.end > 0 {
		m.Name, _ = presentation(msg[headerLen:q.nameEnd])
		m.Type, m.TypeName = q.qtype, typeName(q.qtype)
	}
	s.o.Malformed(ctx, m)
}

func typeName(t uint16) string {
	if name, ok := dns.TypeToString[t]; ok {
		return name
	}
	return "TYPE" + strconv.Itoa(int(t)) // RFC 3597
}

// pause waits before a failed read or accept is tried again, longer each time
// up to a second. It reports false when ctx ended.
func pause(ctx context.Context, failures int) bool {
	wait := min(5*time.Millisecond<<min(failures, 8), time.Second)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// closed reports whether err says that the socket is gone for good.
func closed(err error) bool { return errors.Is(err, net.ErrClosed) }

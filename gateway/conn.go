package gateway

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"sallyport/audit"
	"sallyport/gateway/http1"
	"sallyport/gateway/http2guard"
	"sallyport/gateway/identity"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// conn is one accepted connection and what is known of it. It is written
// while the connection is decided, and read only once it is served.
type conn struct {
	g        *Gateway
	snap     *Snapshot // in force when the connection was decided
	id       string
	sandbox  *identity.Sandbox
	state    *sandboxState // of the sandbox; had before opened takes the connection in
	src, dst netip.AddrPort
	started  time.Time
	client   *meter

	// host is the name behind dst, the canonical SNI, or the literal that
	// was dialled. It is "" for plain HTTP on the address of denied names.
	host     string
	internal bool                      // the gateway's own name
	scheme   policy.Scheme             // of what is spoken
	tls      atomic.Pointer[audit.TLS] // nil on a connection without TLS; what it points to does not change
	sni      string                    // as sent
	guard    *http1.Guard              // of HTTP/1.1
	streams  *http2guard.Guard         // of HTTP/2
	outcome  atomic.Pointer[outcome]
	record   atomic.Pointer[connRecord]
	peer     atomic.Pointer[peer]
	leaving  *leaving // of HTTP/1.1

	// refusal is set on a connection that is kept open only to explain,
	// over HTTP, why it was refused, when all else about that is known.
	refusal atomic.Pointer[policy.Decision]

	leads   []netip.Addr                    // of a relay: one of them was dialled
	denied  bool                            // a denial was recorded
	why     atomic.Pointer[policy.Decision] // the denial
	proxied *proxied                        // set where requests name their hosts themselves
	refused upstream.Route                  // with the address for which a relay was refused
}

// explainWait is how long a refused connection is given to show that it
// speaks TLS or HTTP, in which case it is told why.
const explainWait = 300 * time.Millisecond

// portDoT is where DNS over TLS is spoken (RFC 7858).
const portDoT = 853

// serveConn takes one connection from accept to end.
func (g *Gateway) serveConn(ctx context.Context, nc net.Conn, in *Inbound) {
	c := &conn{g: g, snap: g.snap.Load(), id: audit.NewID(), started: g.Now(), client: newMeter(nc),
		src: addrPort(nc.RemoteAddr()), dst: addrPort(nc.LocalAddr())}
	defer c.survive()
	g.idle.note()
	sb, ok := in.Identify(c.src.Addr())
	if !ok {
		c.refuse(policy.Decision{Reason: policy.UnknownSandbox, Message: "no sandbox claims this address"})
		return
	}
	c.sandbox, c.state = sb, g.state(sb.ID)
	c.client.used = &c.state.used
	out, ok := g.admit(c.state, c.connectionLimit())
	if !ok {
		c.refuse(policy.Decision{Reason: policy.ConnectionLimit, Message: "the sandbox holds too many connections at once"})
		return
	}
	if err := g.opened.add(c); err != nil {
		out()
		c.turnAway(err)
		return
	}
	c.client.whenClosed(out)
	if d := c.findHost(); d != nil {
		c.explainOrReset(ctx, *d)
		return
	}
	if c.internal {
		c.serveInternal(ctx)
		return
	}
	d := c.snap.decide(c.request(policy.SchemeAny))
	switch {
	case d.Verdict != policy.Allow:
		c.explainOrReset(ctx, d)
	case d.Relay == policy.RelayTCP:
		c.scheme = policy.TCP
		c.relayTCP(ctx, d)
	default:
		c.peek(ctx, d, g.Limits.HelloTimeout)
	}
}

// survive keeps a fault that one connection provokes from ending all others:
// it is reset and the fault logged.
func (c *conn) survive() {
	if fault := recover(); fault != nil {
		c.g.Logger.Error("connection was reset after a fault of the gateway", "conn", c.id, "fault", fault, "stack", string(debug.Stack()))
		c.client.reset()
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return unmap(t.AddrPort())
	}
	return netip.AddrPort{}
}

func (c *conn) connectionLimit() int64 {
	if c.snap == nil || c.snap.Policy == nil {
		return 0
	}
	if p := c.snap.Policy.Sandbox(c.sandbox.Policy); p != nil {
		return p.Limits.Connections
	}
	return 0
}

// findHost sets the name that the sandbox looked up to get this address, or
// says why there is none. On the address of denied names it leaves host
// empty: what was asked is only in the SNI or the Host field.
func (c *conn) findHost() *policy.Decision {
	addr := c.dst.Addr()
	switch v6 := addr.Is6(); {
	case addr == c.g.Pool.Gateway(v6):
		c.host, c.internal = Name, true
		if p := c.dst.Port(); p != 80 && p != 443 {
			return &policy.Decision{Reason: policy.PortNotAllowed, Message: Name + " answers on ports 80 and 443 only"}
		}
		return nil
	case addr == c.g.Pool.Denied(v6):
		return &policy.Decision{Reason: policy.HostNotAllowed, Message: "this name is not allowed by the sandbox's policy"}
	case c.g.Pool.Contains(addr):
		host, ok := c.g.Pool.Lookup(c.sandbox.ID, addr)
		if !ok {
			return &policy.Decision{Reason: policy.StaleAddress, Message: "no name was looked up for this address; resolve the name again"}
		}
		c.host = host
		return nil
	}
	c.host = addr.String()
	if d := c.snap.decide(c.request(policy.SchemeAny)); d.Verdict != policy.Allow {
		return &policy.Decision{Reason: policy.IPLiteral, Rule: d.Rule,
			Message: "addresses cannot be dialled directly; use a name that the policy allows"}
	}
	return nil
}

// request is what policy is asked about the connection.
func (c *conn) request(scheme policy.Scheme) policy.Request {
	r := c.sandbox.Request(policy.StageConn)
	r.Host, r.Port, r.Scheme, r.Now = c.host, c.dst.Port(), scheme, c.g.Now()
	return r
}

// peek waits for the first bytes and goes on by what they are. Where only
// a server-first protocol could follow, none come, and the wait runs out.
func (c *conn) peek(ctx context.Context, d policy.Decision, wait time.Duration) {
	first, err := c.client.peek(wait)
	switch {
	case len(first) == 0 && isTimeout(err):
		c.refuse(c.notSpoken(d))
	case len(first) == 0:
		// The client went before it sent a byte, as browsers do with
		// connections that they open on suspicion. It might have gone on.
		if c.admitConn(d) == nil {
			_ = c.client.Close() // nothing was said that an error could lose
		}
	case first[0] == recordHandshake:
		c.serveTLS(ctx, first, nil)
	case looksLikeHTTP(first):
		c.servePlain(d)
	default:
		c.refuse(c.notSpoken(d))
	}
}

// notSpoken is the denial of bytes that are neither TLS nor HTTP, or of
// HTTP where TLS is required.
func (c *conn) notSpoken(d policy.Decision) policy.Decision {
	reason, want := policy.NotTLS, "TLS"
	if c.snap.decide(c.request(policy.HTTPS)).Verdict != policy.Allow {
		reason, want = policy.NotHTTP, "HTTP"
	}
	return policy.Decision{Reason: reason, Rule: d.Rule,
		Message: "the connection does not speak " + want + "; other protocols need a tcp rule (for git, use an HTTPS remote)"}
}

// servePlain serves HTTP without TLS, if policy lets it.
func (c *conn) servePlain(d policy.Decision) {
	c.scheme = policy.HTTP
	d = c.snap.decide(c.request(policy.HTTP))
	if d.Verdict != policy.Allow {
		c.explainPlain(d)
		return
	}
	if err := c.admitConn(d); err != nil {
		return
	}
	c.g.front.plain(c)
}

// explainOrReset records a denial at once and then waits a moment for bytes
// to answer it in.
func (c *conn) explainOrReset(ctx context.Context, d policy.Decision) {
	if c.dst.Addr() == c.g.Pool.Denied(c.dst.Addr().Is6()) {
		c.explainNamed(ctx)
		return
	}
	if c.dst.Port() == portDoT && (d.Reason == policy.PortNotAllowed || d.Reason == policy.IPLiteral) {
		d.Reason = policy.DoTBlocked
	}
	if err := c.recordDenial(d); err != nil {
		return
	}
	first, _ := c.client.peek(explainWait)
	switch {
	case len(first) > 0 && first[0] == recordHandshake && c.mayExplain():
		c.serveTLS(ctx, first, &d)
	case looksLikeHTTP(first) && c.mayExplain():
		c.scheme = policy.HTTP
		c.refusal.Store(&d)
		c.g.front.plain(c)
	default:
		c.client.reset()
	}
}

// explainNamed serves the address of denied names: which of them was meant
// is in the bytes, so the record waits for them.
func (c *conn) explainNamed(ctx context.Context) {
	first, _ := c.client.peek(c.g.Limits.HelloTimeout)
	d := policy.Decision{Reason: policy.HostNotAllowed, Message: "this name is not allowed by the sandbox's policy"}
	switch {
	case len(first) > 0 && first[0] == recordHandshake:
		c.serveTLS(ctx, first, &d)
	case looksLikeHTTP(first):
		c.scheme = policy.HTTP
		first = c.client.peekOn(namesHost, c.g.Limits.MaxHead, c.g.Limits.HelloTimeout)
		c.explainPlain(c.named(first, d))
	default:
		c.refuse(d)
	}
}

// namesHost says whether the first bytes of a plain request have its host, or
// its whole head.
func namesHost(first []byte) bool {
	return http1.PeekHost(first) != "" || bytes.Contains(first, []byte("\r\n\r\n"))
}

// named finds in the first bytes of a plain request which denied name was
// meant, and how policy denies it.
func (c *conn) named(first []byte, d policy.Decision) policy.Decision {
	host, _, err := policy.SplitAuthority(http1.PeekHost(first), c.dst.Port())
	if err != nil {
		return d
	}
	c.host = host
	if d = c.snap.decide(c.request(policy.HTTP)); d.Verdict == policy.Allow {
		return policy.Decision{Reason: policy.StaleAddress, Message: "the name was looked up before policy allowed it; look it up again"}
	}
	return d
}

// explainPlain records a denial of plain HTTP and answers its requests.
func (c *conn) explainPlain(d policy.Decision) {
	if err := c.recordDenial(d); err != nil {
		return
	}
	if !c.mayExplain() {
		c.client.reset()
		return
	}
	c.refusal.Store(&d)
	c.g.front.plain(c)
}

// mayExplain bounds what explanations cost.
func (c *conn) mayExplain() bool { return c.state.explain.AllowN(c.g.Now(), 1) }

// refuse records a denial and resets the connection.
func (c *conn) refuse(d policy.Decision) {
	_ = c.recordDenial(d)
	c.client.reset()
}

// recordDenial writes the connection's one decision. When that fails the
// connection is reset.
func (c *conn) recordDenial(d policy.Decision) error {
	d.Verdict, d.Relay, d.Inject = policy.Deny, policy.RelayNone, nil
	c.denied = true
	c.why.Store(&d)
	e := c.event(audit.KindConn, audit.PhaseDecision)
	e.decide(d)
	e.refusedAddress(c.refused)
	if err := c.g.record(e); err != nil {
		c.why.Store(deny(policy.AuditUnavailable, "the audit log cannot be written"))
		c.client.reset()
		return err
	}
	return nil
}

// admitConn writes the connection's decision to allow, and arranges for its
// end to be written and for a reload to end it. When it fails the connection
// is reset.
func (c *conn) admitConn(d policy.Decision) error {
	if why := c.forgotten(); why != nil {
		c.refuse(*why)
		return errRevoked
	}
	e := c.event(audit.KindConn, audit.PhaseDecision)
	e.decide(d)
	if err := c.g.record(e); err != nil {
		c.client.reset()
		return err
	}
	if c.internal {
		c.client.whenClosed(c.end)
		return nil
	}
	entry := c.g.live.add(&liveEntry{sandboxID: c.sandbox.ID, request: c.request(c.scheme), relay: d.Relay, of: c})
	c.client.whenClosed(func() {
		c.g.live.remove(entry)
		c.end()
	})
	if why := c.takenBack(entry, c.snap); why != nil {
		c.client.revoke(*why)
		return errRevoked
	}
	return nil
}

// end writes the end event.
func (c *conn) end() {
	e := c.event(audit.KindConn, audit.PhaseEnd)
	e.Bytes = &audit.Bytes{Sent: c.client.in.Load(), Received: c.client.out.Load()}
	e.DurationMS = milliseconds(c.g.Now().Sub(c.started))
	if o := c.outcome.Load(); o != nil {
		e.Upstream, e.Error, e.Reason = o.upstream, o.failure, string(o.reason)
	}
	if why := c.client.revoked.Load(); why != nil {
		e.Reason, e.Message = string(policy.Revoked), why.Message
	}
	c.g.recordOrLog(e)
}

// noteTLS changes what is known of the connection's TLS.
func (c *conn) noteTLS(change func(*audit.TLS)) {
	var t audit.TLS
	if now := c.tls.Load(); now != nil {
		t = *now
	}
	change(&t)
	c.tls.Store(&t)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// looksLikeHTTP says whether b could begin a request of HTTP/1: a token of
// letters and hyphens, then a space or the end of what is known.
func looksLikeHTTP(b []byte) bool {
	for i, ch := range b {
		switch {
		case ch == ' ':
			return i >= 3
		case !(ch >= 'A' && ch <= 'Z' || ch >= 'a' && ch <= 'z' || ch == '-'):
			return false
		case i > 24:
			return false
		}
	}
	return len(b) > 0
}

package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"sallyport/audit"
	"sallyport/gateway/http1"
	"sallyport/gateway/identity"
	"sallyport/policy"
)

// Credential says whose the user and password are that a client of an
// explicit proxy gave.
type Credential func(user, password string) (*identity.Sandbox, bool)

// proxied is one connection to an explicit proxy. What a transparent capture
// reads off the address, the client says itself, in a CONNECT, in absolute
// targets or in SOCKS5; what is decided about it is the same.
type proxied struct {
	g     *Gateway
	owner Credential
	nc    net.Conn
	id    string
	src   netip.AddrPort
	held  []byte // read and not yet used

	// sandbox is whose connection it is, from the first right credential on.
	sandbox *identity.Sandbox
	// known is called when it has one. It is set where that may be long after
	// the connection was handed on.
	known func()
}

const (
	// maxCredentials is how many wrong or missing credentials end a connection.
	maxCredentials = 4
	// socks5 is the first byte of SOCKS version 5 (RFC 1928, section 3).
	socks5 = 5
)

// serveProxied takes one connection to an explicit proxy from accept to end.
// While it is not known whose it is, the end of ctx closes it.
func (g *Gateway) serveProxied(ctx context.Context, nc net.Conn, owner Credential) {
	p := &proxied{g: g, owner: owner, nc: nc, id: audit.NewID(), src: addrPort(nc.RemoteAddr())}
	defer func() {
		if fault := recover(); fault != nil {
			g.Logger.Error("connection was closed after a fault of the gateway", "conn", p.id, "fault", fault, "stack", string(debug.Stack()))
			_ = nc.Close()
		}
	}()
	strangers := &g.front.strangers
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	one := strangers.enter(p.src.Addr(), p.giveWay)
	known := sync.OnceFunc(func() { stop(); strangers.leave(one) })
	defer func() {
		if p.known == nil {
			known()
		}
	}()
	_ = nc.SetDeadline(time.Now().Add(g.Limits.HeadTimeout)) // an error comes again from the first read
	if !p.more() {
		_ = nc.Close() // nothing was asked
		return
	}
	if p.held[0] == socks5 {
		p.serveSOCKS(known)
		return
	}
	p.serveHTTPProxy(known)
}

// giveWay ends a connection that showed no credential for too long, while
// others wait. Its own goroutine sees that it is closed.
func (p *proxied) giveWay() {
	c := p.conn(nil)
	c.client = newMeter(p.nc)
	c.refuse(policy.Decision{Reason: policy.ConnectionLimit, Message: "too many connections to the proxy have shown no credential yet"})
}

// more reads some bytes and says whether there were any.
func (p *proxied) more() bool {
	b := make([]byte, peekSize)
	n, err := p.nc.Read(b)
	p.held = append(p.held, b[:n]...)
	return n > 0 && err == nil
}

// Read gives what is held and then what comes.
func (p *proxied) Read(b []byte) (int, error) {
	if len(p.held) > 0 {
		n := copy(b, p.held)
		p.held = p.held[n:]
		return n, nil
	}
	return p.nc.Read(b)
}

// serveHTTPProxy reads the method of the first request. A CONNECT that gets
// no tunnel for want of a credential may be tried again.
func (p *proxied) serveHTTPProxy(known func()) {
	const method = "CONNECT "
	for range maxCredentials {
		for len(p.held) < len(method) && strings.HasPrefix(method, string(p.held)) {
			if !p.more() {
				_ = p.nc.Close() // nothing was asked
				return
			}
		}
		if !bytes.HasPrefix(p.held, []byte(method)) {
			p.servePlainProxy(known)
			return
		}
		head, d := p.head()
		if d != nil {
			p.conn(nil).refuseTunnel(p.tunnel(httpTunnel{}), *d)
			return
		}
		if again := p.connect(head, known); !again {
			return
		}
	}
	_ = p.nc.Close() // it was told why, and recorded, each time
}

// head takes a whole request head out of what is held.
func (p *proxied) head() ([]byte, *policy.Decision) {
	for {
		if end := bytes.Index(p.held, []byte("\r\n\r\n")); end >= 0 && end+4 <= p.g.Limits.MaxHead {
			head := p.held[:end+4]
			p.held = p.held[end+4:]
			return head, nil
		}
		if len(p.held) > p.g.Limits.MaxHead {
			return nil, deny(policy.HeaderTooLarge, "the request head is too large")
		}
		if !p.more() {
			return nil, deny(policy.ProtocolError, "the request head is incomplete")
		}
	}
}

// connect takes one CONNECT. It is true when the client may try again on the
// same connection.
func (p *proxied) connect(head []byte, known func()) (again bool) {
	c, v := http1.ParseConnect(head, p.g.Limits.MaxFields)
	if v != nil {
		p.conn(nil).refuseTunnel(p.tunnel(httpTunnel{}), *violation(v))
		return false
	}
	host, port, d := connectTarget(c)
	sb, ok := p.authenticate(c.Values("proxy-authorization"))
	if !ok {
		out := p.conn(nil)
		out.name(host, port)
		p.id = audit.NewID() // the next is another attempt
		return out.challenge(p.nc)
	}
	known()
	p.open(sb, host, port, httpTunnel{}, d)
	return false
}

// connectTarget reads the one authority that a CONNECT names (RFC 9112,
// section 3.2.3). Host, where the client sends it, names the same.
func connectTarget(c http1.Connect) (string, uint16, *policy.Decision) {
	host, port, err := policy.SplitAuthority(c.Target, 0)
	switch {
	case err != nil:
		return "", 0, deny(policy.BadHostname, "CONNECT target: "+err.Error())
	case port == 0:
		return host, 0, deny(policy.BadHostname, "the CONNECT target has no port")
	}
	for _, value := range c.Values("host") {
		h, hp, err := policy.SplitAuthority(value, port)
		switch {
		case err != nil:
			return host, port, deny(policy.BadHostname, "Host: "+err.Error())
		case h != host || hp != port:
			return host, port, deny(policy.AuthorityAmbiguous, "the CONNECT target and Host name different authorities")
		}
	}
	return host, port, nil
}

// authenticate reads the one credential of Proxy-Authorization (RFC 7617).
func (p *proxied) authenticate(values []string) (*identity.Sandbox, bool) {
	if len(values) != 1 {
		return nil, false
	}
	scheme, text, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "basic") {
		return nil, false
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, false
	}
	user, password, ok := strings.Cut(string(b), ":")
	if !ok {
		return nil, false
	}
	sb, ok := p.owner(user, password)
	return sb, ok && sb != nil
}

// conn begins an attempt of sb, or of nobody.
func (p *proxied) conn(sb *identity.Sandbox) *conn {
	return &conn{g: p.g, snap: p.g.snap.Load(), id: p.id, sandbox: sb, src: p.src, started: p.g.Now()}
}

// name sets what the client says that it wants to reach. Nothing was
// dialled, so there is no address.
func (c *conn) name(host string, port uint16) {
	c.host, c.dst, c.internal = host, netip.AddrPortFrom(netip.Addr{}, port), host == Name
}

// judgeName says how policy decides about what name has set, for any scheme.
func (c *conn) judgeName() policy.Decision {
	if c.internal {
		if p := c.dst.Port(); p != 80 && p != 443 {
			return policy.Decision{Reason: policy.PortNotAllowed, Message: Name + " answers on ports 80 and 443 only"}
		}
		return policy.Decision{Verdict: policy.Allow, Reason: policy.GatewayName}
	}
	d := c.snap.decide(c.request(policy.SchemeAny))
	switch {
	case d.Verdict == policy.Allow:
	case policy.IsIP(c.host):
		return policy.Decision{Reason: policy.IPLiteral, Rule: d.Rule,
			Message: "addresses cannot be dialled directly; use a name that the policy allows"}
	case c.dst.Port() == portDoT && d.Reason == policy.PortNotAllowed:
		d.Reason = policy.DoTBlocked
	}
	return d
}

// open goes on with a tunnel of sb to host and port, or refuses it for a
// reason that was found before.
func (p *proxied) open(sb *identity.Sandbox, host string, port uint16, as tunnelProtocol, refusal *policy.Decision) {
	c, t := p.conn(sb), p.tunnel(as)
	c.name(host, port)
	c.attach(t, p.held)
	defer c.survive()
	if refusal != nil {
		c.refuseTunnel(t, *refusal)
		return
	}
	c.state = p.g.state(sb.ID)
	out, ok := p.g.admit(c.state, c.connectionLimit())
	if !ok {
		c.refuseTunnel(t, policy.Decision{Reason: policy.ConnectionLimit, Message: "the sandbox holds too many connections at once"})
		return
	}
	if err := p.g.opened.add(c); err != nil {
		out()
		c.turnAway(err)
		return
	}
	c.client.whenClosed(out)
	_ = p.nc.SetDeadline(time.Time{}) // an error comes again from the first read
	ctx := context.Background()
	switch d := c.judgeName(); {
	case d.Verdict != policy.Allow:
		c.refuseTunnel(t, d)
	case c.internal:
		c.serveInternal(ctx)
	case d.Relay == policy.RelayTCP:
		c.scheme = policy.TCP
		c.relayTCP(ctx, d)
	default:
		c.peek(ctx, d, p.g.Limits.HelloTimeout)
	}
}

// attach makes t the sandbox's side of c. What was read beyond the request
// for the tunnel is its first bytes: some clients send their ClientHello
// without waiting.
func (c *conn) attach(t *tunnel, held []byte) {
	c.client = newMeter(t)
	t.c = c
	c.client.unread(held)
}

// refuseTunnel records a denial and answers with it.
func (c *conn) refuseTunnel(t *tunnel, d policy.Decision) {
	if c.client == nil {
		c.attach(t, nil)
	}
	c.refuse(d)
}

// challenge records an attempt without a right credential and asks for one.
func (c *conn) challenge(nc net.Conn) bool {
	c.client = newMeter(nc)
	if c.recordDenial(noCredential()) != nil {
		return false
	}
	_, err := io.WriteString(nc, challengeAnswer(c.id))
	return err == nil
}

func noCredential() policy.Decision {
	return policy.Decision{Reason: policy.UnknownSandbox, Message: "the proxy needs the credential of a sandbox (sallyport env --proxy shows it)"}
}

package gateway

import (
	"net"
	"net/netip"
	"strconv"

	"sallyport/audit"
	"sallyport/gateway/identity"
)

// connRecord is what every event about a connection says of it, and every
// request on it.
type connRecord struct {
	of        *identity.Sandbox
	host      string
	sandbox   *audit.Sandbox
	src, dst  *audit.Addr
	authority string // host and port
}

// peer is the address that the last exchange on a connection reached: the next
// one reaches the same as a rule.
type peer struct {
	addr netip.Addr
	text string
}

// recorded returns it; events share it.
func (c *conn) recorded() *connRecord {
	n := c.record.Load()
	if n == nil || n.of != c.sandbox || n.host != c.host { // who speaks is known later than that somebody does
		n = &connRecord{c.sandbox, c.host, sandboxOf(c.sandbox), addrOf(c.src), addrOf(c.dst),
			net.JoinHostPort(c.host, strconv.Itoa(int(c.dst.Port())))}
		c.record.Store(n)
	}
	return n
}

// event begins an event about the connection.
func (c *conn) event(kind audit.Kind, phase audit.Phase) *event {
	e := &event{}
	c.begin(e, kind, phase)
	return e
}

// begin is event in the place of e.
func (c *conn) begin(e *event, kind audit.Kind, phase audit.Phase) {
	e.of = c.snap
	e.Kind, e.Phase = kind, phase
	n := c.recorded()
	e.Sandbox, e.Src, e.Dst, e.Policy = n.sandbox, n.src, n.dst, policyOf(c.snap)
	e.Proto, e.Conn, e.Host, e.Port = "tcp", c.id, c.host, c.dst.Port()
	if c.sni != "" && c.sni != c.host {
		e.SNI = c.sni
	}
	e.TLS = c.tls.Load()
}

package gateway

import (
	"sallyport/audit"
	"sallyport/gateway/identity"
)

// connRecord is what every event about a connection says of it.
type connRecord struct {
	of       *identity.Sandbox
	sandbox  *audit.Sandbox
	src, dst *audit.Addr
}

// recorded returns it; events share it.
func (c *conn) recorded() *connRecord {
	n := c.record.Load()
	if n == nil || n.of != c.sandbox { // who speaks is known later than that somebody does
		n = &connRecord{c.sandbox, sandboxOf(c.sandbox), addrOf(c.src), addrOf(c.dst)}
		c.record.Store(n)
	}
	return n
}

// event begins an event about the connection.
func (c *conn) event(kind audit.Kind, phase audit.Phase) *event {
	e := &event{}
	e.Kind, e.Phase = kind, phase
	n := c.recorded()
	e.Sandbox, e.Src, e.Dst, e.Policy = n.sandbox, n.src, n.dst, policyOf(c.snap)
	e.Proto, e.Conn, e.Host, e.Port = "tcp", c.id, c.host, c.dst.Port()
	if c.sni != "" && c.sni != c.host {
		e.SNI = c.sni
	}
	e.TLS = c.tls.Load()
	return e
}

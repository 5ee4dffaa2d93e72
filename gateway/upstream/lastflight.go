package upstream

import (
	"crypto/tls"
	"time"
)

// lastFlightWait is how long the last flight of a handshake is kept for a
// request. As a rule one is written at once; a connection may also have been
// dialled for one that was sent over another meanwhile.
const lastFlightWait = 20 * time.Millisecond

// keepLastFlight has the last flight of a handshake of TLS 1.3, which no answer
// follows (RFC 8446, section 2), leave together with the first request: that is
// a system call and a segment less here, and a wake-up less at the peer. config
// is the connection's own.
func (c *conn) keepLastFlight(config *tls.Config) {
	verify := config.VerifyConnection
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if verify != nil {
			if err := verify(s); err != nil {
				return err
			}
		}
		if s.Version == tls.VersionTLS13 {
			c.records.gather()
			c.late.Store(time.AfterFunc(lastFlightWait, c.sendLastFlight))
		}
		return nil
	}
}

// sendLastFlight sends what is kept of a handshake.
func (c *conn) sendLastFlight() {
	_ = c.records.send((*sending)(c)) // an error comes again from the next write
}

// flushLastFlight sends what is kept, unless it was or is being sent.
func (c *conn) flushLastFlight() {
	if c.claimLastFlight() {
		c.sendLastFlight()
	}
}

// claimLastFlight reports whether its caller is the first to want the last
// flight of the handshake sent.
func (c *conn) claimLastFlight() bool {
	late := c.late.Load()
	return late != nil && late.Stop()
}

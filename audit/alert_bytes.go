package audit

import "strings"

// connBytes is what is known of the bytes of a connection.
type connBytes struct {
	sent, received int64  // in requests that have ended
	ended          bool   // the connection has
	host           string // of the connection, once it has ended
}

// maxConnBytes bounds the connections of which the bytes are remembered: twice
// as many. Of one that is forgotten, bytes may count a second time at its end.
const maxConnBytes = 16_384

// connEnds remembers what the ends of requests have told of their connections.
// The end of a connection tells of all bytes of it, heads and TLS with them;
// those of its requests, which may be hours earlier, tell of their bodies.
type connEnds struct {
	recent, before map[string]*connBytes
}

// add notes the end of a connection or of a request, and returns what was known
// before.
func (c *connEnds) add(e *Event) (told connBytes) {
	if e.Phase != PhaseEnd || e.Bytes == nil || e.Conn == "" {
		return connBytes{}
	}
	x := c.recent[e.Conn]
	if x == nil {
		if x = c.before[e.Conn]; x == nil {
			x = &connBytes{}
		}
		if c.recent == nil || len(c.recent) >= maxConnBytes {
			c.recent, c.before = make(map[string]*connBytes), c.recent
		}
		c.recent[e.Conn] = x
	}
	told = *x
	switch e.Kind {
	case KindConn:
		x.ended, x.host = true, hostOf(e)
	case KindHTTP, KindWS:
		x.sent += e.Bytes.Sent
		x.received += e.Bytes.Received
	}
	return told
}

// bytes are those of e that no event has told of to r before: a rule for one
// kind takes what events of that kind tell, another takes requests as they end
// and of their connection the rest.
func (r *AlertRule) bytes(e *Event, told connBytes) uint64 {
	if e.Bytes == nil {
		return 0
	}
	n, before := e.Bytes.Sent, told.sent
	if r.Sum == "bytes_received" {
		n, before = e.Bytes.Received, told.received
	}
	switch {
	case r.Kind != "":
	case e.Kind == KindConn:
		n -= before
	case told.ended && (r.Host == "" || glob(strings.ToLower(r.Host), strings.ToLower(told.host))):
		return 0 // it was among those of the connection
	}
	return uint64(max(n, 0))
}

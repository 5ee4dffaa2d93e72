package upstream

import (
	"context"
	"net/netip"
	"net/textproto"
	"time"
)

// Info is what is known of the connection that served an attempt.
type Info struct {
	Addr       netip.AddrPort
	Reused     bool
	TLSVersion string        // "1.2" or "1.3"; "" without TLS
	ALPN       string        // as negotiated; "" if nothing was
	Connect    time.Duration // dial and handshake; 0 when reused

	conn *conn // of HTTP/1.1
}

// Waiting is how many bytes of the answer's body, in their coding and of TLS,
// have at least arrived and were not read yet. It is to be asked only before the
// body has ended; over HTTP/2 it is 0.
func (i *Info) Waiting() int {
	if i.conn == nil {
		return 0
	}
	return i.conn.waiting()
}

// Attempt is what a request has to say besides itself.
type Attempt struct {
	Route Route
	// Info is filled in before RoundTrip or Dial returns; nil is not. An info
	// belongs to one attempt.
	Info *Info
	// Interim gets each informational answer (RFC 9110, section 15.2). An
	// error ends the attempt. Nil drops them.
	Interim func(code int, fields textproto.MIMEHeader) error
	// Watch is told of each connection that RoundTrip takes for the request, a
	// kept one too, before a byte is written over it; nil is not.
	Watch Watcher
}

// Watcher is told the address that a request goes to, which does not change.
// That of a kept connection may be none of its route's: an earlier lookup gave
// it, under the same ranges.
type Watcher interface {
	// Reached says whether the request may go there.
	Reached(peer *netip.AddrPort) bool
}

type attemptKey struct{}

// attemptContext holds an attempt.
type attemptContext struct {
	context.Context
	attempt *Attempt
}

// Value implements context.Context.
func (c *attemptContext) Value(key any) any {
	if a := c.attempt.Value(key); a != nil {
		return a
	}
	return c.Context.Value(key)
}

// Value returns a for the key by which RoundTrip looks for it in a context, and
// nil for any other: a context of the caller's own can hold a as WithAttempt's
// does.
func (a *Attempt) Value(key any) any {
	if _, ok := key.(attemptKey); ok {
		return a
	}
	return nil
}

// WithAttempt says where RoundTrip sends a request, and what it tells of it.
func WithAttempt(ctx context.Context, a *Attempt) context.Context {
	return &attemptContext{ctx, a}
}

// attemptOf returns the attempt in ctx, or nil.
func attemptOf(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
)

// dialClear connects for a transport, without TLS.
func (p *Pool) dialClear(ctx context.Context, _, addr string) (net.Conn, error) {
	c, err := p.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return newClearConn(c, c), nil
}

// errHandshakeTime ends a handshake that takes too long.
var errHandshakeTime = errors.New("upstream: TLS handshake timeout")

// dialTLS connects for a transport, and has verified the peer for the name in
// addr when it returns. Where HTTP/2 was agreed net/http needs the *tls.Conn
// itself.
func (p *Pool) dialTLS(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
	c, err := p.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	if config.ServerName, _, err = net.SplitHostPort(addr); err != nil {
		_ = c.Close() // nothing was sent
		return nil, err
	}
	c.secured = true
	if !slices.Contains(config.NextProtos, http2.NextProtoTLS) {
		c.keepLastFlight(config)
	}
	t := tls.Client(c, config)
	growStack32K()
	shaking, cancel := context.WithTimeoutCause(ctx, p.u.tlsTimeout, errHandshakeTime)
	defer cancel()
	if err := t.HandshakeContext(shaking); err != nil {
		c.flushLastFlight() // which is an alert
		_ = c.Close()       // it is of no use
		if context.Cause(shaking) == errHandshakeTime {
			err = errHandshakeTime
		}
		return nil, err
	}
	c.agreed(t.ConnectionState())
	if c.alpn == http2.NextProtoTLS {
		return t, nil
	}
	return newClearConn(t, c), nil
}

// upgrades reports whether net/http keeps a request to HTTP/1.1 (net/http,
// Request.requiresHTTP1).
func upgrades(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") && strings.EqualFold(h.Get("Upgrade"), "websocket")
}

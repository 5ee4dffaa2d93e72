package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"golang.org/x/net/http2"
)

// Windows of HTTP/2.
const (
	// wideWindow is how much of a response over HTTP/2 may run ahead of a
	// sandbox that reads slowly, in bytes, of the first maxWide that it has at
	// a time, and narrowWindow of each of the others: from far away so much
	// comes for each round trip. A thousand that are not read hold 248 MiB.
	wideWindow   = 2 << 20
	maxWide      = 64
	narrowWindow = 128 << 10
	// connWindow is all of a connection together: those on it that are not read
	// stop no other, be they maxWide or a thousand.
	connWindow = 128 << 20
)

// transport is where requests that may share connections go.
type transport struct {
	*http.Transport
	http2 *http2Conns // nil where HTTP/1.1 alone is offered
}

// newTransport returns a transport that dials the route of the request. An
// upgrade to WebSocket goes over a connection of its own on which nothing
// was offered; net/http keeps those apart as well. A session that was begun
// with a client certificate is resumed with it alone.
func (p *Pool) newTransport(client *tls.Certificate, o offer) (*transport, error) {
	http1, window := o == onlyHTTP1 || o == noOffer, wideWindow
	if o == narrowHTTP2 {
		window = narrowWindow
	}
	config := &tls.Config{RootCAs: p.u.roots, MinVersion: tls.VersionTLS12, ClientSessionCache: p.tickets}
	if client != nil {
		config.Certificates, config.ClientSessionCache = []tls.Certificate{*client}, tls.NewLRUClientSessionCache(0)
	}
	switch o {
	case noOffer:
	case onlyHTTP1:
		config.NextProtos = []string{protoHTTP1} // said, so that a server that has only HTTP/2 can refuse
		config.VerifyConnection = confirmsHTTP1
	default:
		config.NextProtos = []string{http2.NextProtoTLS, protoHTTP1}
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!http1)
	t := &transport{Transport: &http.Transport{
		Proxy:                  nil, // none, not the environment's
		DialContext:            p.dialClear,
		DialTLSContext:         func(ctx context.Context, _, addr string) (net.Conn, error) { return p.dialTLS(ctx, addr, config) },
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    p.u.maxIdlePerHost,
		IdleConnTimeout:        p.u.idleTimeout,
		ResponseHeaderTimeout:  p.u.headerTimeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		ForceAttemptHTTP2:      !http1,
		Protocols:              &protocols,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     window,
			MaxReceiveBufferPerConnection: connWindow,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
		},
	}}
	if http1 {
		return t, nil
	}
	var err error
	t.http2, err = newHTTP2Conns(t.Transport)
	return t, err
}

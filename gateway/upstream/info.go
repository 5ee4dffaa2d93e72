package upstream

import (
	"context"
	"net/netip"
	"time"
)

// Info is what is known of the connection that served an attempt.
type Info struct {
	Addr       netip.AddrPort
	Reused     bool
	TLSVersion string        // "1.2" or "1.3"; "" without TLS
	ALPN       string        // as negotiated; "" if nothing was
	Connect    time.Duration // dial and handshake; 0 when reused
}

type infoKey struct{}

// WithInfo has RoundTrip and Dial fill in info before they return. An info
// belongs to one attempt.
func WithInfo(ctx context.Context, info *Info) context.Context {
	return context.WithValue(ctx, infoKey{}, info)
}

func infoOf(ctx context.Context) *Info {
	info, _ := ctx.Value(infoKey{}).(*Info)
	return info
}

type routeKey struct{}

// WithRoute says where RoundTrip sends a request.
func WithRoute(ctx context.Context, r Route) context.Context {
	return context.WithValue(ctx, routeKey{}, r)
}

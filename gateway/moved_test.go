package gateway

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// TestP7KeptAddressIsTakenBack: a request does not live on to an address that
// the rule no longer names, which an earlier lookup than its own gave: its
// connection was kept.
func TestP7KeptAddressIsTakenBack(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			t.Parallel()
			here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
			var now atomic.Pointer[netip.Addr]
			now.Store(&there)
			l := newLab(t, func(_ *Deps, u *upstream.Options) {
				u.Lookup = func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{*now.Load()}, nil }
			})
			ln, err := net.Listen("tcp", "127.0.0.2:0")
			must(t, err)
			t.Cleanup(func() { _ = ln.Close() })
			port := l.serveOn(t, ln, "h2", "http/1.1").port
			l.allow("moves.test", port)
			l.load()
			client := l.client(t, h2)
			get := func(path string) *http.Response {
				r, err := client.Get(fmt.Sprintf("https://moves.test:%d%s", port, path))
				must(t, err)
				return r
			}
			_, _, err = body(get("/hello"), nil)
			must(t, err)
			now.Store(&here)
			l.awaitLookup(t, "moves.test", here)
			r := get("/drip")
			defer r.Body.Close()
			l.rules[0].Addresses = []netip.Prefix{netip.PrefixFrom(here, 32)}
			l.load()
			if _, _, err := body(r, nil); err == nil {
				t.Error("the answer came to its end")
			}
			e := l.await(t, "end as revoked", func(e *audit.Event) bool {
				return e.Kind == audit.KindHTTP && e.Phase == audit.PhaseEnd && e.Reason == string(policy.Revoked)
			})
			if e.Upstream == nil || e.Upstream.IP != there.String() || !e.Upstream.Reused {
				t.Errorf("upstream %+v", e.Upstream)
			}
		})
	}
}

// awaitLookup waits until host has an address, by asking for so many other names
// that the answer before is no longer kept.
func (l *lab) awaitLookup(t *testing.T, host string, addr netip.Addr) {
	t.Helper()
	ask := func(host string) netip.Addr {
		r, err := l.g.Upstream.Route(t.Context(), upstream.Target{Sandbox: "other", Host: host, Port: 443, Addresses: []netip.Prefix{loopback}}, nil)
		must(t, err)
		return r.Addrs[0]
	}
	for i := 0; ask(host) != addr; i++ {
		ask(fmt.Sprintf("other%d.test", i))
	}
}

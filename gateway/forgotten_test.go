package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// attempts are ways to have something admitted at port of api.test that then
// goes there, and what is decided about each.
var attempts = map[string]struct {
	kind  audit.Kind
	begin func(t *testing.T, l *lab, port uint16)
}{
	"plain": {audit.KindHTTP, func(t *testing.T, l *lab, port uint16) {
		say(t, l.raw(t, "api.test", port), "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
	}},
	"plain, half-closed": {audit.KindHTTP, func(t *testing.T, l *lab, port uint16) {
		c := say(t, l.raw(t, "api.test", port), "POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\n\r\nhello")
		must(t, c.(interface{ CloseWrite() error }).CloseWrite())
	}},
	"HTTP/1.1, half-closed": {audit.KindHTTP, func(t *testing.T, l *lab, port uint16) {
		c := l.rawTLS(t, "api.test", port)
		say(t, c, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n")
		must(t, c.CloseWrite())
	}},
	"HTTP/2": {audit.KindHTTP, func(t *testing.T, l *lab, port uint16) {
		s, _ := l.framer(t, "api.test", port)
		s.head(t, 1, true, ":method", "GET", ":scheme", "https", ":path", "/", ":authority", "api.test")
	}},
	"WebSocket": {audit.KindWS, func(t *testing.T, l *lab, port uint16) {
		say(t, l.rawTLS(t, "api.test", port), fmt.Sprintf(upgradeRequest, "/ws"))
	}},
	"request of a proxy, half-closed": {audit.KindHTTP, func(t *testing.T, l *lab, port uint16) {
		target := fmt.Sprintf("api.test:%d", port)
		c, _ := speak(t, l.proxy(t), "GET http://"+target+"/ HTTP/1.1\r\nHost: "+target+"\r\nProxy-Authorization: "+basic("ci", proxyPassword)+"\r\n\r\n")
		must(t, c.(*net.TCPConn).CloseWrite())
	}},
	"relay": {audit.KindConn, func(t *testing.T, l *lab, port uint16) {
		say(t, l.raw(t, "api.test", port), "x")
	}},
	"CONNECT": {audit.KindConn, func(t *testing.T, l *lab, port uint16) {
		speak(t, l.proxy(t), connect(fmt.Sprintf("api.test:%d", port))+"x")
	}},
	"SOCKS": {audit.KindConn, func(t *testing.T, l *lab, port uint16) {
		speak(t, l.proxy(t), socksHello(proxyPassword)+socksName5(socksConnect, "api.test", port)+"x")
	}},
}

// opaque makes a rule one of connections that are not opened, if they are not.
func opaque(unopened bool) func(*policy.Rule) {
	return func(r *policy.Rule) {
		if unopened {
			r.Action, r.Schemes = policy.ActionTCP, nil
		}
	}
}

// TestForgottenBeforeEntry: what is admitted in the moment in which its sandbox
// ends is revoked, and goes nowhere.
func TestForgottenBeforeEntry(t *testing.T) {
	for name, tt := range attempts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			var dialled atomic.Int64
			port := l.script(t, func(net.Conn) { dialled.Add(1) })
			l.allow("api.test", port, opaque(tt.kind == audit.KindConn))
			l.load()
			begun := make(chan struct{})
			forget := sync.OnceFunc(func() {
				<-begun
				l.g.Forget(l.sandbox.ID)
			})
			l.recorder.failWhen(func(e *audit.Event) error {
				if e.Kind == tt.kind && e.Phase == audit.PhaseDecision {
					forget()
				}
				return nil
			})
			func() {
				defer close(begun)
				tt.begin(t, l, port)
			}()
			l.await(t, "end as revoked", func(e *audit.Event) bool {
				return e.Kind == tt.kind && e.Phase == audit.PhaseEnd && e.Reason == string(policy.Revoked) && e.Message == errForgotten.Error()
			})
			l.stop()
			if n := dialled.Load(); n != 0 {
				t.Errorf("%d connections to the origin", n)
			}
		})
	}
}

// TestForgottenInALookup: what waits for its host when its sandbox ends is
// never admitted. A request does not wait on.
func TestForgottenInALookup(t *testing.T) {
	for name, tt := range attempts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, release := make(chan struct{}), make(chan struct{})
			l := newLab(t, func(_ *Deps, u *upstream.Options) {
				delete(u.Hosts, "api.test")
				u.Lookup = func(context.Context, string) ([]netip.Addr, error) {
					close(asked)
					<-release
					return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
				}
			})
			answer := sync.OnceFunc(func() { close(release) })
			t.Cleanup(answer)
			var dialled atomic.Int64
			port := l.script(t, func(net.Conn) { dialled.Add(1) })
			l.allow("api.test", port, opaque(tt.kind == audit.KindConn))
			l.load()
			tt.begin(t, l, port)
			<-asked
			l.g.Forget(l.sandbox.ID)
			if tt.kind == audit.KindConn {
				answer()
			}
			l.denied(t, tt.kind, policy.Revoked)
			answer()
			l.stop()
			if n := dialled.Load(); n != 0 {
				t.Errorf("%d connections to the origin", n)
			}
		})
	}
}

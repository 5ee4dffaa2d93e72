package gateway

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/audit"
	"sallyport/gateway/upstream"
	"sallyport/policy"
)

// TestMintingFlood: names that are denied get a certificate, with which they
// are told why, only so often; each is on record all the same.
func TestMintingFlood(t *testing.T) {
	const names = explainBurst + 60
	now := time.Now()
	l := newLab(t, func(d *Deps, _ *upstream.Options) { d.Now = func() time.Time { return now } })
	l.load()
	var explained atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < names; i += 8 {
				c, err := l.dialAddr(t.Context(), netip.AddrPortFrom(l.g.Pool.Denied(false), 443))
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(20 * time.Second)) // an error comes again
				if tls.Client(c, &tls.Config{RootCAs: l.roots, ServerName: fmt.Sprintf("flood%d.test", i)}).Handshake() == nil {
					explained.Add(1)
				}
				_ = c.Close()
			}
		})
	}
	wg.Wait()
	if n := explained.Load(); n != explainBurst {
		t.Errorf("%d certificates were made for %d names", n, names)
	}
	denied := l.events(func(e *audit.Event) bool {
		return e.Kind == audit.KindConn && e.Verdict == "deny" && e.Reason == string(policy.HostNotAllowed)
	})
	hosts := map[string]bool{}
	for _, e := range denied {
		hosts[e.Host] = true
	}
	if len(denied) != names || len(hosts) != names {
		t.Errorf("%d connections to %d names are recorded", len(denied), len(hosts))
	}
}

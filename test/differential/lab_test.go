package differential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/certs"
	"sallyport/gateway"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
	"sallyport/gateway/inject"
	"sallyport/gateway/upstream"
	"sallyport/policy"
	"sallyport/secrets"
	"sallyport/test/virtual"
)

// domain is what every case has a name of its own below, by which all that
// was seen of it anywhere is found again.
const domain = "diff.test"

// lab is a gateway between clients that write by hand and the two origins.
// Only the original destination of a connection is made up.
type lab struct {
	t       testing.TB
	g       *gateway.Gateway
	sandbox *identity.Sandbox
	logDir  string
	roots   *x509.CertPool // what the sandbox trusts
	origins *certs.Leaves  // of the origins' own authority

	in   *virtual.Listener
	stop func()
}

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{t: t, logDir: t.TempDir(), in: virtual.Listen(t),
		sandbox: &identity.Sandbox{Name: "ci", ID: audit.NewID(), Policy: "ci"}}
	ca, roots := virtual.Authority(t)
	l.roots = roots
	originCA, originRoots := virtual.Authority(t)
	l.origins = certs.NewLeaves(originCA, certs.LeavesOptions{Max: 4096})
	log, err := audit.Open(audit.Options{Dir: l.logDir, Sync: audit.SyncNever})
	must(t, err)
	store := virtual.NewStore()
	pool, err := dns.NewPool(netip.Prefix{}, netip.Prefix{}, store)
	must(t, err)
	up, err := upstream.New(upstream.Options{Roots: originRoots, Self: func() []netip.Addr { return nil },
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}})
	must(t, err)
	l.g, err = gateway.New(gateway.Deps{Logger: hclog.NewNullLogger(), Audit: log, Leaves: certs.NewLeaves(ca, certs.LeavesOptions{Max: 4096}),
		Upstream: up, Pool: pool, Budgets: store, TicketKey: [32]byte{1},
		Internal: func(*identity.Sandbox, string) ([]byte, string, bool) { return nil, "", false }})
	must(t, err)
	l.serve(log, up)
	return l
}

// serve runs the gateway. After stop all that it did is recorded, and none
// of its connections to an origin is open.
func (l *lab) serve(log *audit.Log, up *upstream.Upstream) {
	ctx, cancel := context.WithCancel(context.Background())
	ran, served := make(chan error, 1), make(chan error, 1)
	go func() { ran <- l.g.Run(ctx, 5*time.Second) }()
	in := &gateway.Inbound{Name: "test", TCP: []net.Listener{l.in}, Identify: func(netip.Addr) (*identity.Sandbox, bool) { return l.sandbox, true }}
	go func() { served <- l.g.Serve(ctx, in) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		for _, c := range []chan error{served, ran} {
			select {
			case err := <-c:
				if err != nil {
					l.t.Errorf("gateway: %v", err)
				}
			case <-time.After(30 * time.Second):
				l.t.Error("gateway did not end")
			}
		}
		_ = l.in.Close()
		up.Close()
		if err := log.Close(); err != nil {
			l.t.Errorf("audit log: %v", err)
		}
	})
	l.t.Cleanup(l.stop)
}

// allow puts in force that every case's name may be reached on the ports.
func (l *lab) allow(ports ...uint16) {
	l.t.Helper()
	doc := policy.Document{SHA256: strings.Repeat("0", 64), Sandboxes: []policy.Sandbox{{Name: "ci", Rules: []policy.Rule{{
		Pos: policy.Pos{File: "ci.hcl", Line: 2, Column: 3}, Action: policy.ActionAllow, Host: "*." + domain, Ports: ports,
		Schemes: []policy.Scheme{policy.HTTPS, policy.HTTP}, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}}}}
	set, problems := policy.Compile(doc, 1)
	for _, p := range problems {
		if p.Severity == policy.Error {
			l.t.Fatalf("policy: %s %s", p.Summary, p.Detail)
		}
	}
	store, err := secrets.Open(secrets.Options{})
	must(l.t, err)
	l.t.Cleanup(func() { _ = store.Close() })
	l.g.Swap(&gateway.Snapshot{Policy: set, Inject: inject.NewTable(nil, set.Sandboxes(), []byte("key")), Secrets: store, Held: gateway.NewHeld(nil)})
}

// dial opens a connection of the sandbox to a name that it has just looked up.
func (l *lab) dial(host string, port uint16) (*net.TCPConn, error) {
	addr, err := l.g.Pool.Lease(l.sandbox.ID, host, false)
	if err != nil {
		return nil, err
	}
	return l.in.Dial(context.Background(), netip.AddrPortFrom(addr, port))
}

// secure opens TLS on a connection of the sandbox.
func (l *lab) secure(c net.Conn, host string, protocols ...string) (*tls.Conn, error) {
	t := tls.Client(c, &tls.Config{RootCAs: l.roots, ServerName: host, NextProtos: protocols})
	return t, t.Handshake()
}

// events returns all that was recorded, by the host of the attempt.
func (l *lab) events() map[string][]*audit.Event {
	l.t.Helper()
	out := map[string][]*audit.Event{}
	for e, err := range audit.Read(context.Background(), []string{l.logDir}, audit.Filter{}) {
		if err != nil {
			l.t.Fatalf("audit log: %v", err)
		}
		out[e.Host] = append(out[e.Host], e)
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

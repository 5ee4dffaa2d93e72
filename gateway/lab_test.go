package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"sallyport/audit"
	"sallyport/certs"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
	"sallyport/gateway/inject"
	"sallyport/gateway/upstream"
	"sallyport/policy"
	"sallyport/secrets"
	"sallyport/test/virtual"
)

// loopback is where the origins of the lab are; rules must name it.
var loopback = netip.MustParsePrefix("127.0.0.0/8")

const (
	secretName  = "API_KEY"
	secretValue = "real-secret-5d1f"
)

// lab is a gateway with a sandbox before it and origins behind it, on real
// sockets of the loopback interface. Only the original destination of a
// connection is made up.
type lab struct {
	t        testing.TB
	g        *Gateway
	sandbox  *identity.Sandbox
	logDir   string
	roots    *x509.CertPool // what the sandbox trusts
	origins  *certs.Leaves  // of the origins' own authority
	hosts    map[string][]netip.Addr
	rules    []policy.Rule
	mode     policy.Mode
	limits   policy.Limits // of the sandbox
	path     bool          // the secret may stand in paths
	gen      uint64
	store    *secrets.Store
	recorder *recorder

	in   *virtual.Listener
	stop func()
}

// option changes what a lab is built from.
type option func(*Deps, *upstream.Options)

// newLab starts a gateway with no policy in force; allow and load give it one.
func newLab(t testing.TB, options ...option) *lab {
	t.Helper()
	l := &lab{t: t, logDir: t.TempDir(), hosts: map[string][]netip.Addr{}, in: virtual.Listen(t),
		sandbox: &identity.Sandbox{Name: "ci", ID: audit.NewID(), Policy: "ci"}}
	ca, trusted := virtual.Authority(t)
	l.roots = trusted
	originCA, originRoots := virtual.Authority(t)
	l.origins = certs.NewLeaves(originCA, certs.LeavesOptions{})
	log, err := audit.Open(audit.Options{Dir: l.logDir, Sync: audit.SyncNever})
	must(t, err)
	l.recorder = &recorder{Log: log}
	store := virtual.NewStore()
	pool, err := dns.NewPool(netip.Prefix{}, netip.Prefix{}, store)
	must(t, err)
	uo := upstream.Options{Hosts: l.hosts, Roots: originRoots, Self: func() []netip.Addr { return nil },
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}}
	d := Deps{Logger: hclog.NewNullLogger(), Audit: l.recorder, Leaves: certs.NewLeaves(ca, certs.LeavesOptions{}), Pool: pool, Budgets: store,
		TicketKey: [32]byte{1}, Internal: func(*identity.Sandbox, string) ([]byte, string, bool) { return nil, "", false }}
	l.store, err = secrets.Open(secrets.Options{Specs: []secrets.Spec{{Name: secretName, Kind: "test", Source: constant(secretValue)}}})
	must(t, err)
	for _, h := range []string{"api.test", "h1.test", "other.test", "plain.test", "grpc.test", "raw.test", "evil.test"} {
		uo.Hosts[h] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	}
	for _, o := range options {
		o(&d, &uo)
	}
	d.Upstream, err = upstream.New(uo)
	must(t, err)
	l.g, err = New(d)
	must(t, err)
	l.serve(log)
	return l
}

// serve runs the gateway and arranges for its end, after which the log must
// tell a whole story.
func (l *lab) serve(log *audit.Log) {
	ctx, cancel := context.WithCancel(context.Background())
	ran, served := make(chan error, 1), make(chan error, 1)
	go func() { ran <- l.g.Run(ctx, 300*time.Millisecond) }()
	in := &Inbound{Name: "test", TCP: []net.Listener{l.in}, Identify: func(netip.Addr) (*identity.Sandbox, bool) { return l.sandbox, l.sandbox != nil }}
	go func() { served <- l.g.Serve(ctx, in) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		for _, c := range []chan error{served, ran} {
			select {
			case err := <-c:
				if err != nil {
					l.t.Errorf("gateway: %v", err)
				}
			case <-time.After(20 * time.Second):
				l.t.Error("gateway did not end")
			}
		}
		_ = l.in.Close()
		l.g.Upstream.Close()
		_ = l.store.Close()
		if err := log.Close(); err != nil {
			l.t.Errorf("audit log: %v", err)
		}
	})
	l.t.Cleanup(func() {
		l.stop()
		l.whole()
	})
}

// allow adds a rule for a host of the lab on a port.
func (l *lab) allow(host string, port uint16, change ...func(*policy.Rule)) {
	r := policy.Rule{Pos: policy.Pos{File: "ci.hcl", Line: 10 + len(l.rules), Column: 3}, Action: policy.ActionAllow, Host: host,
		Ports: []uint16{port}, Schemes: []policy.Scheme{policy.HTTPS, policy.HTTP}, Addresses: []netip.Prefix{loopback}}
	for _, c := range change {
		c(&r)
	}
	l.rules = append(l.rules, r)
}

// load puts the rules in force.
func (l *lab) load() {
	l.t.Helper()
	l.g.Swap(l.snapshot())
}

func (l *lab) snapshot() *Snapshot {
	l.t.Helper()
	l.gen++
	spec := policy.Secret{Name: secretName, Hosts: []string{"api.test", "grpc.test"}, Path: l.path}
	doc := policy.Document{Sandboxes: []policy.Sandbox{{Name: "ci", Rules: slices.Clone(l.rules), Mode: l.mode, Limits: l.limits}},
		Secrets: []policy.Secret{spec}, SHA256: strings.Repeat("0", 64)}
	set, problems := policy.Compile(doc, l.gen)
	for _, p := range problems {
		if p.Severity == policy.Error {
			l.t.Fatalf("policy: %s: %s %s", p.Pos, p.Summary, p.Detail)
		}
	}
	table := inject.NewTable([]inject.Secret{{Name: secretName, Spec: set.Secret(secretName),
		Covers: func(h string) bool { return set.SecretCovers(secretName, h) }}}, set.Sandboxes(), []byte("key"))
	return &Snapshot{Policy: set, Inject: table, Secrets: l.store, Held: NewHeld(l.store.Held())}
}

// dial opens a connection of the sandbox to a name, as if the name had just
// been looked up.
func (l *lab) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil:
	case host == Name:
		addr = l.g.Pool.Gateway(false)
	default:
		if addr, err = l.g.Pool.Lease(l.sandbox.ID, host, false); err != nil {
			return nil, err
		}
	}
	return l.dialAddr(ctx, netip.AddrPortFrom(addr, port))
}

// dialAddr opens a connection of the sandbox to an address.
func (l *lab) dialAddr(ctx context.Context, dst netip.AddrPort) (net.Conn, error) {
	return l.in.Dial(ctx, dst)
}

// raw opens a connection for a test that speaks by hand.
func (l *lab) raw(t testing.TB, host string, port uint16) net.Conn {
	t.Helper()
	c, err := l.dial(t.Context(), host, port)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// rawTLS opens TLS by hand, with the ALPN protocols that are given.
func (l *lab) rawTLS(t testing.TB, host string, port uint16, protocols ...string) *tls.Conn {
	t.Helper()
	c := tls.Client(l.raw(t, host, port), &tls.Config{RootCAs: l.roots, ServerName: host, NextProtos: protocols})
	must(t, c.Handshake())
	return c
}

// client returns an HTTP client of the sandbox.
func (l *lab) client(t testing.TB, h2 bool) *http.Client {
	tr := l.transport(h2)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (l *lab) transport(h2 bool) *http.Transport {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: l.roots}, DisableCompression: true, ExpectContinueTimeout: 5 * time.Second,
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, p, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			port, err := strconv.ParseUint(p, 10, 16)
			if err != nil {
				return nil, err
			}
			return l.dial(ctx, host, uint16(port))
		}}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetHTTP2(h2)
	return tr
}

// events returns what has been recorded, in order.
func (l *lab) events(match func(*audit.Event) bool) []*audit.Event {
	l.t.Helper()
	var out []*audit.Event
	for e, err := range audit.Read(context.Background(), []string{l.logDir}, audit.Filter{}) {
		if err != nil {
			l.t.Fatalf("audit log: %v", err)
		}
		if match == nil || match(e) {
			out = append(out, e)
		}
	}
	return out
}

// await waits for an event that matches; events that nothing waits for are
// written after the answer.
func (l *lab) await(t testing.TB, what string, match func(*audit.Event) bool) *audit.Event {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if found := l.events(match); len(found) > 0 {
			return found[0]
		}
	}
	for _, e := range l.events(nil) {
		t.Log(e.Kind, e.Phase, e.Verdict, e.Reason, e.Host, e.Message)
	}
	t.Fatalf("no event: %s", what)
	return nil
}

// denied waits for a denial.
func (l *lab) denied(t testing.TB, kind audit.Kind, reason policy.Reason) *audit.Event {
	t.Helper()
	return l.await(t, fmt.Sprintf("%s denied for %s", kind, reason), func(e *audit.Event) bool {
		return e.Kind == kind && e.Phase == audit.PhaseDecision && e.Verdict == "deny" && e.Reason == string(reason)
	})
}

// whole checks the whole log: each attempt has one decision, each admitted
// one has one end, and nothing else has.
func (l *lab) whole() {
	type key struct{ kind, id string }
	decisions, ends := map[key][]*audit.Event{}, map[key]int{}
	for _, e := range l.events(nil) {
		k := key{string(e.Kind), e.Conn}
		switch {
		case e.Kind == audit.KindHTTP, e.Kind == audit.KindWS:
			k.id = e.Req
		case e.Kind != audit.KindConn && e.Kind != audit.KindTLS:
			continue
		}
		switch e.Phase {
		case audit.PhaseDecision:
			decisions[k] = append(decisions[k], e)
			if ends[k] > 0 {
				l.t.Errorf("%v: end before its decision", k)
			}
		case audit.PhaseEnd:
			ends[k]++
		}
	}
	for k, ds := range decisions {
		if len(ds) != 1 {
			l.t.Errorf("%v: %d decisions: %s", k, len(ds), reasons(ds))
		}
		switch want := 0; {
		case ds[0].Verdict == "allow":
			want = 1
			fallthrough
		default:
			if ends[k] != want {
				l.t.Errorf("%v: %s %s has %d ends", k, ds[0].Verdict, ds[0].Reason, ends[k])
			}
		}
	}
	for k := range ends {
		if len(decisions[k]) == 0 {
			l.t.Errorf("%v: an end without a decision", k)
		}
	}
}

func reasons(es []*audit.Event) string {
	var out []string
	for _, e := range es {
		out = append(out, e.Verdict+" "+e.Reason)
	}
	return strings.Join(out, ", ")
}

// recorder is the audit log, which a test can make unwritable.
type recorder struct {
	*audit.Log
	mu   sync.Mutex
	fail func(*audit.Event) error
}

func (r *recorder) Write(e *audit.Event) error {
	r.mu.Lock()
	fail := r.fail
	r.mu.Unlock()
	if fail != nil {
		if err := fail(e); err != nil {
			return err
		}
	}
	return r.Log.Write(e)
}

func (r *recorder) WriteAll(es []*audit.Event) []error {
	r.mu.Lock()
	fails := r.fail != nil
	r.mu.Unlock()
	if !fails {
		return r.Log.WriteAll(es)
	}
	errs, failed := make([]error, len(es)), false
	for i, e := range es {
		errs[i] = r.Write(e)
		failed = failed || errs[i] != nil
	}
	if !failed {
		return nil
	}
	return errs
}

func (r *recorder) failWhen(f func(*audit.Event) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = f
}

// constant is a source with one value.
type constant string

func (c constant) Fetch(context.Context) (secrets.Fetched, error) {
	v, err := secrets.NewValue([]byte(c))
	return secrets.Fetched{Value: v}, err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// whole body of an answer, with the error that ended it.
func body(r *http.Response, err error) (*http.Response, string, error) {
	if err != nil {
		return nil, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r, string(b), err
}

// ended waits until a connection has been closed by the other side.
func ended(t testing.TB, c net.Conn, within time.Duration) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(within)))
	_, err := io.Copy(io.Discard, c)
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		t.Fatalf("the connection is still open after %v", within)
	}
}

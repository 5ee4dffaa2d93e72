// Package gateway is the order of things: what arrives of a sandbox is
// identified, decided by policy, recorded, and only then relayed.
//
// Read question.go for a DNS question, conn.go for a connection and
// request.go for an HTTP request, each from top to bottom.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	"sallyport/audit"
	"sallyport/certs"
	"sallyport/gateway/dns"
	"sallyport/gateway/identity"
	"sallyport/gateway/inject"
	"sallyport/gateway/upstream"
	"sallyport/policy"
	"sallyport/secrets"
)

// Name is the host under which a sandbox finds the gateway's own files.
const Name = "sallyport.internal"

// Recorder writes one event. It returns when the event would survive the end
// of the process; until then nothing of the attempt may leave. Of an end it may
// return earlier: nothing waits for that. It keeps no event but a denial: others
// are written to again. WriteAll is Write of several decisions that were made
// together; it returns nil or the error of each.
type Recorder interface {
	Write(*audit.Event) error
	WriteAll([]*audit.Event) []error
}

// Snapshot is what a reload replaces. It is loaded once for each question,
// connection and request, so that one attempt is judged by one version.
type Snapshot struct {
	Policy  *policy.Set
	Inject  *inject.Table
	Secrets *secrets.Store
	Held    *Held

	recorded *audit.Policy // Policy for the record, once it is in force
	rules    sync.Map      // *policy.Rule → *audit.Rule, of those that decided
}

// DeniedMode is how a denied name is answered.
type DeniedMode uint8

const (
	Explain  DeniedMode = iota // one shared address, which says why over HTTP and HTTPS
	Refused                    // REFUSED for every type
	NXDomain                   // NXDOMAIN for every type
)

// Deps is what lives as long as the process. Every field without a default
// must be set; New refuses what is missing.
type Deps struct {
	Logger    hclog.Logger
	Audit     Recorder
	Leaves    *certs.Leaves
	Upstream  *upstream.Upstream
	Pool      *dns.Pool
	Budgets   Store
	TicketKey [32]byte // from which session ticket keys are derived, per name

	// Internal returns a file of http://sallyport.internal/ as sb sees it,
	// with its media type.
	Internal func(sb *identity.Sandbox, path string) (body []byte, mediaType string, ok bool)

	Denied DeniedMode
	Limits Limits
	Now    func() time.Time // default time.Now
}

// Limits bound what one gateway holds. A zero field is its default.
type Limits struct {
	Connections        int           // open at once, all sandboxes; default 16384
	SandboxConnections int           // open at once, one sandbox; default 1024
	HelloTimeout       time.Duration // until a ClientHello or request line is whole; default 10 s
	HeadTimeout        time.Duration // until a request head is whole; default 30 s
	IdleTimeout        time.Duration // a kept connection without a request; default 5 min
	StallTimeout       time.Duration // a write, or a body being read, that makes no progress; default 15 min
	RelayIdle          time.Duration // a relay or exchange without a byte in either direction; default 2 h
	MaxHead            int           // bytes of a request head; default 128 KiB
	MaxFields          int           // header fields of a request; default 512
}

func (l *Limits) defaults() {
	set := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	wait := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	set(&l.Connections, 16384)
	set(&l.SandboxConnections, 1024)
	set(&l.MaxHead, 128<<10)
	set(&l.MaxFields, 512)
	wait(&l.HelloTimeout, 10*time.Second)
	wait(&l.HeadTimeout, 30*time.Second)
	wait(&l.IdleTimeout, 5*time.Minute)
	wait(&l.StallTimeout, 15*time.Minute)
	wait(&l.RelayIdle, 2*time.Hour)
}

// Gateway serves sandboxes. Make one with New, start it with Run, and give
// it ways in with Serve.
type Gateway struct {
	Deps
	snap       atomic.Pointer[Snapshot]
	front      *front
	engine     *engine
	configs    *tlsConfigs
	live       live
	allowances *allowances
	states     sync.Map // lifecycle ID → *sandboxState
	open       atomic.Int64
	holds      holding
	unpacks    holding
	denied     atomic.Uint64
	idle       idleCollector
	opened     opened
	serving    tracker // goroutines of serveConn
	handling   tracker // goroutines of serveHTTP
}

// New returns a Gateway that denies everything until Swap gives it a policy.
func New(d Deps) (*Gateway, error) {
	switch {
	case d.Logger == nil:
		return nil, errors.New("gateway: no logger")
	case d.Audit == nil:
		return nil, errors.New("gateway: no audit log")
	case d.Leaves == nil:
		return nil, errors.New("gateway: no certificate authority")
	case d.Upstream == nil:
		return nil, errors.New("gateway: no upstream")
	case d.Pool == nil:
		return nil, errors.New("gateway: no pool of virtual addresses")
	case d.Budgets == nil:
		return nil, errors.New("gateway: no store for byte budgets")
	case d.TicketKey == [32]byte{}:
		return nil, errors.New("gateway: no session ticket key")
	case d.Internal == nil:
		return nil, errors.New("gateway: no files for " + Name)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	d.Limits.defaults()
	g := &Gateway{Deps: d}
	configs, err := newTLSConfigs(d.Leaves, d.TicketKey)
	if err != nil {
		return nil, err
	}
	g.configs = configs
	if g.allowances, err = newAllowances(d.Budgets, d.Now); err != nil {
		return nil, err
	}
	g.engine = newEngine(d.Logger)
	g.front = newFront(g)
	return g, nil
}

// Swap puts s in force and re-decides what is open: an attempt that s denies
// is cut before Swap returns, and a connection closed that was kept to explain a
// refusal, if s allows its host.
func (g *Gateway) Swap(s *Snapshot) {
	if s != nil {
		s.recorded = policyOf(s)
	}
	g.snap.Store(s)
	g.recheck()
	g.opened.resetRefused(s)
}

// Snapshot returns what is in force, or nil before the first Swap.
func (g *Gateway) Snapshot() *Snapshot { return g.snap.Load() }

// Policy returns the policy in force, or nil before the first Swap.
func (g *Gateway) Policy() *policy.Set {
	if s := g.snap.Load(); s != nil {
		return s.Policy
	}
	return nil
}

// Run serves HTTP on the connections that Serve brings, until ctx ends. It
// then lets requests finish for the time that grace gives, cuts the rest, and
// returns when the end of everything has been recorded.
func (g *Gateway) Run(ctx context.Context, grace time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- g.front.serve() }()
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			g.idle.rested += g.front.look()
			continue
		case <-tick.C:
			g.recheck()
			g.live.expire(g.Now())
			g.saveBudgets()
			g.idle.tick()
			continue
		case err := <-done:
			return err
		case <-ctx.Done():
		}
		break
	}
	drain, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	closed := g.front.shutdown(drain)
	g.live.waitFor(drain)
	g.live.cutAll()
	g.opened.end()
	<-closed
	g.serving.end()
	g.handling.end()
	<-done
	g.saveBudgets()
	return nil
}

func (g *Gateway) saveBudgets() {
	if err := g.allowances.save(); err != nil {
		g.Logger.Error("byte budgets were not kept", "error", err)
	}
}

// Forget cuts everything of a sandbox whose life has ended. What is not entered
// among what is open by then sees by itself that it has.
func (g *Gateway) Forget(id string) {
	g.state(id).ended.Store(true) // before anything is cut, or dropped
	g.live.cutSandbox(id)
	g.opened.revokeSandbox(id)
	g.Upstream.CloseSandbox(id)
	g.states.Delete(id)
	if err := g.allowances.forget(id); err != nil {
		g.Logger.Error("byte budgets of a sandbox that has ended are still kept", "sandbox", id, "error", err)
	}
}

// Open returns how many connections of sandboxes are open.
func (g *Gateway) Open() int64 { return g.open.Load() }

// CutAll cuts everything that is open.
func (g *Gateway) CutAll() { g.live.cutAll() }

// recheckEvery is how often open attempts are re-decided without a reload,
// because rules expire.
const recheckEvery = 5 * time.Second

func (g *Gateway) recheck() {
	g.live.recheck(g.snap.Load(), g.Now())
}

// decide asks the policy in force. Without one, everything is denied.
func (s *Snapshot) decide(r policy.Request) policy.Decision {
	if s == nil || s.Policy == nil {
		return policy.Decision{Reason: policy.PolicyUnavailable, Message: "the gateway has no policy in force"}
	}
	return s.Policy.Decide(r)
}

// Explanations cost a handshake and perhaps a certificate; a sandbox gets so
// many a second. Past that it is refused without being told why.
const (
	explainRate  = 50
	explainBurst = 200
)

// sandboxState is what the gateway counts for one life of a sandbox.
type sandboxState struct {
	ended   atomic.Bool // the life
	open    atomic.Int64
	running atomic.Int64 // requests
	holds   holding
	unpacks holding
	explain *rate.Limiter
	refusal *pace
	used    usage
	edges   atomic.Int64 // of ranges that cut a value, by answers
}

// usage is what one life of a sandbox has sent and received, in bytes, over
// all its connections.
type usage struct{ sent, received atomic.Int64 }

// Used returns what the sandbox of a lifecycle ID has sent and received, in
// bytes, over all its connections.
func (g *Gateway) Used(id string) (sent, received int64) {
	u := &g.state(id).used
	return u.sent.Load(), u.received.Load()
}

func (g *Gateway) state(id string) *sandboxState {
	if s, ok := g.states.Load(id); ok {
		return s.(*sandboxState)
	}
	s, _ := g.states.LoadOrStore(id, &sandboxState{explain: rate.NewLimiter(explainRate, explainBurst), refusal: newPace()})
	return s.(*sandboxState)
}

// admit counts a connection in, or says that the limit is reached. The
// returned function counts it out.
func (g *Gateway) admit(s *sandboxState, limit int64) (func(), bool) {
	out := func() { s.open.Add(-1); g.open.Add(-1) } // who sees that none is open may open as many again
	all, own := g.open.Add(1), s.open.Add(1)
	if all > int64(g.Limits.Connections) || own > g.atOnce(limit) {
		out()
		return nil, false
	}
	return out, true
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// tlsVersion returns the short name that the audit log uses.
func tlsVersion(v uint16) string {
	switch v {
	case tls.VersionTLS12:
		return "1.2"
	case tls.VersionTLS13:
		return "1.3"
	}
	return ""
}

// Package upstream is the gateway's own way to the origins: it resolves a
// name, classes every address, dials one of those that it checked, verifies
// the certificate for the name, and keeps the connections of each sandbox
// apart from those of every other.
//
// Nothing here reads a proxy from the environment, and nothing is dialled
// that did not come through Route.
package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Defaults of Options.
const (
	DefaultDialTimeout = 10 * time.Second // all addresses of a name together
	DefaultTLSTimeout  = 10 * time.Second
	// DefaultHeaderTimeout bounds the wait for a response's header once the
	// request is written. Long polls and slow models answer late, so it only
	// keeps a dead peer from being waited for without end.
	DefaultHeaderTimeout  = time.Hour
	DefaultIdleTimeout    = 90 * time.Second
	DefaultMaxIdlePerHost = 256
)

// LookupFunc asks for the A and AAAA addresses of a canonical name.
type LookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

// Options configure an Upstream. A zero limit is its default.
type Options struct {
	// Resolvers are the servers to ask, "ip:port", in order; none means the
	// system's. Either way /etc/hosts is read before a server is asked.
	Resolvers []string
	// Hosts are names that are not asked for: their addresses are checked
	// like any other.
	Hosts map[string][]netip.Addr
	// Roots are whom an upstream's certificate is verified against; nil is
	// the system's.
	Roots *x509.CertPool
	// Self returns the gateway's own addresses. It is called for each Route
	// and Dial. Nil is the addresses of the interfaces that this process sees:
	// as they are at each Dial, and for a Route not older than a second.
	Self func() []netip.Addr
	// NAT64 are the network's translation prefixes besides 64:ff9b::/96.
	NAT64 []netip.Prefix

	DialTimeout    time.Duration
	TLSTimeout     time.Duration
	HeaderTimeout  time.Duration
	IdleTimeout    time.Duration
	MaxIdlePerHost int // idle connections kept for each sandbox and host

	// Logger gets, at debug level, the causes of failures with the addresses
	// that errors leave out. Nil logs nothing.
	Logger hclog.Logger

	// Lookup replaces the resolvers.
	Lookup LookupFunc
}

// Upstream reaches origins on behalf of sandboxes. It is safe for use by many
// goroutines at once.
type Upstream struct {
	hosts    map[string][]netip.Addr
	resolver *resolver
	self     func() []netip.Addr // for a look before a decision
	selfNow  func() []netip.Addr // for the look before a connection
	nat64    []netip.Prefix
	roots    *x509.CertPool
	log      hclog.Logger
	connect  func(context.Context, netip.AddrPort) (net.Conn, error) // dialOne

	dialTimeout, tlsTimeout, headerTimeout, idleTimeout time.Duration
	maxIdlePerHost                                      int

	chunks  chunkBuffers
	own     *interfaces
	bodies  bodyBuffers
	records Buffers

	mu     sync.Mutex
	closed bool
	pools  map[string]*Pool // by lifecycle ID
	ended  []string         // IDs of CloseSandbox, the last rememberEnded
}

// New returns an Upstream. Close ends it.
func New(o Options) (*Upstream, error) {
	u := &Upstream{
		self:           o.Self,
		selfNow:        o.Self,
		nat64:          o.NAT64,
		roots:          o.Roots,
		log:            o.Logger,
		connect:        dialOne,
		dialTimeout:    orDefault(o.DialTimeout, DefaultDialTimeout),
		tlsTimeout:     orDefault(o.TLSTimeout, DefaultTLSTimeout),
		headerTimeout:  orDefault(o.HeaderTimeout, DefaultHeaderTimeout),
		idleTimeout:    orDefault(o.IdleTimeout, DefaultIdleTimeout),
		maxIdlePerHost: orDefault(o.MaxIdlePerHost, DefaultMaxIdlePerHost),
		pools:          make(map[string]*Pool),
	}
	if u.log == nil {
		u.log = hclog.NewNullLogger()
	}
	if u.self == nil {
		u.own = &interfaces{}
		u.self, u.selfNow = u.own.recent, u.own.now
	}
	var err error
	if u.hosts, err = staticHosts(o.Hosts); err != nil {
		return nil, err
	}
	for _, p := range o.NAT64 {
		if !TranslationPrefix(p) {
			return nil, fmt.Errorf("upstream nat64: %s is not an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits", p)
		}
	}
	if u.roots == nil {
		if u.roots, err = Roots(nil); err != nil {
			return nil, err
		}
	}
	lookup := o.Lookup
	if lookup == nil {
		if lookup, err = newLookup(o.Resolvers); err != nil {
			return nil, err
		}
	}
	u.resolver = newResolver(lookup)
	return u, nil
}

// staticHosts returns the static hosts by canonical name.
func staticHosts(in map[string][]netip.Addr) (map[string][]netip.Addr, error) {
	out := make(map[string][]netip.Addr, len(in))
	for name, addrs := range in {
		host := strings.ToLower(strings.TrimSuffix(name, "."))
		switch {
		case !validName(host):
			return nil, fmt.Errorf("upstream hosts: %q is not a host name", name)
		case len(addrs) == 0:
			return nil, fmt.Errorf("upstream hosts: %q has no address", name)
		case slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsValid() }):
			return nil, fmt.Errorf("upstream hosts: %q has an invalid address", name)
		}
		out[host] = slices.Clone(addrs)
	}
	return out, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// errClosed is what an Upstream or a Pool answers once it has been closed.
var errClosed = errors.New("upstream: closed")

// failed passes an error on and logs its cause.
func (u *Upstream) failed(t Target, err error) error {
	if !u.log.IsDebug() {
		return err
	}
	cause := err
	if e, ok := errors.AsType[*Error](err); ok && e.Err != nil {
		cause = e.Err
	}
	args := []any{"sandbox", t.Sandbox, "host", t.Host, "port", t.Port, "error", cause}
	if r, ok := errors.AsType[*Refusal](err); ok {
		args = append(args, "address", r.Addr)
	}
	u.log.Debug("upstream failed", args...)
	return err
}

// rememberEnded is how many IDs of sandboxes that have ended an Upstream knows:
// more than end while a request of one is under way.
const rememberEnded = 1024

// Transport returns the pool of one life of a sandbox. It does not change
// until CloseSandbox; after that, it is one that fails.
func (u *Upstream) Transport(sandboxID string) *Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	p, ok := u.pools[sandboxID]
	if !ok {
		p = newPool(u, sandboxID)
		p.closed = u.closed || slices.Contains(u.ended, sandboxID)
		if !p.closed {
			u.pools[sandboxID] = p
		}
	}
	return p
}

// CloseSandbox cuts every pooled connection of a sandbox whose life has ended,
// also those in use. Its ID gets no others; an ID is never used for a second
// life. Connections that Dial returned belong to the caller.
func (u *Upstream) CloseSandbox(id string) {
	u.mu.Lock()
	p := u.pools[id]
	delete(u.pools, id)
	if !slices.Contains(u.ended, id) {
		if len(u.ended) == rememberEnded {
			u.ended = slices.Delete(u.ended, 0, 1)
		}
		u.ended = append(u.ended, id)
	}
	u.mu.Unlock()
	if p != nil {
		p.close()
	}
}

// CloseIdle closes the connections that no request uses, of all sandboxes.
func (u *Upstream) CloseIdle() {
	for _, p := range u.all(false) {
		p.closeIdle()
	}
}

// Close cuts every pooled connection and waits for questions under way.
// Everything that is asked of the Upstream afterwards fails.
func (u *Upstream) Close() {
	for _, p := range u.all(true) {
		p.close()
	}
	u.resolver.close()
	if u.own != nil {
		u.own.close()
	}
}

// all returns the pools, and with end none is handed out any more.
func (u *Upstream) all(end bool) []*Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]*Pool, 0, len(u.pools))
	for _, p := range u.pools {
		out = append(out, p)
	}
	if end {
		u.closed = true
		clear(u.pools)
	}
	return out
}

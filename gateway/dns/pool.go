package dns

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Offsets from the beginning of a pool's prefix.
const (
	offsetGateway = 1 // 198.18.0.1: sallyport.internal
	offsetDenied  = 2 // 198.18.0.2: every denied name
	firstLease    = 3
)

// Buckets of the Store.
const (
	bucketLeases = "dns_leases" // sandbox ID, NUL, host → offset, 4 bytes big-endian
	bucketPools  = "dns_pools"  // prefix → empty: every prefix leased from
)

// DefaultMaxLeases is how many names one sandbox may have leased in its life.
// At about 100 bytes each, that bounds what it can make the gateway hold.
const DefaultMaxLeases = 65536

// Errors of Pool that callers tell apart.
var (
	// ErrPoolExhausted says that the sandbox has as many leases as it may have
	// in its life. Other sandboxes are not concerned.
	ErrPoolExhausted = errors.New("virtual addresses exhausted")
	// ErrEnded says that the sandbox was forgotten.
	ErrEnded = errors.New("sandbox has ended")
)

// DefaultPool4 returns the prefix IPv4 leases come from: 198.18.0.0/15, set
// aside for tests of network devices (RFC 2544) and so used by no host.
func DefaultPool4() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18}), 15)
}

// DefaultPool6 returns the prefix IPv6 leases come from, the unique-local
// fd73:616c:6c79::/64 ("sally"; RFC 4193). It never leaves a sandbox.
func DefaultPool6() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 's', 'a', 'l', 'l', 'y'}), 64)
}

// Store keeps leases over a restart. Put returns when the value is kept, and
// PutAll when all are, or an error and none or all are; the bytes given to fn are
// valid until it returns.
type Store interface {
	Put(bucket string, key, value []byte) error
	PutAll(bucket string, pairs map[string][]byte) error
	ForEach(bucket string, fn func(k, v []byte) error) error
	Delete(bucket string, key []byte) error
}

// PoolOptions of a Pool. Zero fields are the defaults.
type PoolOptions struct {
	Prefix4   netip.Prefix // DefaultPool4; at most 29 bits
	Prefix6   netip.Prefix // DefaultPool6; 64 to 120 bits
	Reserved  []netip.Addr // never leased, in either family
	MaxLeases int          // of one sandbox in its life; DefaultMaxLeases
	Store     Store        // required
}

// Pool leases virtual addresses to names, for each sandbox by itself: a lease
// is an offset, and stands for the address at that offset in either family.
// Offsets are given out once, in their order, and never again in the
// sandbox's life, so an address a sandbox has cached can never come to mean
// another name. Two sandboxes may hold one address for different names: which
// sandbox speaks is known from its socket.
type Pool struct {
	o        PoolOptions
	reserved map[uint32]bool // offsets

	mu        sync.RWMutex
	sandboxes map[string]*leases
	ended     []string // the last that were forgotten: a question may still be on its way
}

// rememberEnded is how many forgotten sandboxes a Pool knows as such.
const rememberEnded = 1024

// leases of one sandbox.
type leases struct {
	// granting is held by whoever adds leases, through the write to the
	// Store; mu only to change the maps, so that a lookup never waits for a
	// disk.
	granting sync.Mutex
	unsure   []string // the hosts whose PutAll failed: they may be kept or not
	ended    bool     // guarded by granting

	mu     sync.RWMutex
	wishes []*wish // nobody has begun to grant them
	byHost map[string]uint32
	hosts  []string // by offset - firstLease; "" was skipped
}

// NewPool returns the Pool of the prefixes p4 and p6 with the leases that s
// holds. A zero prefix is the default one.
func NewPool(p4, p6 netip.Prefix, s Store) (*Pool, error) {
	return OpenPool(PoolOptions{Prefix4: p4, Prefix6: p6, Store: s})
}

// GoodPool4 says whether a Pool can have its IPv4 addresses from p.
func GoodPool4(p netip.Prefix) bool {
	return p.Addr().Is4() && p.Bits() >= 8 && p.Bits() <= 29
}

// OpenPool returns the Pool of o with the leases its Store holds.
func OpenPool(o PoolOptions) (*Pool, error) {
	if o.Store == nil {
		return nil, errors.New("dns pool: store is required")
	}
	if !o.Prefix4.IsValid() {
		o.Prefix4 = DefaultPool4()
	}
	if !o.Prefix6.IsValid() {
		o.Prefix6 = DefaultPool6()
	}
	if o.MaxLeases <= 0 {
		o.MaxLeases = DefaultMaxLeases
	}
	o.MaxLeases = min(o.MaxLeases, maxKeptOffset/2)
	o.Prefix4, o.Prefix6 = o.Prefix4.Masked(), o.Prefix6.Masked()
	if !GoodPool4(o.Prefix4) {
		return nil, fmt.Errorf("dns pool %s: not an IPv4 prefix of 8 to 29 bits", o.Prefix4)
	}
	if !o.Prefix6.Addr().Is6() || o.Prefix6.Addr().Is4In6() || o.Prefix6.Bits() < 64 || o.Prefix6.Bits() > 120 {
		return nil, fmt.Errorf("dns pool %s: not an IPv6 prefix of 64 to 120 bits", o.Prefix6)
	}
	p := &Pool{o: o, reserved: map[uint32]bool{}, sandboxes: map[string]*leases{}}
	for _, a := range o.Reserved {
		if off, ok := p.offset(a); ok {
			p.reserved[off] = true
		}
	}
	if err := p.load(); err != nil {
		return nil, fmt.Errorf("dns pool: %w", err)
	}
	return p, nil
}

// Lease returns the virtual address of the canonical host in the sandbox: the
// one it had, or a fresh one, which is in the Store before it is returned.
func (p *Pool) Lease(sandboxID, host string, v6 bool) (netip.Addr, error) {
	l, err := p.of(sandboxID)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("lease for %q: %w", host, err)
	}
	off, ok := l.offsetOf(host)
	if !ok {
		if off, err = p.grant(l, sandboxID, host, p.size(v6)); err != nil {
			return netip.Addr{}, fmt.Errorf("lease for %q: %w", host, err)
		}
	}
	if off >= p.size(v6) { // of a pool that was larger, or is in the other family
		return netip.Addr{}, fmt.Errorf("lease for %q: %w", host, ErrPoolExhausted)
	}
	return p.address(off, v6), nil
}

// Leased is Lease of a host that has its address already. It waits for nothing,
// and reports false for every other host.
func (p *Pool) Leased(sandboxID, host string, v6 bool) (addr netip.Addr, ok bool) {
	p.mu.RLock()
	l := p.sandboxes[sandboxID]
	p.mu.RUnlock()
	if l == nil {
		return netip.Addr{}, false
	}
	off, ok := l.offsetOf(host)
	if !ok || off >= p.size(v6) {
		return netip.Addr{}, false
	}
	return p.address(off, v6), true
}

// Lookup returns the host that a was leased to in the sandbox.
func (p *Pool) Lookup(sandboxID string, a netip.Addr) (host string, ok bool) {
	off, ok := p.offset(a)
	if !ok || off < firstLease {
		return "", false
	}
	p.mu.RLock()
	l := p.sandboxes[sandboxID]
	p.mu.RUnlock()
	if l == nil {
		return "", false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if i := int(off - firstLease); i < len(l.hosts) {
		host = l.hosts[i]
	}
	return host, host != ""
}

// Contains reports whether a is in the pool, leased or not.
func (p *Pool) Contains(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return p.o.Prefix4.Contains(a) || p.o.Prefix6.Contains(a)
}

// Gateway returns the gateway's own address, that of sallyport.internal.
func (p *Pool) Gateway(v6 bool) netip.Addr { return p.address(offsetGateway, v6) }

// Denied returns the address that every denied name shares.
func (p *Pool) Denied(v6 bool) netip.Addr { return p.address(offsetDenied, v6) }

// Sandboxes returns the IDs that hold leases, sorted, so that after a start
// those no longer registered can be forgotten.
func (p *Pool) Sandboxes() []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	ids := make([]string, 0, len(p.sandboxes))
	for id := range p.sandboxes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Forget drops the leases of a sandbox that has ended. Its ID leases nothing
// from then on; an ID is never used for a second life.
func (p *Pool) Forget(sandboxID string) error {
	p.mu.Lock()
	l := p.sandboxes[sandboxID]
	delete(p.sandboxes, sandboxID)
	if !slices.Contains(p.ended, sandboxID) {
		if len(p.ended) == rememberEnded {
			p.ended = slices.Delete(p.ended, 0, 1)
		}
		p.ended = append(p.ended, sandboxID)
	}
	p.mu.Unlock()
	if l == nil {
		return nil
	}
	l.granting.Lock()
	defer l.granting.Unlock()
	l.ended = true
	hosts := slices.Collect(maps.Keys(l.byHost))
	for _, host := range append(hosts, l.unsure...) {
		if err := p.o.Store.Delete(bucketLeases, []byte(leaseKey(sandboxID, host))); err != nil {
			return fmt.Errorf("forget sandbox %q: %w", sandboxID, err)
		}
	}
	return nil
}

// of returns the leases of the sandbox, made if there are none.
func (p *Pool) of(sandboxID string) (*leases, error) {
	p.mu.RLock()
	l := p.sandboxes[sandboxID]
	p.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	if sandboxID == "" || strings.IndexByte(sandboxID, 0) >= 0 {
		return nil, fmt.Errorf("sandbox ID %q is not valid", sandboxID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.sandboxes[sandboxID]; l != nil {
		return l, nil
	}
	if slices.Contains(p.ended, sandboxID) {
		return nil, ErrEnded
	}
	l = &leases{byHost: map[string]uint32{}}
	p.sandboxes[sandboxID] = l
	return l, nil
}

func (l *leases) offsetOf(host string) (uint32, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	off, ok := l.byHost[host]
	return off, ok
}

// put records a lease that is in the Store.
func (l *leases) put(host string, off uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := int(off - firstLease)
	if more := i + 1 - len(l.hosts); more > 0 {
		l.hosts = append(l.hosts, make([]string, more)...)
	}
	l.hosts[i] = host
	l.byHost[host] = off
}

func leaseKey(sandboxID, host string) string { return sandboxID + "\x00" + host }

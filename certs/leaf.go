package certs

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// DefaultLeafLife is how long a leaf is valid after it was minted. With
	// the backdating it stays far under the 398 days, and the 47 to come,
	// that clients accept.
	DefaultLeafLife = 7 * 24 * time.Hour

	// DefaultMaxLeaves bounds the cache; a leaf holds about 2 KiB.
	DefaultMaxLeaves = 4096

	maxLeafLife = 90 * 24 * time.Hour
)

// LeavesOptions are the bounds of a leaf cache. The zero value is ready for use.
type LeavesOptions struct {
	Max  int              // leaves kept; 0 is DefaultMaxLeaves
	Life time.Duration    // validity from the minting on; 0 is DefaultLeafLife, at most 90 days
	Now  func() time.Time // nil is time.Now
}

// Leaves mints and keeps leaf certificates of one CA. All share one key: it
// proves nothing to a sandbox that the CA does not prove already, and a key
// for each name would cost more than the signature. Leaves is safe for use by
// many goroutines at once.
type Leaves struct {
	mint *minter
	max  int
	life time.Duration
	now  func() time.Time

	mu    sync.Mutex
	byKey map[string]*list.Element // of *leaf
	order *list.List               // most recently used first

	hits, misses uint64
}

// leaf is one name's certificate. The first that asks mints it, the others
// wait on once.
type leaf struct {
	host  string
	renew time.Time // after which it is minted anew; fixed when the entry is made
	once  sync.Once
	cert  *tls.Certificate
	err   error
}

// NewLeaves returns an empty cache of leaves that c signs.
func NewLeaves(c *CA, o LeavesOptions) *Leaves {
	if o.Max <= 0 {
		o.Max = DefaultMaxLeaves
	}
	if o.Life <= 0 {
		o.Life = DefaultLeafLife
	}
	if o.Life > maxLeafLife {
		o.Life = maxLeafLife
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Leaves{
		mint:  &minter{ca: c},
		max:   o.Max,
		life:  o.Life,
		now:   o.Now,
		byKey: make(map[string]*list.Element),
		order: list.New(),
	}
}

// Leaf returns the certificate for a canonical host: a DNS name, or an IP
// literal without brackets. It holds exactly that name. The certificate is
// shared: do not write to it. This is on the path of every handshake and does
// not allocate when the leaf is there.
func (l *Leaves) Leaf(host string) (*tls.Certificate, error) {
	e, err := l.entry(host)
	if err != nil {
		return nil, err
	}
	e.once.Do(func() { e.cert, e.err = l.mint.leaf(e.host, l.now(), l.life) })
	if e.err != nil {
		l.drop(e)
		return nil, e.err
	}
	return e.cert, nil
}

// Asked returns how often a leaf was asked for that was kept, and how often one
// that had to be minted.
func (l *Leaves) Asked() (hits, misses uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hits, l.misses
}

// Len returns how many leaves are kept.
func (l *Leaves) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.Len()
}

// entry finds or makes the entry of a host. A leaf is renewed when half of
// its life has passed, so that what is served always has days left.
// A host that cannot have a leaf never takes the place of one that can.
func (l *Leaves) entry(host string) (*leaf, error) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if el, ok := l.byKey[host]; ok {
		e := el.Value.(*leaf)
		if now.Before(e.renew) {
			l.order.MoveToFront(el)
			l.hits++
			return e, nil
		}
		l.remove(el)
	}
	if _, err := checkHost(host); err != nil {
		return nil, err
	}
	for l.order.Len() >= l.max {
		l.remove(l.order.Back())
	}
	e := &leaf{host: strings.Clone(host), renew: now.Add(l.life / 2)}
	l.byKey[e.host] = l.order.PushFront(e)
	l.misses++
	return e, nil
}

// drop forgets an entry whose minting went wrong, unless it has been replaced.
func (l *Leaves) drop(e *leaf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if el, ok := l.byKey[e.host]; ok && el.Value.(*leaf) == e {
		l.remove(el)
	}
}

func (l *Leaves) remove(el *list.Element) {
	delete(l.byKey, el.Value.(*leaf).host)
	l.order.Remove(el)
}

// checkHost reports why no certificate can be made for host.
func checkHost(host string) (ip netip.Addr, err error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return ip, fmt.Errorf("leaf %q: an address with a zone has no certificate", host)
		}
		return ip.Unmap(), nil
	}
	if host == "" || len(host) > 253 {
		return netip.Addr{}, fmt.Errorf("leaf: a name of %d bytes is not a host name", len(host))
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return netip.Addr{}, fmt.Errorf("leaf %q: not a host name", host)
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return netip.Addr{}, fmt.Errorf("leaf %q: not a canonical host name", host)
			}
		}
	}
	return netip.Addr{}, nil
}

// newLeafKey makes the key that all leaves of one cache share. Browsers
// refuse Ed25519; every client takes P-256.
func newLeafKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

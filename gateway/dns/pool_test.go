package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var noPrefix netip.Prefix

func newPool(t testing.TB, o PoolOptions) *Pool {
	t.Helper()
	if o.Store == nil {
		o.Store = newMemoryStore()
	}
	p, err := OpenPool(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func lease(t testing.TB, p *Pool, id, host string, v6 bool) netip.Addr {
	t.Helper()
	a, err := p.Lease(id, host, v6)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPoolAddresses(t *testing.T) {
	p, err := NewPool(noPrefix, noPrefix, newMemoryStore())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{
		p.Gateway(false).String(), p.Denied(false).String(), lease(t, p, "s1", "a.test", false).String(),
		p.Gateway(true).String(), p.Denied(true).String(), lease(t, p, "s1", "a.test", true).String(),
		lease(t, p, "s1", "b.test", true).String(), lease(t, p, "s1", "b.test", false).String(),
	}
	want := []string{
		"198.18.0.1", "198.18.0.2", "198.18.0.3",
		"fd73:616c:6c79::1", "fd73:616c:6c79::2", "fd73:616c:6c79::3",
		"fd73:616c:6c79::4", "198.18.0.4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	for a, want := range map[string]bool{
		"198.18.0.0": true, "198.19.255.255": true, "198.17.255.255": false, "198.20.0.0": false, "::ffff:198.18.0.3": true,
		"fd73:616c:6c79::": true, "fd73:616c:6c79:0:ffff::": true, "fd73:616c:6c79:1::": false, "::1": false,
	} {
		if got := p.Contains(netip.MustParseAddr(a)); got != want {
			t.Errorf("Contains(%s) = %v", a, got)
		}
	}
	if p.Contains(netip.Addr{}) {
		t.Error("the zero address is in the pool")
	}
}

func TestPoolLookup(t *testing.T) {
	p := newPool(t, PoolOptions{})
	lease(t, p, "s1", "a.test", false)
	lease(t, p, "s2", "b.test", false)
	tests := []struct{ id, addr, host string }{
		{"s1", "198.18.0.3", "a.test"},
		{"s2", "198.18.0.3", "b.test"}, // the same address, another sandbox
		{"s1", "::ffff:198.18.0.3", "a.test"},
		{"s1", "fd73:616c:6c79::3", "a.test"},
		{"s1", "fd73:616c:6c79::3%eth0", "a.test"},
		{"s1", "198.18.0.4", ""},
		{"s1", "198.18.0.0", ""},
		{"s1", "198.18.0.1", ""},
		{"s1", "198.18.0.2", ""},
		{"s1", "198.19.255.255", ""},
		{"s1", "fd73:616c:6c79:0:1::3", ""},
		{"s1", "fd73:616c:6c79:0:0:1:0:3", ""},
		{"s1", "fd73:616c:6c79:1::3", ""},
		{"s1", "192.0.2.3", ""},
		{"s3", "198.18.0.3", ""},
		{"", "198.18.0.3", ""},
	}
	for _, tt := range tests {
		host, ok := p.Lookup(tt.id, netip.MustParseAddr(tt.addr))
		if host != tt.host || ok != (tt.host != "") {
			t.Errorf("Lookup(%s, %s) = %q, %v, want %q", tt.id, tt.addr, host, ok, tt.host)
		}
	}
	if _, ok := p.Lookup("s1", netip.Addr{}); ok {
		t.Error("the zero address was leased")
	}
}

func TestDNS21AddressIsNeverAnothersName(t *testing.T) {
	store := newMemoryStore()
	o := PoolOptions{Prefix4: netip.MustParsePrefix("198.18.0.0/24"), Store: store, Reserved: []netip.Addr{netip.MustParseAddr("198.18.0.9")}}
	p := newPool(t, o)
	owner := map[netip.Addr]string{}
	granted := 0
	for i := range 600 {
		if i == 100 { // in the middle, the gateway restarts
			p = newPool(t, o)
		}
		host := fmt.Sprintf("h%d.test", i)
		a, err := p.Lease("s1", host, false)
		if errors.Is(err, ErrPoolExhausted) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if owner[a] != "" {
			t.Fatalf("%s was %s and is now %s", a, owner[a], host)
		}
		owner[a] = host
		granted++
	}
	if granted != 256-3-1-1 { // network, gateway, denied; broadcast; reserved
		t.Errorf("%d leases of a /24", granted)
	}
	for a, host := range owner {
		if a == netip.MustParseAddr("198.18.0.9") || a == p.Gateway(false) || a == p.Denied(false) {
			t.Errorf("%s was leased", a)
		}
		if got, _ := p.Lookup("s1", a); got != host {
			t.Errorf("%s is %q, was %q", a, got, host)
		}
		if again := lease(t, p, "s1", host, false); again != a {
			t.Errorf("%s moved from %s to %s", host, a, again)
		}
	}
}

func TestNET08LeasesSurviveRestart(t *testing.T) {
	store := newMemoryStore()
	p := newPool(t, PoolOptions{Store: store})
	before := map[string]netip.Addr{}
	for _, id := range []string{"s1", "s2"} {
		for i := range 50 {
			host := fmt.Sprintf("h%d.%s.test", i, id)
			before[id+" "+host] = lease(t, p, id, host, i%2 == 0)
		}
	}
	p = newPool(t, PoolOptions{Store: store})
	if diff := cmp.Diff([]string{"s1", "s2"}, p.Sandboxes()); diff != "" {
		t.Errorf("sandboxes (-want +got):\n%s", diff)
	}
	for k, a := range before {
		id, host, _ := strings.Cut(k, " ")
		if got, _ := p.Lookup(id, a); got != host {
			t.Errorf("%s: %s is %q after a restart", k, a, got)
		}
		if got := lease(t, p, id, host, a.Is6()); got != a {
			t.Errorf("%s: moved from %s to %s", k, a, got)
		}
	}
	puts := store.puts
	if a := lease(t, p, "s1", "new.test", false); a.String() != "198.18.0.53" || store.puts != puts+1 {
		t.Errorf("first lease after a restart is %s, %d writes", a, store.puts-puts)
	}
}

func TestDNS23ExhaustionIsTheSandboxsOwn(t *testing.T) {
	p := newPool(t, PoolOptions{MaxLeases: 100})
	for i := range 1000 {
		_, err := p.Lease("hostile", fmt.Sprintf("x%d.wild.test", i), false)
		if (i < 100) != (err == nil) || err != nil && !errors.Is(err, ErrPoolExhausted) {
			t.Fatalf("lease %d: %v", i, err)
		}
	}
	if a := lease(t, p, "hostile", "x7.wild.test", false); a.String() != "198.18.0.10" {
		t.Errorf("an old lease is now %s", a)
	}
	if a := lease(t, p, "other", "a.test", false); a.String() != "198.18.0.3" {
		t.Errorf("another sandbox got %s", a)
	}
}

func TestLeaseIsKeptBeforeItIsAnswered(t *testing.T) {
	full := errors.New("no space left on device")
	store := newMemoryStore()
	p := newPool(t, PoolOptions{Store: store})
	for _, kept := range []bool{false, true} { // a write that failed may be there all the same
		store.fail = func(string) (bool, error) { return kept, full }
		id := fmt.Sprintf("s-%v", kept)
		for _, host := range []string{"a.test", "b.test", "a.test"} {
			if a, err := p.Lease(id, host, false); !errors.Is(err, full) {
				t.Errorf("lease %s that is not kept: %s, %v", host, a, err)
			}
		}
		if host, ok := p.Lookup(id, netip.MustParseAddr("198.18.0.3")); ok {
			t.Errorf("a lease that is not kept stands for %q", host)
		}
		store.fail = nil
		b := lease(t, p, id, "b.test", false)
		p = newPool(t, PoolOptions{Store: store})
		if host, _ := p.Lookup(id, b); host != "b.test" {
			t.Errorf("%s is %q after a restart", b, host)
		}
		if a := lease(t, p, id, "a.test", false); a == b {
			t.Errorf("a.test and b.test share %s", a)
		}
	}
}

func TestPoolRefuses(t *testing.T) {
	p := newPool(t, PoolOptions{})
	for _, tt := range []struct{ id, host string }{
		{"", "a.test"}, {"s\x001", "a.test"}, {"s1", ""}, {"s1", "a\x00.test"}, {"s1", strings.Repeat("x", 256)},
	} {
		if a, err := p.Lease(tt.id, tt.host, false); err == nil {
			t.Errorf("Lease(%q, %q) = %s", tt.id, tt.host, a)
		}
	}
}

func TestForget(t *testing.T) {
	store := newMemoryStore()
	p := newPool(t, PoolOptions{Store: store})
	lease(t, p, "s1", "a.test", false)
	lease(t, p, "s2", "b.test", false)
	if err := p.Forget("s1"); err != nil {
		t.Fatal(err)
	}
	if err := p.Forget("never"); err != nil {
		t.Error(err)
	}
	if host, ok := p.Lookup("s1", netip.MustParseAddr("198.18.0.3")); ok {
		t.Errorf("address of a forgotten sandbox is %q", host)
	}
	if a, err := p.Lease("s1", "c.test", false); !errors.Is(err, ErrEnded) {
		t.Errorf("forgotten sandbox leased %s, %v", a, err)
	}
	if diff := cmp.Diff(map[string]string{"s2\x00b.test": "\x00\x00\x00\x03"}, store.buckets[bucketLeases]); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	for i := range 2 * rememberEnded {
		p.Forget(fmt.Sprint("gone", i))
	}
	if len(p.ended) != rememberEnded {
		t.Errorf("%d forgotten sandboxes are remembered", len(p.ended))
	}
}

// TestForgetUnsure ends a sandbox whose last write failed and was kept.
func TestForgetUnsure(t *testing.T) {
	store := newMemoryStore()
	p := newPool(t, PoolOptions{Store: store})
	store.fail = func(string) (bool, error) { return true, errors.New("sync: input/output error") }
	if a, err := p.Lease("s1", "a.test", false); err == nil {
		t.Fatalf("leased %s", a)
	}
	store.fail = nil
	if err := p.Forget("s1"); err != nil {
		t.Fatal(err)
	}
	if n := len(store.buckets[bucketLeases]); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

func TestOpenPool(t *testing.T) {
	prefix := netip.MustParsePrefix
	kept := func(k, v string) *memoryStore {
		s := newMemoryStore()
		s.Put(bucketLeases, []byte(k), []byte(v))
		return s
	}
	twice := kept("s1\x00a.test", "\x00\x00\x00\x05")
	twice.Put(bucketLeases, []byte("s1\x00b.test"), []byte("\x00\x00\x00\x05"))
	tests := []struct {
		name string
		o    PoolOptions
		want string // in the error; "" is none
	}{
		{"no store", PoolOptions{}, "store is required"},
		{"IPv6 for IPv4", PoolOptions{Prefix4: prefix("fd00::/64"), Store: newMemoryStore()}, "not an IPv4 prefix"},
		{"IPv4 too small", PoolOptions{Prefix4: prefix("198.18.0.0/30"), Store: newMemoryStore()}, "not an IPv4 prefix"},
		{"IPv4 smallest", PoolOptions{Prefix4: prefix("198.18.0.0/29"), Store: newMemoryStore()}, ""},
		{"IPv4 everything", PoolOptions{Prefix4: prefix("0.0.0.0/0"), Store: newMemoryStore()}, "not an IPv4 prefix"},
		{"IPv4 for IPv6", PoolOptions{Prefix6: prefix("198.18.0.0/15"), Store: newMemoryStore()}, "not an IPv6 prefix"},
		{"IPv6 too large", PoolOptions{Prefix6: prefix("fd00::/48"), Store: newMemoryStore()}, "not an IPv6 prefix"},
		{"IPv6 small", PoolOptions{Prefix6: prefix("fd00::/120"), Store: newMemoryStore()}, ""},
		{"lease without a host", PoolOptions{Store: kept("s1", "\x00\x00\x00\x05")}, "not readable"},
		{"lease of nobody", PoolOptions{Store: kept("\x00a.test", "\x00\x00\x00\x05")}, "not readable"},
		{"lease cut off", PoolOptions{Store: kept("s1\x00a.test", "\x00\x05")}, "not readable"},
		{"lease of the gateway's address", PoolOptions{Store: kept("s1\x00a.test", "\x00\x00\x00\x01")}, "out of range"},
		{"lease far out", PoolOptions{Store: kept("s1\x00a.test", "\xff\xff\xff\xff")}, "out of range"},
		{"one address, two names", PoolOptions{Store: twice}, "its offset belongs to"},
		{"good", PoolOptions{Store: kept("s1\x00a.test", "\x00\x00\x00\x05")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := OpenPool(tt.o)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestDNS21MovedPool changes the prefix between two starts.
func TestDNS21MovedPool(t *testing.T) {
	open := func(s Store, p4 string) (*Pool, error) {
		return NewPool(netip.MustParsePrefix(p4), noPrefix, s)
	}
	store := newMemoryStore()
	p, err := open(store, "198.18.0.0/15")
	if err != nil {
		t.Fatal(err)
	}
	old := lease(t, p, "s1", "a.test", false)
	for _, overlapping := range []string{"198.19.0.0/16", "198.0.0.0/8", "198.18.0.0/29"} {
		_, err := open(store, overlapping)
		if sameBase := strings.HasPrefix(overlapping, "198.18.0.0/"); (err == nil) != sameBase {
			t.Errorf("%s over live leases: %v", overlapping, err)
		}
	}
	apart, err := open(store, "192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	if host, ok := apart.Lookup("s1", old); ok {
		t.Errorf("an address outside the pool is %q", host)
	}
	if a := lease(t, apart, "s1", "a.test", false); a.String() != "192.0.2.3" {
		t.Errorf("a.test is at %s", a)
	}
	if _, err := open(store, "198.19.0.0/16"); err == nil {
		t.Error("a prefix of two starts ago is forgotten")
	}
	if err := apart.Forget("s1"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(store, "198.19.0.0/16"); err != nil {
		t.Errorf("no lease is live: %v", err)
	}
}

func TestPoolConcurrent(t *testing.T) {
	p := newPool(t, PoolOptions{})
	var mu sync.Mutex
	seen := map[string]netip.Addr{}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 400 {
				id, host := fmt.Sprint("s", i%3), fmt.Sprintf("h%d.test", (i*7+g)%50)
				a, err := p.Lease(id, host, i%2 == 0)
				if err != nil {
					t.Error(err)
					return
				}
				if got, ok := p.Lookup(id, a); !ok || got != host {
					t.Errorf("%s is %q, leased to %q", a, got, host)
				}
				key := fmt.Sprint(id, host, i%2 == 0)
				mu.Lock()
				if old, ok := seen[key]; ok && old != a {
					t.Errorf("%s moved from %s to %s", key, old, a)
				}
				seen[key] = a
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			id := fmt.Sprint("short", i)
			lease(t, p, id, "a.test", false)
			p.Sandboxes()
			if err := p.Forget(id); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
}

// nowhere is a Store that keeps nothing, so that a Pool can be weighed.
type nowhere struct{}

func (nowhere) Put(string, []byte, []byte) error              { return nil }
func (nowhere) PutAll(string, map[string][]byte) error        { return nil }
func (nowhere) ForEach(string, func(k, v []byte) error) error { return nil }
func (nowhere) Delete(bucket string, key []byte) error        { return nil }

func TestLeaseMemory(t *testing.T) {
	const n = 50_000
	p := newPool(t, PoolOptions{Store: nowhere{}})
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range n {
		lease(t, p, "s1", fmt.Sprintf("host-%08d.wild.test", i), false) // 23 bytes
	}
	each := (heap() - before) / n
	t.Logf("%d bytes a lease", each)
	if each > 120 {
		t.Errorf("%d bytes a lease, want at most 120", each)
	}
	runtime.KeepAlive(p)
}

func BenchmarkPoolLease(b *testing.B) {
	p := newPool(b, PoolOptions{})
	lease(b, p, "s1", "a.test", false)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Lease("s1", "a.test", false)
		}
	})
}

func BenchmarkPoolLookup(b *testing.B) {
	p := newPool(b, PoolOptions{})
	a := lease(b, p, "s1", "a.test", false)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Lookup("s1", a)
		}
	})
}
